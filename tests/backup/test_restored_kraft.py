"""Restores for KRaft, and of KRaft: Kafka 4.1.1 starts without recovery, with users, ACLs and groups."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

import klog.testing
from klog.backup.restoring.target import INCOMPLETE, RestoreTarget
from klog.cluster_metadata import kraft_form
from klog.formats import meta_properties
from tests.backup import seen
from tests.backup.recorded import Recorded
from tests.backup.repositories import Backups
from tests.backup.test_restored_brokers import require_clients_go_on, restored_by_command
from tests.commands.running import Run, runner
from tests.export.logs import Log, batch
from tests.peers import KafkaPeer
from tests.peers.broker import KRaftBroker, ZooKeeperBroker, free_port
from tests.peers.zookeeper import ZooKeeperServer

USER = "alice"
TIMEOUT_S = 30
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
RECOVERY = "Recovering|rebuilding index|Corrupt|Found invalid|stray"


class KilledError(Exception):
    pass


@pytest.fixture
def klog_command(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capfd, monkeypatch)


def kraft_node(path: Path, work: Path, **config: str | int) -> KRaftBroker:
    """Kafka 4.1.1 on a directory that a restore has made, broker and controller in one."""
    node = meta_properties.parse((path / "meta.properties").read_bytes())
    assert node.node_id is not None
    broker_port, port = free_port(), free_port()
    listeners = f"PLAINTEXT://127.0.0.1:{broker_port},CONTROLLER://127.0.0.1:{port}"
    settings: dict[str, str | int] = {
        "node.id": node.node_id,
        "log.dirs": str(path),
        "listeners": listeners,
        "controller.quorum.voters": f"{node.node_id}@127.0.0.1:{port}",
    }
    broker = KRaftBroker(work, {**settings, **config})
    broker.port = broker_port
    return broker


def require_no_recovery(broker: KRaftBroker | ZooKeeperBroker) -> None:
    text = broker.log_path.read_text()
    assert not re.search(RECOVERY, text), text


def restore(klog_command: Run, place: object, path: Path, *words: object) -> None:
    done = klog_command("restore", place, "--to", path, "--json", *words)
    assert done.code == 0, done.err


def test_topics_configs_and_levels_are_in_the_metadata_of_a_node(
    klog_command: Run, backups: Backups, logs: Path, tmp_path: Path
) -> None:
    Log(logs / "orders-0").append(batch(0, 3)).write()
    backups.run(logs)

    restore(klog_command, backups.place, tmp_path / "new", "--kraft", "--metadata-version", "4.0")

    found = kraft_form.read([str(tmp_path / "new")]).cluster
    assert found.topics["orders"].topic_id is not None
    assert found.features["metadata.version"] == 25
    written = (tmp_path / "new" / "orders-0" / "partition.metadata").read_text()
    assert found.topics["orders"].topic_id in written


def test_brokers_and_controllers_get_a_directory_each_also_after_a_kill(
    klog_command: Run, backups: Backups, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Log(logs / "orders-0").append(batch(0, 3)).write()
    backups.run(logs)
    new = tmp_path / "new"
    words = ("--kraft", "--brokers", "1,2", "--replication-factor", 2, "--controllers", 11)

    def killed(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(RestoreTarget, "finish", killed)
        with pytest.raises(KilledError):
            restore(klog_command, backups.place, new, *words)
    assert all((new / f"broker-{each}" / INCOMPLETE).exists() for each in (1, 2))
    restore(klog_command, backups.place, new, *words)

    nodes = {
        path.name: meta_properties.parse((path / "meta.properties").read_bytes()) for path in new.iterdir()
    }
    assert {name: node.node_id for name, node in nodes.items()} == {
        "broker-1": 1,
        "broker-2": 2,
        "controller-11": 11,
    }
    assert len({node.cluster_id for node in nodes.values()}) == 1
    found = kraft_form.read([str(new / "controller-11")]).cluster.topics["orders"]
    assert set(found.partitions[0].assignment.replicas) == {1, 2}
    logs_of = [(new / f"broker-{each}" / "orders-0" / f"{0:020}.log").read_bytes() for each in (1, 2)]
    assert logs_of[0] == logs_of[1] == (logs / "orders-0" / f"{0:020}.log").read_bytes()


@pytest.mark.kafka
def test_kafka_4_starts_on_a_restored_directory_without_recovery(
    recorded: Recorded, klog_command: Run, tmp_path: Path, kafka4: KafkaPeer
) -> None:
    path, copy = tmp_path / "restored", tmp_path / "copy"
    restored_by_command(recorded, klog_command, path, "--topic", "orders|__.*", "--kraft")
    shutil.copytree(path, copy)
    config = {"offsets.topic.num.partitions": 3, "transaction.state.log.num.partitions": 2}

    with kraft_node(path, tmp_path / "kafka", **config) as broker:
        require_clients_go_on(broker.bootstrap, copy)
        require_no_recovery(broker)


@dataclass(frozen=True)
class Kafka4Source:
    """A backup with metadata and secrets of a Kafka 4.1.1 that has stopped, and what its clients saw."""

    place: Path
    seen: seen.Seen
    left: seen.Seen

    def require_same(self, bootstrap: str) -> None:
        assert seen.all_messages(bootstrap) == self.seen
        assert seen.left_for_group(bootstrap) == self.left


@pytest.fixture(scope="module")
def kafka4_source(tmp_path_factory: pytest.TempPathFactory, kafka4: KafkaPeer) -> Kafka4Source:
    work = tmp_path_factory.mktemp("kafka4")
    with KRaftBroker(work, AUTHORIZER) as broker:
        found, left = seen.fill(broker.bootstrap)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        change = UserScramCredentialUpsertion(USER, credential, b"password")
        for future in admin.alter_user_scram_credentials([change]).values():
            future.result(TIMEOUT_S)
        for future in admin.create_acls([acl()]).values():
            future.result(TIMEOUT_S)
    place = tmp_path_factory.mktemp("repository")
    logs = str(work / "logs")
    words = ("backup", "run", logs, "--to", str(place), "--metadata", logs, "--secrets", "--quiet")
    subprocess.run([sys.executable, "-m", "klog", *words], check=True)
    return Kafka4Source(place, found, left)


def acl() -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC,
        seen.TOPIC,
        ResourcePatternType.LITERAL,
        f"User:{USER}",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )


@pytest.mark.kafka
def test_kafka_4_comes_back_to_kafka_4_with_users_and_acls(
    kafka4_source: Kafka4Source, klog_command: Run, tmp_path: Path
) -> None:
    path = tmp_path / "restored"
    restore(klog_command, kafka4_source.place, path, "--kraft")

    with kraft_node(path, tmp_path / "kafka", **AUTHORIZER) as broker:
        kafka4_source.require_same(broker.bootstrap)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        users = {
            name: each.result(TIMEOUT_S)
            for name, each in admin.describe_user_scram_credentials([USER]).items()
        }
        assert [each.iterations for each in users[USER].scram_credential_infos] == [4096]
        wanted = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            None,
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        assert admin.describe_acls(wanted).result(TIMEOUT_S) == [acl()]
        require_no_recovery(broker)


@pytest.mark.kafka
def test_kafka_4_comes_back_to_klog(kafka4_source: Kafka4Source, klog_command: Run, tmp_path: Path) -> None:
    path = tmp_path / "restored"
    restore(klog_command, kafka4_source.place, path)

    with klog.testing.broker({"broker.id": 1, "log.dirs": str(path), "log.retention.ms": -1}) as broker:
        kafka4_source.require_same(broker.bootstrap_servers)
        assert not re.search("recover(ed|ing|s)|rebuil|ERROR", broker.log_text(), re.IGNORECASE)


@pytest.mark.kafka
def test_kafka_4_comes_back_to_kafka_3_with_zookeeper(
    kafka4_source: Kafka4Source, klog_command: Run, tmp_path: Path, kafka3: KafkaPeer
) -> None:
    path, work = tmp_path / "restored", tmp_path / "kafka"
    work.mkdir()
    with ZooKeeperServer(tmp_path / "zookeeper", kafka3) as zookeeper:
        connect = f"{zookeeper.hosts}/restored"
        restore(klog_command, kafka4_source.place, path, "--zookeeper", connect)
        config = {"log.dirs": str(path), "zookeeper.connect": connect, "broker.id": 1}

        with ZooKeeperBroker(work, config) as broker:
            kafka4_source.require_same(broker.bootstrap)
            require_no_recovery(broker)
