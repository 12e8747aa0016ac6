"""Metadata is lost or older than the data: directories without an owner are named and never deleted."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from klog.formats.errors import StorageError
from klog.formats.names import FileKind, TopicPartition
from klog.metadata.embedded import FILE_NAME
from klog.metadata.topics import request_deletion, topic_names
from klog.metadata.values import ReplicaAssignment, TopicAssignment
from klog.server.logs.unowned_logs import StoredReplica, Unowned, unowned_lines, unowned_replicas
from klog.server.startup.broker import Broker
from tests.server.test_broker import config, make_topic, write
from tests.waiting import eventually

WHERE = TopicPartition("t", 0)

# A broker makes topic u, copies its metadata, makes topic t, writes a record into t-0, and dies by kill -9.
KILLED = """
import os, shutil, signal, sys
from pathlib import Path
from tests.server.test_broker import config, make_topic, write
from tests.server.test_lost_metadata import WHERE
from klog.server.startup.broker import Broker
root = Path(sys.argv[1])
broker = Broker(config(root / "a"))
make_topic(broker, "u")
older = root / "older"
older.mkdir()
for path in (root / "a").glob("klog-metadata.sqlite*"):
    shutil.copy(path, older)
make_topic(broker, "t", 2)
write(broker, WHERE, [b"k"], b"v")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """The root of a broker that was killed; its log directory is `a`."""
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False, timeout=120)
    assert (tmp_path / "a" / "t-0" / f"{0:020d}.log").stat().st_size > 0
    return tmp_path


def cut_wal(root: Path) -> None:
    wal = root / "a" / f"{FILE_NAME}-wal"
    # From the middle of topic t on: what was committed before remains.
    os.truncate(wal, (root / "older" / wal.name).stat().st_size + 100)


def restore_older(root: Path) -> None:
    for path in (root / "a").glob(f"{FILE_NAME}*"):
        path.unlink()
    for path in (root / "older").iterdir():
        shutil.copy(path, root / "a")


def delete_all(root: Path) -> None:
    for path in (root / "a").glob(f"{FILE_NAME}*"):
        path.unlink()
    (root / "a" / "meta.properties").unlink()


LOSSES = [cut_wal, restore_older, delete_all]


@pytest.fixture(params=LOSSES, ids=lambda lose: lose.__name__)
def lost(request: pytest.FixtureRequest, killed: Path) -> Path:
    lose: Callable[[Path], None] = request.param
    lose(killed)
    return killed


@pytest.fixture
def running() -> Iterator[list[Broker]]:
    brokers: list[Broker] = []
    yield brokers
    for broker in brokers:
        broker.stop()


def start(root: Path, running: list[Broker], **options: str) -> Broker:
    running.append(Broker(config(root / "a", **options)))
    return running[-1]


def directories(root: Path) -> list[str]:
    return sorted(path.name.split(".")[0] for path in (root / "a").iterdir() if path.is_dir())


def test_every_directory_without_an_owner_is_named_and_what_to_do(
    lost: Path, running: list[Broker], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        broker = start(lost, running)
    assert "t" not in topic_names(broker.store)
    (line,) = [text for text in caplog.messages if "no owner for t-0, t-1 (topic id " in text]
    assert line.startswith(str(lost / "a"))
    assert line.endswith("the metadata has no topic of this name")
    assert any("have no owner" in text and "klog adopt" in text for text in caplog.messages)


def test_a_topic_of_the_same_name_works_at_once_beside_the_stray(
    lost: Path, running: list[Broker], caplog: pytest.LogCaptureFixture
) -> None:
    old = (lost / "a" / "t-0" / f"{0:020d}.log").read_bytes()
    broker = start(lost, running)
    with caplog.at_level(logging.WARNING):
        make_topic(broker, "t")
    partition = broker.replicas.partitions[WHERE]
    assert partition.state.is_leader
    assert partition.log.log_end_offset == 0
    write(broker, WHERE, [b"new"], b"v")
    eventually(lambda: partition.log.high_watermark == 1)
    (stray,) = (lost / "a").glob("t-0.*-stray")
    assert (stray / f"{0:020d}.log").read_bytes() == old
    assert any(str(stray) in text for text in caplog.messages)
    request_deletion(broker.store, "t")
    eventually(lambda: "t" not in topic_names(broker.store))
    eventually(lambda: not (lost / "a" / "t-0").exists())
    broker.stop()
    assert (stray / f"{0:020d}.log").read_bytes() == old
    assert (lost / "a" / "t-1").is_dir(), "it never belonged to the topic that was deleted"


def test_nothing_is_deleted_of_a_log_without_an_owner(lost: Path, running: list[Broker]) -> None:
    # Its records are from 2023 and below the high watermark, so any retention would delete them.
    (lost / "a" / FileKind.REPLICATION_CHECKPOINT).write_text("0\n1\nt 0 1\n")
    broker = start(
        lost,
        running,
        log_retention_ms="1",
        log_initial_task_delay_ms="0",
        log_retention_check_interval_ms="1",
    )
    make_topic(broker, "other")
    write(broker, TopicPartition("other", 0), [b"k"], b"v")
    eventually(lambda: broker.replicas.partitions["other", 0].log.log_start_offset == 1)
    log = broker.logs.get(WHERE)
    assert log is not None
    assert log.high_watermark == 1
    assert (log.log_start_offset, log.log_end_offset) == (0, 1)


def test_only_the_metadata_file_is_gone_and_the_broker_does_not_start(killed: Path) -> None:
    for path in (killed / "a").glob(f"{FILE_NAME}*"):
        path.unlink()
    with pytest.raises(StorageError, match="the directory belongs to cluster"):
        Broker(config(killed / "a"))
    assert directories(killed) == ["t-0", "t-1", "u-0"]


def test_metadata_older_than_the_records_is_named(
    killed: Path, running: list[Broker], caplog: pytest.LogCaptureFixture
) -> None:
    (killed / "a" / "t-0" / FileKind.LEADER_EPOCH_CHECKPOINT).write_text("0\n1\n9 0\n")
    with caplog.at_level(logging.WARNING):
        start(killed, running)
    (line,) = [text for text in caplog.messages if "leader epoch 9" in text]
    assert line.startswith(str(killed / "a" / "t-0"))


def test_a_restart_with_all_metadata_names_nothing(
    killed: Path, running: list[Broker], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        broker = start(killed, running)
    eventually(lambda: len(broker.replicas.partitions) == 3)
    assert not [text for text in caplog.messages if "owner" in text or "epoch" in text]
    assert all(log.is_confirmed for log in broker.logs.logs())


REPLICA = StoredReplica("/d/t-0", WHERE, "old", 3)


@pytest.mark.parametrize(
    ("topic", "why"),
    [
        (None, "the metadata has no topic of this name"),
        (TopicAssignment("t", "new", {0: ReplicaAssignment((7,))}), "another topic id, new"),
        (TopicAssignment("t", "old", {}), "the topic has 0 partitions"),
        (TopicAssignment("t", "old", {0: ReplicaAssignment((8, 9))}), "on other brokers: 8, 9"),
        (TopicAssignment("t", "old", {0: ReplicaAssignment((8, 7))}), None),
        (TopicAssignment("t", None, {0: ReplicaAssignment((7,))}), None),
    ],
)
def test_a_directory_has_an_owner_if_the_metadata_has_its_replica_with_its_id(
    topic: TopicAssignment | None, why: str | None
) -> None:
    topics = {} if topic is None else {"t": topic}
    found = [each.why for each in unowned_replicas([REPLICA], topics, frozenset(), 7)]
    assert len(found) == (why is not None)
    assert all(why is not None and why in each for each in found)


def test_nothing_is_known_of_a_topic_whose_znode_is_invalid() -> None:
    assert unowned_replicas([REPLICA], {}, frozenset({"t"}), 7) == []


def test_each_directory_is_named_in_one_line_a_topic() -> None:
    other = StoredReplica("/d/t-1", TopicPartition("t", 1), "old", 0)
    assert unowned_lines([Unowned(REPLICA, "no"), Unowned(other, "no")]) == [
        "/d: no owner for t-0, t-1 (topic id old): no"
    ]
