"""What comes back equal of one Kafka cluster that several tools have backed up and restored: a table.

A Kafka 3.9.1 broker (KRaft) gets records of every kind. Each tool backs it up and restores it on its own, and
a Kafka 3.9.1 broker opens what was restored, or is the target. `backup_seen` compares what there is on both.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from benchmarks import backup_peers
from benchmarks.backup_load import (
    CONFIG,
    GROUP,
    PARTITIONS,
    TOPICS,
    WAIT_S,
    await_true,
    end_open_transaction,
    fill_after_restart,
    fill_before_restart,
)
from benchmarks.backup_seen import Seen, read, see, stored_batches, verdicts
from benchmarks.measure import BenchmarkError, Contestant, run_once
from tests.peers.broker import KRaftBroker, free_port
from tests.peers.kafka import KAFKA_3, KafkaPeer
from tests.peers.maven import PeerUnavailableError

_KLOG: Final = (sys.executable, "-m", "klog")
# No cleaner changes the logs while they are compared.
_AT_REST: Final[dict[str, str | int]] = {**CONFIG, "log.cleaner.enable": "false"}
NOT_MEASURED: Final = "NOT MEASURED"

Restored = Callable[[], Seen]


def compare(work: Path) -> str:
    """The table, with a line for each property and a column for each tool."""
    shutil.rmtree(work, ignore_errors=True)
    try:
        return _compare(work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _compare(work: Path) -> str:
    with _kafka(work / "source", CONFIG) as broker:
        fill_before_restart(broker)
    failures = {name: f"{NOT_MEASURED}: {why}" for name, why in backup_peers.MISSING.items()}
    restored: dict[str, Restored] = {}
    with _kafka(work / "source", _AT_REST) as broker:
        opened = fill_after_restart(broker)
        logs = Path(str(broker.config["log.dirs"]))
        _klog("backup", "run", "-b", broker.bootstrap, "--to", work / "wire")
        tool = f"kafka-backup (Rust) {backup_peers.KAFKA_BACKUP}"
        try:
            backup_peers.kafka_backup("backup", broker.bootstrap, list(TOPICS), work / "rust")
            restored[tool] = lambda: _of_kafka_backup(work / "rust")
        except (BenchmarkError, PeerUnavailableError) as error:
            failures[tool] = f"{NOT_MEASURED}: {error}"
        tool = f"MirrorMaker {KAFKA_3}"
        try:
            mirrored = _of_mirror_maker(work / "mirror", broker.bootstrap)
            restored[tool] = lambda: mirrored
        except (BenchmarkError, PeerUnavailableError) as error:
            failures[tool] = f"{NOT_MEASURED}: {error}"
        del opened
    _klog("backup", "run", logs, "--metadata", logs, "--to", work / "directories")
    written = stored_batches(logs)  # without the marker that ends the open transaction now
    with _kafka(work / "source", _AT_REST) as broker:
        end_open_transaction(broker)
        source = see(broker, written)
    ours: dict[str, Restored] = {
        "klog, directories": lambda: _of_directories(work / "directories", work / "from-directories"),
        "klog, wire to directories": lambda: _of_directories(work / "wire", work / "from-wire"),
        "klog, into a cluster": lambda: _of_cluster(work / "directories", work / "into-cluster"),
    }
    columns = {}
    for name, get in {**ours, **restored}.items():
        columns[name] = verdicts(source, get())
    return _table(columns, failures)


def _of_directories(repository: Path, work: Path) -> Seen:
    """What Kafka has that was started on a restored directory."""
    _klog("restore", repository, "--to", work / "logs", "--kraft", "--metadata-version", "3.9")
    with _kafka(work, _AT_REST) as broker:
        return see(broker)


def _of_cluster(repository: Path, work: Path) -> Seen:
    with _kafka(work, _AT_REST) as broker:
        _klog("restore", repository, "-b", broker.bootstrap, "--mapping", work / "offsets.jsonl")
    with _kafka(work, _AT_REST) as broker:  # what it has written is in its files now
        return see(broker)


def _of_kafka_backup(place: Path) -> Seen:
    with _kafka(place.parent / "of-rust", _AT_REST) as broker:
        backup_peers.kafka_backup("restore", broker.bootstrap, list(TOPICS), place)
    with _kafka(place.parent / "of-rust", _AT_REST) as broker:
        return see(broker)


def _of_mirror_maker(work: Path, source: str) -> Seen:
    """What there is when it has copied all that it can, but for what is behind an open transaction."""
    topics = list(TOPICS)
    with (
        _kafka(work / "target", _AT_REST) as broker,
        backup_peers.mirror_maker(work, source, broker.bootstrap, topics, GROUP),
    ):
        await_true(lambda: _is_mirrored(source, broker.bootstrap), "MirrorMaker has not copied all")
        with suppress(BenchmarkError):  # it does not set offsets that it cannot translate
            await_true(lambda: _has_groups(broker.bootstrap), "not all offsets")
    with _kafka(work / "target", _AT_REST) as broker:
        return see(broker)


def _is_mirrored(source: str, target: str) -> bool:
    """Whether the target has the records of all topics."""
    there = AdminClient({"bootstrap.servers": target}).list_topics(timeout=WAIT_S).topics
    return there.keys() >= TOPICS.keys() and all(
        len(read(source, topic, number, "read_committed"))
        == len(read(target, topic, number, "read_committed"))
        for topic in TOPICS
        for number in range(PARTITIONS)
    )


def _has_groups(target: str) -> bool:
    consumer = Consumer({"bootstrap.servers": target, "group.id": GROUP})
    places = [TopicPartition(name, 0) for name in ("plain", "transactions", "trimmed")]
    committed = consumer.committed(places, WAIT_S)
    consumer.close()
    return all(each.offset >= 0 for each in committed)


@contextmanager
def _kafka(work: Path, config: dict[str, str | int]) -> Iterator[KRaftBroker]:
    """Kafka 3.9.1, broker and controller in one. On a restored directory it is the node of that directory."""
    node = _node_id(work / "logs" / "meta.properties")
    broker_port, controller_port = free_port(), free_port()
    listeners = f"PLAINTEXT://127.0.0.1:{broker_port},CONTROLLER://127.0.0.1:{controller_port}"
    settings: dict[str, str | int] = {
        **config,
        "node.id": node,
        "listeners": listeners,
        "controller.quorum.voters": f"{node}@127.0.0.1:{controller_port}",
    }
    with KRaftBroker(work, settings, KafkaPeer(KAFKA_3)) as broker:
        broker.port = broker_port
        yield broker


def _node_id(path: Path) -> int:
    if not path.exists():
        return 1
    lines = (line.partition("=") for line in path.read_text().splitlines())
    return next(int(value) for name, _, value in lines if name == "node.id")


def _klog(*words: object) -> None:
    run_once(Contestant("klog", [*_KLOG, *map(str, words), "--quiet"]))


def _table(columns: dict[str, dict[str, str]], failures: dict[str, str]) -> str:
    names = list(columns)
    lines = ["", "| comes back equal | " + " | ".join(names) + " |", "| --- |" + " --- |" * len(names)]
    for what in columns[names[0]]:
        cells = " | ".join(columns[name][what] for name in names)
        lines.append(f"| {what} | {cells} |")
    lines += [f"{name}: {why}" for name, why in failures.items()]
    return "\n".join(lines)
