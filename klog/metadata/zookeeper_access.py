"""How a broker comes to its ZooKeeper, and what it lets others do with the nodes that it makes.

Rules: Kafka's `ZkData.defaultAcls`. With `zookeeper.set.acl` only who has made a node may change it.
Everybody may read it, unless it holds secrets. The root of old consumers stays open, because these write
below it.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from klog.metadata.paths import CONFIG, CONSUMERS

_SENSITIVE: Final = (f"{CONFIG}/users", f"{CONFIG}/brokers", "/delegation_token/tokens")


@dataclass(frozen=True, slots=True)
class ZooKeeperLogin:
    """Name and password for SASL with DIGEST-MD5."""

    username: str
    password: str = field(repr=False)

    def options(self) -> Mapping[str, str]:
        """What kazoo takes."""
        return {"mechanism": "DIGEST-MD5", "username": self.username, "password": self.password}


@dataclass(frozen=True, slots=True)
class ZooKeeperAccess:
    """Connections go through TLS, if `tls` is given, and log in, if `login` is. With `sets_acls` new nodes
    belong to whom ZooKeeper knows this client as: by the login, or by the certificate of the TLS context.
    """

    tls: ssl.SSLContext | None = None
    login: ZooKeeperLogin | None = None
    sets_acls: bool = False

    def is_open(self, path: str) -> bool:
        """Whether everybody may do everything with a new node at the path."""
        return not self.sets_acls or path == CONSUMERS

    def is_secret(self, path: str) -> bool:
        """Whether nobody else may read a new node at the path."""
        return not self.is_open(path) and path.startswith(_SENSITIVE)


PLAIN_ACCESS: Final = ZooKeeperAccess()
