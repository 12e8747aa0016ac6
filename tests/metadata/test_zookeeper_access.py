"""ZooKeeper behind TLS and a login, and nodes that belong to their maker: as with Kafka 3.9.1."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from klog.cluster_metadata import tree_form, tree_output
from klog.config.broker import BrokerConfig
from klog.config.keys import ConfigError
from klog.metadata._kazoo import acl_of
from klog.metadata._kazoo_tls import TlsHandler
from klog.metadata.errors import ConnectionLossError
from klog.metadata.store import Create
from klog.metadata.zookeeper import ZooKeeperStore
from klog.metadata.zookeeper_access import PLAIN_ACCESS, ZooKeeperAccess, ZooKeeperLogin
from klog.server.startup.zookeeper_access import read_access
from tests.metadata.secured_zookeeper import DIGEST, TLS, acls_below, secured_zookeeper
from tests.peers.broker import ZooKeeperBroker, free_port
from tests.peers.kafka import KafkaPeer
from tests.peers.zookeeper import ZooKeeperServer
from tests.server.network.servers import TLS_FILES
from tests.swap.clients import Admin
from tests.swap.klog_process import KlogBroker

SECURED = replace(PLAIN_ACCESS, sets_acls=True)


# -- which nodes are open ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "others_read"),
    [
        ("/brokers/topics/orders", True),
        ("/config", True),
        ("/config/changes/config_change_", True),
        ("/config/topics/orders", True),
        ("/config/users", False),
        ("/config/users/alice", False),
        ("/config/brokers/1", False),
        ("/kafka-acl/Topic/orders", True),
        ("/delegation_token/token_changes", True),
        ("/delegation_token/tokens/x", False),
    ],
)
def test_a_node_is_its_makers_and_others_read_what_is_no_secret(path: str, others_read: bool) -> None:
    acls: Any = acl_of(path, SECURED)
    assert [(each.perms, each.id.scheme) for each in acls] == [(31, "auth"), (1, "world")][: 1 + others_read]


def test_without_the_config_everybody_may_do_everything() -> None:
    for path, access in (("/config/users/alice", PLAIN_ACCESS), ("/consumers", SECURED)):
        acls: Any = acl_of(path, access)
        assert [(each.perms, each.id.scheme) for each in acls] == [(31, "world")]


# -- configs -------------------------------------------------------------------------------------------------


def access(**configs: str) -> ZooKeeperAccess:
    return read_access(BrokerConfig({name.replace("_", "."): value for name, value in configs.items()}))


def test_only_the_protocol_is_spoken_unless_others_are_enabled() -> None:
    context = read_access(BrokerConfig(TLS)).tls
    assert context is not None
    assert context.minimum_version == context.maximum_version == ssl.TLSVersion.TLSv1_2
    assert context.check_hostname
    both = {**TLS, "zookeeper.ssl.enabled.protocols": "TLSv1.2,TLSv1.3"}
    both["zookeeper.ssl.endpoint.identification.algorithm"] = ""
    context = read_access(BrokerConfig(both)).tls
    assert context is not None
    assert context.maximum_version == ssl.TLSVersion.TLSv1_3
    assert not context.check_hostname


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"zookeeper.ssl.keystore.location": "store.x"}, "zookeeper.ssl.keystore.location"),
        ({"zookeeper.ssl.keystore.location": "no-such.pem"}, "zookeeper.ssl.keystore.location"),
        ({"zookeeper.ssl.truststore.location": "no-such.p12"}, "zookeeper.ssl.truststore.location"),
        ({"zookeeper.ssl.keystore.location": "a.jks"}, "zookeeper.ssl.keystore.password"),
        (
            {"zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNIO"},
            "zookeeper.clientCnxnSocket",
        ),
        ({"zookeeper.ssl.enabled.protocols": "TLSv1.4"}, "zookeeper.ssl.enabled.protocols"),
        ({"zookeeper.ssl.cipher.suites": "x"}, "zookeeper.ssl.cipher.suites"),
    ],
)
def test_what_cannot_be_used_stops_the_start(changes: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_access(BrokerConfig({**TLS, **changes}))
    assert refused.value.key == key


def test_nodes_need_an_owner_that_zookeeper_knows() -> None:
    assert read_access(BrokerConfig({**TLS, "zookeeper.set.acl": "true"})).sets_acls
    for lacking in ({}, {**TLS, "zookeeper.ssl.keystore.location": ""}):
        with pytest.raises(ConfigError, match="would not know whose the nodes are") as refused:
            read_access(BrokerConfig({**lacking, "zookeeper.set.acl": "true"}))
        assert refused.value.key == "zookeeper.set.acl"


def test_the_section_of_the_jaas_file_is_the_login(tmp_path: Path) -> None:
    pytest.importorskip("puresasl")
    file = tmp_path / "jaas.conf"
    file.write_text(f'Client {{ {DIGEST} required username="kafka" password="secret"; }};')
    config = {"java.security.auth.login.config": str(file)}
    found = read_access(BrokerConfig(config))
    assert found.login == ZooKeeperLogin("kafka", "secret")
    assert "secret" not in repr(found)
    file.write_text('Client { com.sun.security.auth.module.Krb5LoginModule required principal="x"; };')
    with pytest.raises(ConfigError, match="section Client must have"):
        read_access(BrokerConfig(config))
    file.write_text(f"KafkaServer {{ {DIGEST} required; }};")
    assert read_access(BrokerConfig(config)).login is None


# -- a real server -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def secure_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def zookeeper(kafka3: KafkaPeer, secure_port: int, tmp_path_factory) -> Iterator[ZooKeeperServer]:
    with secured_zookeeper(tmp_path_factory.mktemp("zookeeper"), kafka3, secure_port) as server:
        yield server


@pytest.mark.kafka
@pytest.mark.usefixtures("zookeeper")
def test_a_store_through_tls_is_a_store(secure_port: int) -> None:
    through_tls = read_access(BrokerConfig({**TLS, "zookeeper.set.acl": "true"}))
    with closing(ZooKeeperStore(f"127.0.0.1:{secure_port}/tls", through_tls)) as store:
        store.create("/config/users/alice", b"x" * 200_000, make_parents=True)
        assert store.get("/config/users/alice").data == b"x" * 200_000
        store.multi([Create("/config/users/bob", b"1"), Create("/open", b"2")])
        assert store.children("/config/users") == ["alice", "bob"]


@pytest.mark.kafka
@pytest.mark.usefixtures("zookeeper")
def test_a_server_that_is_not_trusted_is_named(secure_port: int) -> None:
    other = str(TLS_FILES / "other_holder.pem")
    for changes in (
        {"zookeeper.ssl.truststore.location": other},
        {"zookeeper.ssl.cipher.suites": _UNKNOWN_THERE},
    ):
        strange = read_access(BrokerConfig({**TLS, **changes}))
        with pytest.raises(ConnectionLossError, match="the TLS handshake failed") as failed:
            ZooKeeperStore(f"127.0.0.1:{secure_port}", strange, connect_timeout_ms=3000)
        assert "zookeeper.ssl" in str(failed.value.cure)


# The server's certificate has an elliptic curve.
_UNKNOWN_THERE = "TLS_RSA_WITH_AES_128_GCM_SHA256"


@pytest.mark.kafka
def test_who_logs_in_owns_its_nodes(zookeeper: ZooKeeperServer) -> None:
    pytest.importorskip("puresasl")
    own = ZooKeeperAccess(login=ZooKeeperLogin("kafka", "secret"), sets_acls=True)
    with closing(ZooKeeperStore(f"{zookeeper.hosts}/sasl", own)) as store:
        store.create("/config/users/alice", b"salted", make_parents=True)
        store.create("/config/topics", b"open", make_parents=True)
        with closing(KazooClient(zookeeper.hosts)) as stranger:
            stranger.start(30)
            assert stranger.get("/sasl/config/topics")[0] == b"open"
            for refused in (
                lambda: stranger.get("/sasl/config/users/alice"),
                lambda: stranger.set("/sasl/config/topics", b"changed"),
                lambda: stranger.delete("/sasl/config/topics"),
            ):
                with pytest.raises(NoAuthError):
                    refused()
            stranger.stop()
        assert store.get("/config/users/alice").data == b"salted"


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.usefixtures("zookeeper")
def test_all_nodes_have_the_acls_of_kafkas(kafka3: KafkaPeer, secure_port: int, tmp_path: Path) -> None:
    more = {
        **TLS,
        "zookeeper.set.acl": "true",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
        "delegation.token.secret.key": "secret",
    }
    for name, kind in (("kafka", ZooKeeperBroker), ("klog", KlogBroker)):
        config = {**more, "zookeeper.connect": f"127.0.0.1:{secure_port}/{name}"}
        if kind is ZooKeeperBroker:
            with ZooKeeperBroker(tmp_path / name, config, kafka3) as broker:
                Admin(broker.bootstrap).create({"orders": (1, {"retention.ms": "1000000"})})
        else:
            with KlogBroker(tmp_path / name, config) as ours:
                ours.start()
                Admin(ours.bootstrap).create({"orders": (1, {"retention.ms": "1000000"})})
    access = read_access(BrokerConfig({**TLS, "zookeeper.set.acl": "true"}))
    with (
        closing(ZooKeeperStore(f"127.0.0.1:{secure_port}/kafka", access)) as source,
        closing(ZooKeeperStore(f"127.0.0.1:{secure_port}/converted", access)) as target,
    ):
        tree_output.write(target, tree_form.read(source, "").cluster)
    context = access.tls
    assert context is not None
    client = KazooClient(f"127.0.0.1:{secure_port}", handler=TlsHandler(context))
    client.start(30)
    try:
        kafka, klog, converted = (acls_below(client, root) for root in ("/kafka", "/klog", "/converted"))
    finally:
        client.stop()
        client.close()
    of_brokers = {"/config/users", "/kafka-acl/Topic", "/delegation_token/tokens"}
    of_conversions = {"/config/users", "/config/topics/orders", "/brokers/topics/orders/partitions/0/state"}
    for ours, least, present in ((klog, 25, of_brokers), (converted, 20, of_conversions)):
        both = kafka.keys() & ours.keys()
        assert len(both) > least
        assert present <= both
        assert {path: ours[path] for path in both} == {path: kafka[path] for path in both}
        assert {acl for acls in ours.values() for acl in acls} == {(31, "x509"), (1, "world"), (31, "world")}
