"""`klog metadata` reads and writes a real ZooKeeper with TLS, a login and ACLs on its nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from klog.metadata.zookeeper_access import ZooKeeperLogin
from tests.commands.running import Run, runner
from tests.corpora import FIXTURES
from tests.metadata.secured_zookeeper import DIGEST, TLS, acls_below, secured_zookeeper
from tests.peers.broker import free_port, properties_text
from tests.peers.kafka import KafkaPeer
from tests.peers.zookeeper import ZooKeeperServer

LOGS = FIXTURES / "k4-kraft" / "logs"
KINDS = "topic,config,acl,quota,credential"


@pytest.fixture
def klog(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capfd, monkeypatch)


@pytest.fixture(scope="module")
def secure_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def zookeeper(kafka3: KafkaPeer, secure_port: int, tmp_path_factory) -> Iterator[ZooKeeperServer]:
    with secured_zookeeper(tmp_path_factory.mktemp("zookeeper"), kafka3, secure_port) as server:
        yield server


def access(path: Path, config: dict[str, str]) -> Path:
    """A properties file that says how to connect."""
    file = path / "zookeeper.properties"
    file.write_text(properties_text(config))
    return file


def login(path: Path, password: str = "secret") -> Path:
    """A file that names a login, and that new nodes belong to it."""
    jaas = path / "client-jaas.conf"
    jaas.write_text(f'Client {{ {DIGEST} required username="kafka" password="{password}"; }};')
    return access(path, {"java.security.auth.login.config": str(jaas), "zookeeper.set.acl": "true"})


@pytest.mark.kafka
def test_what_goes_through_tls_is_its_writers_and_comes_back(
    klog: Run, zookeeper: ZooKeeperServer, secure_port: int, tmp_path: Path
) -> None:
    place = f"127.0.0.1:{secure_port}/tls"
    given = ("--zookeeper-config", access(tmp_path, {**TLS, "zookeeper.set.acl": "true"}))
    planned = klog("metadata", "convert", LOGS, place, "--to", "zookeeper", *given, "--dry-run")
    assert (planned.code, "2 topics, 15 partitions" in planned.out) == (0, True), planned.err
    done = klog("metadata", "convert", LOGS, place, "--to", "zookeeper", *given, "--yes")
    assert done.code == 0, done.err
    compared = klog("metadata", "diff", LOGS, place, "--only", KINDS, *given)
    assert (compared.code, compared.out) == (0, "the metadata is the same\n"), compared.err
    assert klog("metadata", "check", place, *given).code == 0
    assert "alice" in klog("metadata", "show", f"zookeeper://{place}", *given).out
    whole = tmp_path / "cluster.json"
    assert klog("metadata", "convert", place, whole, "--to", "json", *given, "--yes").code == 0
    assert klog("metadata", "diff", LOGS, whole, "--only", KINDS).code == 0

    refused = klog("metadata", "show", f"{zookeeper.hosts}/tls")
    assert refused.code == 1
    assert "does not let this client read or change the node: /tls/config/users" in refused.err
    assert "--zookeeper-config" in refused.err


@pytest.mark.kafka
def test_what_a_login_writes_belongs_to_it(klog: Run, zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    pytest.importorskip("puresasl")
    place, given = f"{zookeeper.hosts}/login", ("--zookeeper-config", login(tmp_path))
    done = klog("metadata", "convert", LOGS, place, "--to", "zookeeper", *given, "--yes")
    assert done.code == 0, done.err
    compared = klog("metadata", "diff", LOGS, place, "--only", KINDS, *given)
    assert (compared.code, compared.out) == (0, "the metadata is the same\n"), compared.err
    owner = KazooClient(zookeeper.hosts, sasl_options=dict(ZooKeeperLogin("kafka", "secret").options()))
    owner.start(30)
    try:
        found = acls_below(owner, "/login")
    finally:
        owner.stop()
        owner.close()
    assert {acl for acls in found.values() for acl in acls} == {(31, "sasl"), (1, "world"), (31, "world")}
    assert found["/config/users"] == [(31, "sasl")]
    assert found["/brokers/topics/m-one"] == [(1, "world"), (31, "sasl")]

    refused = klog("metadata", "convert", LOGS, f"{place}/below", "--to", "zookeeper", "--yes")
    assert refused.code == 1
    assert "does not let this client read or change the node" in refused.err


@pytest.mark.kafka
def test_a_backup_has_the_metadata_of_a_secured_zookeeper_and_comes_back_to_one(
    klog: Run, zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    pytest.importorskip("puresasl")
    given = ("--zookeeper-config", login(tmp_path))
    before, after = f"{zookeeper.hosts}/before", f"{zookeeper.hosts}/after"
    assert klog("metadata", "convert", LOGS, before, "--to", "zookeeper", *given, "--yes").code == 0
    place = ("--to", tmp_path / "repository", "--metadata", before, "--secrets")
    refused = klog("backup", "run", LOGS, *place)
    assert (refused.code, "does not let this client read or change the node" in refused.err) == (1, True)
    backed = klog("backup", "run", LOGS, *place, *given)
    assert backed.code == 0, backed.err
    target = ("--to", tmp_path / "restored", "--brokers", 1, "--zookeeper", after)
    restored = klog("restore", tmp_path / "repository", *target, *given)
    assert restored.code == 0, restored.err
    assert klog("metadata", "diff", before, after, "--only", "topic,acl,credential", *given).code == 0
    assert klog("metadata", "show", after).code == 1, "its nodes belong to the login"


@pytest.mark.kafka
def test_a_wrong_password_is_refused(klog: Run, zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    pytest.importorskip("puresasl")
    refused = klog("metadata", "show", zookeeper.hosts, "--zookeeper-config", login(tmp_path, "wrong"))
    assert refused.code == 1
    assert "ZooKeeper refused the login" in refused.err
    assert "wrong" not in refused.err


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ({**TLS, "zookeeper.ssl.keystore.location": "/no/such.pem"}, "zookeeper.ssl.keystore.location"),
        ({"zookeeper.set.acl": "true"}, "would not know whose the nodes are"),
        ({"group.id": "x"}, "holds no config that a broker knows"),
    ],
)
def test_a_file_that_does_not_say_how_to_connect_is_refused(
    klog: Run, tmp_path: Path, config: dict[str, str], what: str
) -> None:
    refused = klog("metadata", "show", "127.0.0.1:1", "--zookeeper-config", access(tmp_path, config))
    assert (refused.code, what in refused.err) == (2, True), refused.err
