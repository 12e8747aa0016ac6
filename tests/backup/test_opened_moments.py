"""Real Kafka opens what was restored to random moments of a load under which broker and backup were killed.

Kafka 3.9, Kafka 4.1 and klog are backed up continuously. The histories of the clients say what must be there.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from klog.backup.model import RepositoryInfo
from klog.backup.repository import Repository, open_or_create
from klog.backup.restoring.plan import RestorePlan
from klog.backup.restoring.request import RestoreRequest
from klog.backup.restoring.state_records import committed_offsets
from klog.backup.store import open_store
from klog.formats.names import CONSUMER_OFFSETS
from tests.backup.busy_brokers import BROKERS, BusyBroker
from tests.backup.busy_clients import GROUP, KEYED, SHORTENED, Commits, KeyedWriter, Member
from tests.backup.opening import (
    Read,
    give_new_ids,
    leave_out_state,
    opened_by_kafka_3,
    opened_by_kafka_4,
    read_committed,
)
from tests.backup.recorded import (
    require_history,
    require_no_open_transactions,
    require_same_bytes,
    restore,
    rows_of,
    without_input,
)
from tests.backup.test_restored_brokers import committed
from tests.backup.transactional_load import INPUT, PARTITIONS, TOPIC, Client, now_ms
from tests.peers import KafkaPeer
from tests.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

MOMENTS: Final = int(os.environ.get("KLOG_TEST_OPENED_MOMENTS", "2"))
KILLS: Final = max(2, MOMENTS // 5)
SEED: Final = int(os.environ.get("KLOG_TEST_SEED", "11"))
OPENERS: Final = {"kafka-3.9": opened_by_kafka_3, "kafka-4.1": opened_by_kafka_4}
CASES: Final = (
    [("kafka-3.9", "kafka-3.9"), ("kafka-4.1", "kafka-4.1")]
    if MOMENTS <= 3
    else [
        ("kafka-3.9", "kafka-3.9"),
        ("kafka-3.9", "kafka-4.1"),
        ("kafka-4.1", "kafka-4.1"),
        ("klog", "kafka-3.9"),
        ("klog", "kafka-4.1"),
    ]
)


@dataclass(frozen=True)
class Load:
    """What clients did, and the backups that were made meanwhile."""

    clients: Mapping[str, Client]
    writer: KeyedWriter
    commits: Commits
    repository: Repository
    directory: Path
    begin_ms: int
    end_ms: int


class ContinuousBackup:
    """`klog backup run --every`, in a process."""

    def __init__(self, directory: Path, place: Path) -> None:
        words = ["backup", "run", str(directory), "--to", str(place), "--every", "300ms", "--quiet"]
        self._command = [sys.executable, "-m", "klog", *words]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def load(kind: str, work: Path) -> Iterator[Load]:
    chance = random.Random(SEED)
    place = work / "repository"
    repository = open_or_create(open_store(str(place)), RepositoryInfo("test"))
    with ExitStack() as stack:
        broker = stack.enter_context(BROKERS[kind](work / "source"))
        make_topics(broker)
        clients = {
            name: Client(broker.bootstrap, name, seed, timeout_s=120)
            for seed, name in enumerate(("alice", "bob"))
        }
        writer, commits = KeyedWriter(broker.bootstrap, SEED), Commits()
        members = [Member(broker.bootstrap, seed, commits) for seed in range(2)]
        threads = [*clients.values(), writer, *members]
        for thread in threads:
            thread.start()
        eventually(lambda: all(any(each.is_commit for each in c.attempts[:-1]) for c in clients.values()))
        backup = ContinuousBackup(broker.directory, place)
        stack.callback(backup.kill)
        eventually(repository.ids)
        begin_ms = now_ms()
        for number in range(KILLS):
            time.sleep(chance.uniform(1, 3))
            (broker, backup)[number % 2].kill()
            (broker, backup)[number % 2].start()
        time.sleep(chance.uniform(1, 2))
        end_ms = now_ms()
        for thread in threads:
            thread.stop()
        backup.kill()
        broker.stop()
        command = [
            sys.executable,
            "-m",
            "klog",
            "backup",
            "run",
            str(broker.directory),
            "--to",
            str(place),
            "-q",
        ]
        subprocess.run(command, check=True)
        yield Load(clients, writer, commits, repository, broker.directory, begin_ms, end_ms)


def make_topics(broker: BusyBroker) -> None:
    topics = [NewTopic(TOPIC, PARTITIONS, 1), NewTopic(INPUT, 1, 1)]
    topics += [NewTopic(name, 1, 1, config=config) for name, config in KEYED.items()]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for made in admin.create_topics(topics).values():
        made.result(60)


@dataclass(frozen=True)
class Moment:
    """A moment that was restored. The names of its topics end in `suffix`."""

    at_ms: int
    suffix: str
    path: Path
    plan: RestorePlan
    offsets: Mapping[str, int]
    """Committed in transactions, by the group's name."""

    @property
    def places(self) -> list[tuple[str, int]]:
        return [
            (each.target.topic, each.target.partition)
            for each in self.plan.partitions
            if not each.target.topic.startswith("__")
        ]


def restored(found: Load, at_ms: int, suffix: str, path: Path) -> Moment:
    """Restore a moment, and check what only the files show: bytes, groups and the state of transactions."""
    names = {topic: topic + suffix for topic in (TOPIC, *KEYED)} if suffix else {}
    plan = restore(found.repository, RestoreRequest(at_ms, wants=without_input, names=names), path)
    for each in plan.partitions:
        if each.view.partition.topic == TOPIC:
            original = found.directory / str(each.view.partition)
            require_same_bytes(original, path / str(each.target), each.cut.end_offset)
    require_no_open_transactions(path)
    groups: dict[str, dict[tuple[str, int], int]] = {}
    for directory in path.glob(f"{CONSUMER_OFFSETS}-*"):
        for group, offsets in committed_offsets(directory.name, rows_of(directory)).items():
            groups[group] = {place: each.offset for place, each in offsets.items()}
    place = SHORTENED + suffix, 0
    if place in groups.get(GROUP, {}) or found.commits.has_one_before(at_ms):
        assert groups[GROUP][place] in found.commits.possible(at_ms)
    offsets = {name: groups[name][INPUT, 0] for name in found.clients if name in groups}
    return Moment(at_ms, suffix, path, plan, offsets)


def require_as_it_was(found: Load, moment: Moment, read: Read) -> None:
    """What consumers get is what the clients' histories say of the moment."""
    seen = {
        number: [value for _, value in read[TOPIC + moment.suffix, number].values()]
        for number in range(PARTITIONS)
    }
    assert all(len(values) == len(set(values)) for values in seen.values())
    assert require_history(found.clients, seen, moment.offsets, moment.at_ms) > 0
    for topic in KEYED:
        require_keyed(found, moment, topic, read[topic + moment.suffix, 0])


def require_keyed(
    found: Load, moment: Moment, topic: str, records: Mapping[int, tuple[str | None, str]]
) -> None:
    sent = found.writer.sent[topic]
    for offset, record in records.items():
        if offset in sent:
            assert record == (sent[offset].key, sent[offset].value)
            assert sent[offset].sent_ms <= moment.at_ms
    if topic == SHORTENED:  # what cleaning leaves out between two runs is in no backup
        due = {offset for offset, each in sent.items() if each.acknowledged_ms < moment.at_ms}
        assert due - records.keys() <= set(range(min(records, default=0)))
        assert list(records) == list(range(min(records, default=0), max(records, default=-1) + 1))


@pytest.fixture(scope="module")
def loads() -> dict[str, Load]:
    """By the kind of the broker: each is filled once for all that open it."""
    return {}


@pytest.mark.timeout(300 if MOMENTS <= 3 else 3600)
@pytest.mark.parametrize(("source", "opener"), CASES)
def test_kafka_opens_random_moments_without_recovery_and_all_is_as_it_was(
    source: str,
    opener: str,
    loads: dict[str, Load],
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    kafka3: KafkaPeer,
    kafka4: KafkaPeer,
) -> None:
    if source not in loads:
        with load(source, tmp_path_factory.mktemp("load")) as filled:
            kept = Path(shutil.copytree(filled.directory, tmp_path_factory.mktemp("kept") / "logs"))
            loads[source] = Load(**{**vars(filled), "directory": kept})
    found = loads[source]
    chance = random.Random(SEED)
    moments = []
    for number in range(MOMENTS):
        suffix = f"-at-{number}" if number else ""
        at_ms = chance.randint(found.begin_ms, found.end_ms)
        moments.append(restored(found, at_ms, suffix, tmp_path / f"m{number}"))
        if suffix:
            leave_out_state(moments[-1].path)
            give_new_ids(moments[-1].path)

    with OPENERS[opener]([each.path for each in moments], tmp_path / "kafka") as address:
        places = [place for each in moments for place in each.places]
        read = read_committed(address, places)
        for moment in moments:
            require_as_it_was(found, moment, read)
        for name in found.clients:
            assert committed(address, name) == moments[0].offsets.get(name, -1001)
