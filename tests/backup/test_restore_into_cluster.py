"""`klog restore --bootstrap-server`: records and groups come back into a running cluster."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

import klog.testing
from klog.backup.producing import run as producing
from klog.backup.producing import writing
from klog.client.admin import Resource
from klog.client.admin import ResourceType as ConfigType
from klog.client.connection import Connection
from klog.cluster_metadata import json_form
from klog.cluster_metadata.model import Cluster, Partition, Topic
from klog.formats.names import FileKind
from klog.metadata.values import ReplicaAssignment
from klog.protocol.errors import ConnectionLostError
from klog.testing import BrokerProcess
from tests.backup import seen
from tests.backup.repositories import Backups
from tests.commands.running import Outcome, Run, runner
from tests.export.logs import Log, batch, write_checkpoint
from tests.peers.broker import KRaftBroker, ZooKeeperBroker


@pytest.fixture
def klog_command(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capfd, monkeypatch)


@dataclass(frozen=True)
class BackedUp:
    source: seen.Source
    place: Path | str


@pytest.fixture(scope="module")
def backed_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackedUp]:
    with seen.source() as source:
        backups = seen.backed_up(tmp_path_factory.mktemp("repository"), source)
        yield BackedUp(source, backups.place)


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with klog.testing.broker({"log.retention.ms": -1}) as broker:
        yield broker


@dataclass(frozen=True)
class Restore:
    """Calls `klog restore` into a cluster, with a file of offsets in the directory of the test."""

    command: Run
    path: Path

    @property
    def mapping(self) -> Path:
        return self.path / "offsets.jsonl"

    def __call__(self, place: object, bootstrap: str, *words: object) -> Outcome:
        return self.command(
            "restore", place, "--bootstrap-server", bootstrap, "--mapping", self.mapping, "--json", *words
        )

    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.mapping.read_text().splitlines()]


@pytest.fixture
def restore(klog_command: Run, tmp_path: Path) -> Restore:
    return Restore(klog_command, tmp_path)


def require_same(backed_up: BackedUp, bootstrap: str, topic: str = seen.TOPIC) -> None:
    """Readers see what they saw, and the group goes on where it was."""
    assert seen.all_messages(bootstrap, topic) == backed_up.source.seen
    assert seen.left_for_group(bootstrap, topic) == backed_up.source.left


def spoil(backups: Backups, topic: str, number: int = -1) -> None:
    """Change a byte of the last record of a piece."""
    path = sorted((Path(backups.place) / "data" / f"{topic}-0").glob("*.log"))[number]
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)


def test_readers_see_what_they_saw_and_groups_go_on(
    restore: Restore, backed_up: BackedUp, running: BrokerProcess
) -> None:
    done = restore(backed_up.place, running.bootstrap_servers)

    assert done.code == 0, done.err
    require_same(backed_up, running.bootstrap_servers)
    header, *ranges = restore.lines()
    assert header["is_complete"]
    assert {each["topic"] for each in ranges} == {seen.TOPIC}
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert {row["partition"]: row["newEndOffset"] for row in rows} == {
        number: len(found) for number, found in backed_up.source.seen.items()
    }


def test_a_topic_comes_back_beside_the_living_one_under_another_name(
    restore: Restore, backed_up: BackedUp, running: BrokerProcess
) -> None:
    words = ("--topic", f"{seen.TOPIC}|__.*", "--rename", f"{seen.TOPIC}=orders-before")

    done = restore(backed_up.place, running.bootstrap_servers, *words)

    assert done.code == 0, done.err
    require_same(backed_up, running.bootstrap_servers, "orders-before")


def test_a_topic_that_has_records_is_refused_and_stays(
    restore: Restore, backed_up: BackedUp, running: BrokerProcess
) -> None:
    running.create_topic("living", partitions=seen.PARTITIONS)
    producer = Producer({"bootstrap.servers": running.bootstrap_servers})
    producer.produce("living", b"new", partition=1)
    assert producer.flush(30) == 0
    words = ("--topic", seen.TOPIC, "--rename", f"{seen.TOPIC}=living")

    for more in ((), ("--dry-run",)):
        done = restore(backed_up.place, running.bootstrap_servers, *words, *more)
        assert done.code == 2
        assert "topic living exists and has had records: living-1 ends at offset 1" in done.err
    assert [len(found) for found in seen.all_messages(running.bootstrap_servers, "living").values()] == [
        0,
        1,
        0,
    ]
    assert not restore.mapping.exists()


def test_an_empty_topic_needs_as_many_partitions(
    restore: Restore, backed_up: BackedUp, running: BrokerProcess
) -> None:
    running.create_topic("narrow", partitions=2)
    words = ("--topic", seen.TOPIC, "--rename", f"{seen.TOPIC}=narrow")

    done = restore(backed_up.place, running.bootstrap_servers, *words)

    assert done.code == 2
    assert "topic narrow exists and has 2 partitions, that of the backup has 3" in done.err


def test_a_dry_run_creates_nothing(restore: Restore, backed_up: BackedUp, running: BrokerProcess) -> None:
    words = ("--topic", seen.TOPIC, "--rename", f"{seen.TOPIC}=never", "--dry-run")

    done = restore(backed_up.place, running.bootstrap_servers, *words)

    assert done.code == 0, done.err
    topics = AdminClient({"bootstrap.servers": running.bootstrap_servers}).list_topics(timeout=30).topics
    assert "never" not in topics
    assert not restore.mapping.exists()


class KilledError(Exception):
    pass


@pytest.mark.parametrize("batches", [0, 1, 5, 17, 40])
def test_a_killed_restore_goes_on_where_it_was(
    restore: Restore,
    backed_up: BackedUp,
    running: BrokerProcess,
    monkeypatch: pytest.MonkeyPatch,
    batches: int,
) -> None:
    name = f"killed-{batches}"
    words = ("--topic", f"{seen.TOPIC}|__.*", "--rename", f"{seen.TOPIC}={name}", "--jobs", 1)
    whole = producing.PartitionProducer.write
    left = batches

    def killed_after(self: producing.PartitionProducer, data: bytearray, records: int) -> None:
        nonlocal left
        if not left:
            raise KilledError
        left -= 1
        whole(self, data, records)

    with monkeypatch.context() as patched:
        patched.setattr(producing.PartitionProducer, "write", killed_after)
        with pytest.raises(KilledError):
            restore(backed_up.place, running.bootstrap_servers, *words)

    done = restore(backed_up.place, running.bootstrap_servers, *words)

    assert done.code == 0, done.err
    require_same(backed_up, running.bootstrap_servers, name)
    again = restore(backed_up.place, running.bootstrap_servers, *words)
    assert again.code == 2
    assert "says that this restore is complete" in again.err


def test_a_batch_whose_answer_was_lost_is_not_written_again(
    restore: Restore, backed_up: BackedUp, running: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--topic", f"{seen.TOPIC}|__.*", "--rename", f"{seen.TOPIC}=lost-answers", "--jobs", 1)
    whole, calls = writing.produce, itertools.count()

    def lossy(connection: Connection, *more: Any) -> Any:
        answer = whole(connection, *more)
        if next(calls) % 7 == 3:
            connection.close()
            raise ConnectionLostError("lost")
        return answer

    monkeypatch.setattr(writing, "produce", lossy)

    done = restore(backed_up.place, running.bootstrap_servers, *words)

    assert done.code == 0, done.err
    assert next(calls) > 20
    require_same(backed_up, running.bootstrap_servers, "lost-answers")


def test_records_of_others_in_an_unfinished_restore_are_refused(
    restore: Restore, backed_up: BackedUp, running: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--topic", seen.TOPIC, "--rename", f"{seen.TOPIC}=disturbed")

    def killed(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(producing.PartitionProducer, "write", killed)
        with pytest.raises(KilledError):
            restore(backed_up.place, running.bootstrap_servers, *words)
    producer = Producer({"bootstrap.servers": running.bootstrap_servers})
    end_offset = len(backed_up.source.seen[0]) + 1
    for _ in range(end_offset):
        producer.produce("disturbed", b"new", partition=0)
    assert producer.flush(30) == 0

    done = restore(backed_up.place, running.bootstrap_servers, *words)

    assert done.code == 1
    assert f"disturbed-0 ends at offset {end_offset}, where no batch of this restore ends" in done.err


def test_the_file_of_another_restore_is_not_written_over(
    restore: Restore, backed_up: BackedUp, running: BrokerProcess
) -> None:
    words = ("--topic", seen.TOPIC, "--rename", f"{seen.TOPIC}=first")
    assert restore(backed_up.place, running.bootstrap_servers, *words).code == 0
    written = restore.mapping.read_bytes()

    done = restore(backed_up.place, running.bootstrap_servers, "--topic", seen.TOPIC)

    assert done.code == 2
    assert "is of a restore of something else" in done.err
    assert restore.mapping.read_bytes() == written


def test_a_group_with_members_is_not_changed_and_the_exit_code_says_so(
    restore: Restore, backed_up: BackedUp, running: BrokerProcess
) -> None:
    name = "with-members"
    running.create_topic("others")
    consumer = Consumer({"bootstrap.servers": running.bootstrap_servers, "group.id": seen.GROUP})
    consumer.subscribe(["others"])
    while not consumer.assignment():
        consumer.poll(0.1)
    words = ("--topic", f"{seen.TOPIC}|__.*", "--rename", f"{seen.TOPIC}={name}")

    done = restore(backed_up.place, running.bootstrap_servers, *words)

    assert done.code == 1
    assert f"group {seen.GROUP}" in done.err
    assert not restore.lines()[0]["is_complete"]
    assert consumer.committed([TopicPartition(name, 0)], 30)[0].offset < 0
    consumer.close()
    assert restore(backed_up.place, running.bootstrap_servers, *words).code == 0
    require_same(backed_up, running.bootstrap_servers, name)


def test_records_that_were_deleted_before_the_log_start_stay_deleted(
    restore: Restore, backups: Backups, logs: Path, running: BrokerProcess
) -> None:
    """DeleteRecords leaves them in the files of the log, in which the start may be within a batch."""
    Log(logs / "deleted-0").append(batch(0, 3), batch(3, 4)).write()
    write_checkpoint(logs, FileKind.LOG_START_CHECKPOINT, deleted_0=5)
    backups.run(logs)

    done = restore(backups.place, running.bootstrap_servers)

    assert done.code == 0, done.err
    keys = [each[1] for each in seen.messages(running.bootstrap_servers, 0, "deleted")]
    assert keys == [b"k5", b"k6"]
    (line,) = restore.lines()[1:]
    assert (line["firstOffset"], line["endOffset"], line["newFirstOffset"]) == (5, 7, 0)


def test_batches_that_the_cluster_does_not_take_are_said_before_anything_is_made(
    restore: Restore, backups: Backups, logs: Path, running: BrokerProcess
) -> None:
    Log(logs / "large-0").append(batch(0, 1, size=100), batch(1, 1, size=1_200_000)).write()
    backups.run(logs)

    done = restore(backups.place, running.bootstrap_servers)

    assert done.code == 2
    assert "topic large: the largest batch in the backup has 1200" in done.err
    assert "message.max.bytes of the brokers" in done.err
    topics = AdminClient({"bootstrap.servers": running.bootstrap_servers}).list_topics(timeout=30).topics
    assert "large" not in topics


def test_compacted_logs_come_back_without_gaps_and_offsets_are_translated(
    restore: Restore, backups: Backups, logs: Path, running: BrokerProcess
) -> None:
    Log(logs / "gaps-0").append(batch(3, 2), batch(10, 1), batch(12, 3)).write()
    backups.run(logs)

    done = restore(backups.place, running.bootstrap_servers)

    assert done.code == 0, done.err
    keys = [each[1] for each in seen.messages(running.bootstrap_servers, 0, "gaps")]
    assert keys == [b"k3", b"k4", b"k10", b"k12", b"k13", b"k14"]
    assert [
        (each["firstOffset"], each["endOffset"], each["newFirstOffset"]) for each in restore.lines()[1:]
    ] == [
        (3, 5, 0),
        (10, 11, 2),
        (12, 15, 3),
    ]


def test_topics_get_their_configs_and_the_replication_factor_is_an_option(
    restore: Restore, backups: Backups, logs: Path, running: BrokerProcess
) -> None:
    Log(logs / "kept-0").append(batch(0, 1)).write()
    backups.run(logs)

    refused = restore(backups.place, running.bootstrap_servers, "--replication-factor", 2)
    done = restore(backups.place, running.bootstrap_servers)

    assert refused.code == 1
    assert "INVALID_REPLICATION_FACTOR" in refused.err
    assert done.code == 0, done.err
    assert "the configs of topic kept: it keeps all records" in done.err
    resource = ConfigResource(ResourceType.TOPIC, "kept")
    admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
    (described,) = (each.result(30) for each in admin.describe_configs([resource]).values())
    assert described["retention.ms"].value == "-1"


def test_a_config_that_the_cluster_refuses_is_said_by_a_dry_run_too(
    restore: Restore, backups: Backups, logs: Path, running: BrokerProcess
) -> None:
    Log(logs / "configured-0").append(batch(0, 1)).write()
    known = Cluster(
        topics={"configured": Topic(None, {0: Partition(ReplicaAssignment((1,)))})},
        configs={Resource(ConfigType.TOPIC, "configured"): {"no.such.config": "7", "retention.ms": "-1"}},
    )
    backups.run(logs, metadata=json_form.encode(known))
    refused = "config no.such.config=7 of topic configured: the cluster refuses it"

    tried = restore(backups.place, running.bootstrap_servers, "--dry-run")
    done = restore(backups.place, running.bootstrap_servers)

    assert (tried.code, done.code) == (0, 0), tried.err + done.err
    assert f"would not be restored: {refused}" in tried.err
    assert f"not restored: {refused}" in done.err


def test_a_topic_that_the_cluster_would_not_create_is_said_before_any_is_made(
    restore: Restore, backups: Backups, logs: Path, running: BrokerProcess
) -> None:
    """Its name collides with that of another one in the names of metrics."""
    for topic in ("before", "collides"):
        Log(logs / f"{topic}-0").append(batch(0, 1)).write()
    backups.run(logs)
    running.create_topic("collides.new", partitions=1)

    for how in (["--dry-run"], []):
        done = restore(backups.place, running.bootstrap_servers, "--rename", "collides=collides_new", *how)
        assert done.code == 1
        assert "creating topic collides_new: INVALID_TOPIC_EXCEPTION" in done.err
    topics = AdminClient({"bootstrap.servers": running.bootstrap_servers}).list_topics(timeout=30).topics
    assert "before" not in topics


@pytest.mark.parametrize("how", [["--dry-run"], []])
def test_a_damaged_object_ends_a_restore_before_anything_is_made(
    restore: Restore, backups: Backups, logs: Path, running: BrokerProcess, how: list[str]
) -> None:
    """Also if only bytes of a record are changed, which the headers of batches do not show."""
    Log(logs / "spoiled-0").append(batch(0, 5, size=300)).roll().append(batch(5, 5, size=300)).write()
    backups.run(logs)
    spoil(backups, "spoiled")

    done = restore(backups.place, running.bootstrap_servers, *how)

    assert done.code == 1
    assert "the partition's offsets 5 to 9 are in it" in done.err
    topics = AdminClient({"bootstrap.servers": running.bootstrap_servers}).list_topics(timeout=30).topics
    assert "spoiled" not in topics
    assert not restore.mapping.exists()


def test_damaged_objects_are_left_out_if_that_is_asked_for(
    restore: Restore, backups: Backups, logs: Path, running: BrokerProcess
) -> None:
    log = Log(logs / "gapped-0").append(batch(0, 2, size=300)).roll().append(batch(2, 2, size=300))
    log.roll().append(batch(4, 2, size=300)).write()
    backups.run(logs)
    spoil(backups, "gapped", 1)

    tried = restore(backups.place, running.bootstrap_servers, "--skip-damaged", "--dry-run")
    done = restore(backups.place, running.bootstrap_servers, "--skip-damaged")

    for each in (tried, done):
        assert each.code == 1
        assert "gapped-0: the offsets 2 to 3 are lost" in each.err
    keys = [each[1] for each in seen.messages(running.bootstrap_servers, 0, "gapped")]
    assert keys == [b"k0", b"k1", b"k4", b"k5"]


def test_a_right_that_is_missing_is_said_before_anything_is_made(
    restore: Restore, backups: Backups, logs: Path
) -> None:
    config = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "allow.everyone.if.no.acl.found": True,
    }
    for topic in ("allowed", "denied"):
        Log(logs / f"{topic}-0").append(batch(0, 1)).write()
    backups.run(logs)
    with klog.testing.broker(config) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        rules = [
            AclBinding(
                ResourceType.TOPIC, "denied", ResourcePatternType.LITERAL, "User:*", "*", operation, kind
            )
            for operation, kind in (
                (AclOperation.WRITE, AclPermissionType.DENY),
                (AclOperation.ALL, AclPermissionType.ALLOW),
            )
        ]
        for future in admin.create_acls(rules).values():
            future.result(30)

        for how in (["--dry-run"], []):
            done = restore(backups.place, broker.bootstrap_servers, *how)
            assert done.code == 1
            assert "writing to topic denied: TOPIC_AUTHORIZATION_FAILED" in done.err
            assert "it needs Write" in done.err
        assert not {"allowed", "denied"} & admin.list_topics(timeout=30).topics.keys()


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("peer", "kind"), [("kafka3", ZooKeeperBroker), ("kafka4", KRaftBroker)], ids=["3.9", "4.1"]
)
def test_kafka_takes_a_restore(
    restore: Restore,
    backed_up: BackedUp,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    peer: str,
    kind: type[ZooKeeperBroker | KRaftBroker],
) -> None:
    with kind(tmp_path / "kafka", peer=request.getfixturevalue(peer)) as broker:
        done = restore(backed_up.place, broker.bootstrap)
        assert done.code == 0, done.err
        require_same(backed_up, broker.bootstrap)
