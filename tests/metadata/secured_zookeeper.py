"""A real ZooKeeper behind TLS and a login, and who may do what with its nodes."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.protocol.states import ZnodeStat

from tests.peers.kafka import KafkaPeer
from tests.peers.zookeeper import ZooKeeperServer
from tests.server.network.servers import TLS_FILES

STORE = TLS_FILES / "first.pem"
TLS = {
    "zookeeper.ssl.client.enable": "true",
    "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
    "zookeeper.ssl.keystore.location": str(STORE),
    "zookeeper.ssl.truststore.location": str(STORE),
}
DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"


def secured_zookeeper(work: Path, peer: KafkaPeer, secure_port: int) -> ZooKeeperServer:
    """A server that also listens with TLS, which needs a certificate, and knows the user kafka."""
    work.mkdir(parents=True, exist_ok=True)
    (work / "jaas.conf").write_text(f'Server {{ {DIGEST} required user_kafka="secret"; }};')
    config = {
        "secureClientPort": secure_port,
        "secureClientPortAddress": "127.0.0.1",
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": str(STORE),
        "ssl.trustStore.location": str(STORE),
        "ssl.hostnameVerification": "false",
        "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
    }
    flag = f"-Djava.security.auth.login.config={work / 'jaas.conf'}"
    return ZooKeeperServer(work, peer, config, (flag,))


def acls_below(client: KazooClient, root: str) -> dict[str, list[tuple[int, str]]]:
    """Who may do what with each node, by its path without digits."""
    found = {}
    todo = [""]
    while todo:
        path = todo.pop()
        acls, stat = client.get_acls(root + path)
        assert isinstance(stat, ZnodeStat)
        name = "".join("0" if letter.isdigit() else letter for letter in path)
        found[name] = sorted((each.perms, each.id.scheme) for each in acls)
        with suppress(NoAuthError):
            todo += [f"{path}/{child}" for child in client.get_children(root + path)]
    return found
