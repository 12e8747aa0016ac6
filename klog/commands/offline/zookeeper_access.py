"""How commands that read or write a live ZooKeeper connect to it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from klog.metadata.zookeeper_access import ZooKeeperAccess

ZooKeeperConfig = Annotated[
    Path | None,
    typer.Option(
        "--zookeeper-config",
        help="A broker's properties file with its zookeeper.ssl.*, zookeeper.set.acl and JAAS file, for a"
        " ZooKeeper with TLS, a login or ACLs.",
        metavar="FILE",
        show_default=False,
    ),
]


def access_of(config: Path | None) -> ZooKeeperAccess:
    """What the file says; a plain connection without one. Raises ConfigError, UsageError, StorageError."""
    from klog.metadata.zookeeper_access import PLAIN_ACCESS
    from klog.server.startup.config_reading import read_config
    from klog.server.startup.zookeeper_access import read_access

    return PLAIN_ACCESS if config is None else read_access(read_config(str(config), ()))
