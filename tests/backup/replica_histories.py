"""Random histories of replicas on several brokers, with runs of a backup on one broker, on all at once or on
each by itself, and what the newest backup must hold after each run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

from klog.backup.contents import Contents
from klog.backup.joining import NEVER, JoinRules
from klog.backup.model import PartitionState
from klog.backup.moment.view import CHECKPOINT_AGE_MS
from klog.backup.prune import Rules, plan_prune, prune
from klog.backup.store import Store
from klog.backup.verify import VerifyOptions, verify
from klog.export.outputs import FileStatus, LocalOutput, PendingFile
from klog.formats.names import TopicPartition, encode_uuid
from klog.kernel import kernel
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.kernel.columns import BatchTable, RecordTable
from klog.kernel.markers import Marker, build_marker
from klog.storage.cleaner.decoding import decode_one
from klog.storage.log.append_values import AppendError
from tests.backup.histories import COMPACT, SMALL
from tests.backup.replicated_logs import Cluster, Entry, Topic, end_of, fork_of, path_to
from tests.backup.repositories import Backups, restored
from tests.storage.log.building import Clock

ORDERS = TopicPartition("orders", 0)
TABLE = TopicPartition("table", 0)
_JOINED = JoinRules(fewest=3, most=5, limits_bytes=(1 << 20,))
_KEYS = 4
_BEGIN_MS = 2_000_000_000_000  # no file seems to have been written just now


class KilledError(BaseException):
    """The run ends here."""


class FragileOutput(LocalOutput):
    """A store whose user is killed after some writes."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.writes_left: int | None = None

    def commit_all(self, files: Sequence[tuple[PendingFile, str]]) -> None:
        for each in files:
            self._write()
            super().commit_all([each])

    def create(self) -> PendingFile:
        pending = super().create()
        commit = pending.commit

        def commit_or_die(name: str) -> None:
            self._write()
            commit(name)

        pending.commit = commit_or_die  # type: ignore[method-assign]
        return pending

    def _write(self) -> None:
        if self.writes_left is not None:
            self.writes_left -= 1
            if self.writes_left < 0:
                raise KilledError

    def files(self, below: str = "") -> dict[str, FileStatus]:
        return super().files(below)


@dataclass(frozen=True)
class Batch:
    """A batch in a log that was restored, and the one that a leader has appended there."""

    base: int
    end: int
    data: bytes
    entry: Entry
    values: dict[int, tuple[bytes | None, bytes | None]] = field(default_factory=dict)


@dataclass(frozen=True)
class Held:
    """What a backup has of a partition."""

    topic: Topic
    batches: tuple[Batch, ...]
    log_start: int
    end: int
    epoch: int

    @property
    def tip(self) -> Entry | None:
        return self.batches[-1].entry if self.batches else None

    @property
    def path(self) -> list[Entry]:
        """The log that it is a part of, from its beginning."""
        return [*path_to(self.tip)][::-1]


Run = dict[TopicPartition, Held]


def batches_of(topic: Topic, data: bytes) -> Iterator[Batch]:
    """The batches of a log, each with the one that a leader has appended. AssertionError if none has."""
    table, records = BatchTable(), RecordTable()
    kernel.scan(data, 0, True, table)
    assert not kernel.verify(data, table)
    assert sum(table.size) == len(data), "no whole batches"
    for row in range(len(table)):
        start = table.position[row]
        base, end = table.base_offset[row], table.last_offset[row] + 1
        entry = topic.entries.get((table.leader_epoch[row], end))
        assert entry is not None, f"no leader has written the batch at {base} in {table.leader_epoch[row]}"
        values: dict[int, tuple[bytes | None, bytes | None]] = {}
        if table.count[row]:
            payload = memoryview(decode_one(data, table, row, records))
            for number in range(len(records)):
                values[records.offset[number]] = (
                    _part(payload, records.key_start[number], records.key_size[number]),
                    _part(payload, records.value_start[number], records.value_size[number]),
                )
        yield Batch(base, end, data[start : start + table.size[row]], entry, values)


def _part(payload: memoryview, start: int, size: int) -> bytes | None:
    return None if size < 0 else bytes(payload[start : start + size])


class ReplicaHistory:
    """Plays `steps` random steps from a seed."""

    def __init__(self, root: Path, seed: int, steps: int) -> None:
        self.random = random.Random(seed)
        self.root = root
        self.output = FragileOutput(str(root / "repository"))
        compression = self.random.choice(("none", "zstd", "gzip"))
        self.backups = Backups(root / "repository", compression, Store(self.output), now_ms=_BEGIN_MS)
        self.clock = Clock(self.backups.now_ms)
        self.begin_ms = self.clock.now_ms
        count = self.random.randint(2, 4)
        sizes = [self.random.choice((600, 1100, 2500, 6000)) for _ in range(count)]
        self.cluster = Cluster(root, self.clock, sizes)
        self._number = self.killed = self.healed = 0
        self.runs: dict[str, Run] = {}
        self.times: dict[str, int] = {}
        self.topics: dict[str, Topic] = {}
        self.log: list[str] = []
        self.spoiled: set[TopicPartition] = set()
        for partition in (ORDERS, TABLE):
            self._create(partition)
        choices: dict[Callable[[], object], int] = {
            self._plain: 8,
            self._idempotent: 5,
            self._transact: 8,
            self._fetch: 24,
            self._fetch_all: 4,
            self._shrink: 3,
            self._elect: 4,
            self._stop: 3,
            self._start: 4,
            self._elect_uncleanly: 2,
            self._checkpoint: 10,
            self._roll: 3,
            self._compact: 4,
            self._retain: 2,
            self._delete_records: 1,
            self._move: 1,
            self._reassign: 1,
            self._wipe: 1,
            self._create_again: 0.4,
            self.run_on_one: 7,
            self.run_on_all: 2,
            self.run_on_each: 2,
            self._run_in_full: 1,
            self._prune: 1,
        }
        for step in self.random.choices(list(choices), list(choices.values()), k=steps):
            self.log.append(getattr(step, "__name__", "?"))
            step()
            self.clock.now_ms += self.random.choice((1, 20, 700, 4000))
        self.run_on_all()

    # -- the cluster -----------------------------------------------------------------------------------------

    def _create(self, partition: TopicPartition) -> None:
        brokers = set(self.cluster.brokers)
        chosen = set(self.random.sample(sorted(brokers), self.random.randint(2, len(brokers))))
        if not self.cluster.running(chosen):
            chosen = brokers
        config = SMALL if partition == ORDERS else COMPACT
        self.cluster.create(partition, encode_uuid(self.random.randbytes(16)), config, chosen)
        topic = self.cluster.topics[partition]
        self.topics[topic.topic_id] = topic

    def _topic(self) -> Topic:
        return self.cluster.topics[self.random.choice((ORDERS, TABLE))]

    def _led(self) -> Topic | None:
        topic = self._topic()
        return None if topic.leader is None else topic

    def _records(self) -> list[RecordData]:
        found = []
        for number in range(self.random.randint(1, 3)):
            self._number += 1
            value = (
                None if self.random.random() < 0.2 else b"%d" % self._number * self.random.choice((1, 1, 9))
            )
            found.append(
                RecordData(number, self.clock.now_ms, b"key-%d" % self.random.randrange(_KEYS), value)
            )
        return found

    def _write(self, topic: Topic, fields: BatchFields, **state: Any) -> None:
        records = self._records()
        if fields.producer_id >= 0:
            state["sequences"] = {fields.producer_id: fields.base_sequence + len(records)}
        values = [(each.key, each.value) for each in records]
        with suppress(AppendError):  # a new leader may not have what the producer has sent
            self.cluster.append(topic, build_batch(records, fields), values, **state)  # type: ignore[arg-type]

    def _next(self, topic: Topic, producer_id: int) -> int:
        assert topic.leader is not None
        tip = self.cluster.brokers[topic.leader].replicas[topic.partition].tip
        return 0 if tip is None else tip.sequences.get(producer_id, 0)

    def _plain(self) -> None:
        if topic := self._led():
            self._write(topic, BatchFields(codec=self.random.choice((0, 0, 1, 4))))

    def _idempotent(self) -> None:
        if topic := self._led():
            fields = BatchFields(producer_id=7, producer_epoch=0, base_sequence=self._next(topic, 7))
            self._write(topic, fields)

    def _transact(self) -> None:
        topic = self._led()
        if topic is None:
            return
        producer = self.random.choice((101, 102) if topic.partition == ORDERS else (201, 202))
        tip = self.cluster.brokers[topic.leader or 0].replicas[topic.partition].tip
        is_open = tip is not None and producer in tip.open_ones
        if is_open and self.random.random() < 0.5:
            marker = Marker(self.random.random() < 0.4, 0, self.clock.now_ms)
            self.cluster.append(topic, bytearray(build_marker(producer, 0, marker)), [], closed=producer)
            return
        fields = BatchFields(
            producer_id=producer,
            producer_epoch=0,
            base_sequence=self._next(topic, producer),
            is_transactional=True,
        )
        self._write(topic, fields, opened=producer)

    def _followers(self, topic: Topic) -> list[int]:
        return [] if topic.leader is None else self.cluster.running(topic.replicas - {topic.leader})

    def _fetch(self) -> None:
        topic = self._topic()
        if found := self._followers(topic):
            self.cluster.fetch(topic, self.random.choice(found))

    def _fetch_all(self) -> None:
        for topic in self.cluster.topics.values():
            for each in self._followers(topic):
                self.cluster.catch_up(topic, each)

    def _shrink(self) -> None:
        topic = self._topic()
        if found := [each for each in topic.in_sync if each != topic.leader and topic.leader is not None]:
            self.cluster.shrink(topic, self.random.choice(found))

    def _elect(self) -> None:
        topic = self._topic()
        if found := self.cluster.running(topic.in_sync):
            self.cluster.lead(topic, self.random.choice(found), self.random.randint(1, 2))

    def _elect_uncleanly(self) -> None:
        topic = self._topic()
        if found := self.cluster.running(topic.replicas - topic.in_sync):
            self.cluster.lead(topic, self.random.choice(found))

    def _stop(self) -> None:
        running = self.cluster.running(set(self.cluster.brokers))
        if len(running) > 1:
            self.cluster.stop(self.random.choice(running))

    def _stopped(self) -> list[int]:
        return [each for each, broker in self.cluster.brokers.items() if not broker.is_running]

    def _start(self) -> None:
        if found := self._stopped():
            self.cluster.start(self.random.choice(found))

    def _wipe(self) -> None:
        found = [each for each in self._stopped() if all(
            topic.in_sync != {each} for topic in self.cluster.topics.values())]  # fmt: skip
        if found:
            number = self.random.choice(found)
            self.cluster.wipe(number)
            self.cluster.start(number)

    def _checkpoint(self) -> None:
        if found := self.cluster.running(set(self.cluster.brokers)):
            self.cluster.brokers[self.random.choice(found)].checkpoint()

    def _replica(self) -> tuple[Topic, int]:
        topic = self._topic()
        return topic, self.random.choice(sorted(topic.replicas))

    def _roll(self) -> None:
        topic, number = self._replica()
        if self.cluster.brokers[number].is_running:
            self.cluster.roll(topic, number)

    def _compact(self) -> None:
        topic = self.cluster.topics[TABLE]
        if found := self.cluster.running(topic.replicas):
            self.cluster.compact(topic, self.random.choice(found))

    def _retain(self) -> None:
        topic = self.cluster.topics[ORDERS]
        if found := self.cluster.running(topic.replicas):
            self.cluster.retain(topic, self.random.choice(found), 3000)

    def _delete_records(self) -> None:
        if topic := self._led():
            log = self.cluster.log(topic, topic.leader or 0)
            self.cluster.delete_records(topic, self.random.randint(log.log_start_offset, log.high_watermark))

    def _move(self) -> None:
        topic, number = self._replica()
        self.cluster.move(topic, number)

    def _reassign(self) -> None:
        """A replica moves to another broker."""
        topic = self._topic()
        others = self.cluster.running(set(self.cluster.brokers) - topic.replicas)
        if others and topic.leader is not None:
            number = self.random.choice(others)
            self.cluster.add_replica(topic, number, 0)
            self.cluster.catch_up(topic, number)
            old = self.random.choice(sorted(topic.replicas - {number}))
            if old == topic.leader:
                self.cluster.lead(topic, number)
            self.cluster.remove_replica(topic, old)

    def _create_again(self) -> None:
        partition = self.random.choice((ORDERS, TABLE))
        self.cluster.delete(partition)
        self._create(partition)

    # -- backups ---------------------------------------------------------------------------------------------

    def run_on_one(self) -> None:
        self._run([self.random.choice(sorted(self.cluster.brokers))])

    def run_on_all(self) -> None:
        self._run(sorted(self.cluster.brokers))

    def run_on_each(self) -> None:
        numbers = sorted(self.cluster.brokers)
        for number in self.random.sample(numbers, len(numbers)):
            self._run([number])

    def _run_in_full(self) -> None:
        """Objects were damaged meanwhile."""
        repository = self.backups.repository
        contents, names = Contents(repository), set()
        for identifier in repository.ids():
            names |= {*contents.objects_of(repository.manifest(identifier))} & self.backups.objects()
        if not names:
            return
        for name in self.random.sample(sorted(names), min(len(names), self.random.randint(1, 2))):
            path = self.root / "repository" / name
            if self.random.random() < 0.5:
                path.unlink()
            else:
                data = bytearray(path.read_bytes())
                data[len(data) // 3] ^= 1
                path.write_bytes(data)
            self.spoiled.add(TopicPartition(name.split("/")[1].rpartition("-")[0], 0))
        findings = verify(repository, repository.ids(), VerifyOptions()).findings
        self._run(sorted(self.cluster.brokers), damaged=findings)
        lost = {each.backup for each in verify(repository, repository.ids(), VerifyOptions()).findings}
        if lost:  # what no replica has any more is lost to older backups
            newest = repository.ids()[-1]
            plan = plan_prune(repository, Rules(last=1), self.clock.now_ms, 0)
            prune(repository, plan, lambda _name: None)
            self.runs = {newest: self.runs[newest]}
        self.spoiled.clear()

    def _run(self, numbers: list[int], **changes: Any) -> None:
        self.clock.now_ms += CHECKPOINT_AGE_MS + 1
        self.backups.now_ms = self.clock.now_ms - 1000
        running = {
            str(disk): each.is_running for each in self.cluster.brokers.values() for disk in each.disks
        }
        is_killed = self.random.random() < 0.15 and "damaged" not in changes
        self.output.writes_left = self.random.randint(0, 6) if is_killed else None
        changes.setdefault("joining", self.random.choice((_JOINED, NEVER)))
        with patch("klog.backup.scanning.holder_of", lambda path: "a broker" if running[path] else None):
            try:
                result = self.backups.run(
                    *(self.cluster.brokers[each].path for each in numbers),
                    jobs=self.random.choice((1, 2)),
                    **changes,
                )
            except KilledError:
                self.killed += 1
                return
            finally:
                self.output.writes_left = None
        self.log.append(f"  {result.manifest.id} on {numbers}: {[p.what for p in result.manifest.problems]}")
        before = self.runs[max(self.runs)] if self.runs else {}
        states = self.backups.states()
        found = {each: self.held(self.topics[state.topic_id or ""], state) for each, state in states.items()}
        self.runs[result.manifest.id] = found
        self.times[result.manifest.id] = self.clock.now_ms
        for partition, topic in self.cluster.topics.items():
            Check(self, topic, numbers, before.get(partition), found.get(partition)).check(result.is_clean)

    def held(self, topic: Topic, state: PartitionState) -> Held:
        """What a state holds: whole batches of leaders, below its end."""
        files = restored(self.backups.repository, state)
        batches = [each for data in files.values() for each in batches_of(topic, data)]
        below = [each for each in batches if state.log_start_offset < each.end <= state.end_offset]
        return Held(topic, tuple(below), state.log_start_offset, state.end_offset,
                    max([each.epoch for each in state.epochs], default=-1))  # fmt: skip

    def _prune(self) -> None:
        repository = self.backups.repository
        plan = plan_prune(repository, Rules(last=self.random.randint(1, 4)), self.clock.now_ms, 0)
        prune(repository, plan, lambda _name: None)
        for identifier in plan.removed:
            del self.runs[identifier]


def require_one_log(held: Held, *, is_compacted: bool, deleted: range = range(0)) -> None:
    """The batches are those of one log that a leader had, in their order, and none is missing but those that
    begin in a range."""
    batches = held.batches
    assert all(one.end <= other.base for one, other in pairwise(batches)), "order"
    epochs = [each.entry.epoch for each in batches]
    assert epochs == sorted(epochs), f"epochs {epochs}"
    path = set(held.path)
    strays = [(each.base, each.entry.epoch) for each in batches if each.entry not in path]
    assert not strays, f"records of another log than that of the last batch: {strays}"
    for each in batches:
        if not is_compacted:
            assert each.data == each.entry.data
        assert each.values.items() <= each.entry.values.items() or not each.entry.values
    if not is_compacted:
        due = [each for each in held.path if each.end > held.log_start]
        missing = [each.base for each in due if each not in {one.entry for one in batches}]
        assert all(base in deleted for base in missing), f"batches are missing: {missing}"
        assert not batches or held.end == batches[-1].end


def last_values(
    values: Iterator[tuple[int, tuple[bytes | None, bytes | None]]],
) -> dict[bytes | None, bytes]:
    """What readers of a compacted log have in the end; transactions do not count here."""
    found: dict[bytes | None, bytes] = {}
    for _, (key, value) in values:
        if value is None:
            found.pop(key, None)
        else:
            found[key] = value
    return found


@dataclass(frozen=True)
class Check:
    """What the newest backup must have of a partition after a run on some brokers."""

    history: ReplicaHistory
    topic: Topic
    numbers: list[int]
    before: Held | None
    after: Held | None

    def check(self, is_clean: bool) -> None:
        partition = self.topic.partition
        if self.after is None:
            # It was moved to a broker that this run did not read: the next run there reads it.
            read = [self.history.cluster.brokers[each].replicas for each in self.numbers]
            assert not any(partition in replicas for replicas in read), "the partition is gone"
            return
        require_one_log(self.after, is_compacted=partition == TABLE)
        is_spoiled = partition in self.history.spoiled  # it is read anew
        if self.before is not None and self.before.topic is self.after.topic and not is_spoiled:
            self._takes_nothing_away(self.before, self.after)
        if self.after.topic is self.topic:
            self._follows_the_newest(self.after)

    def _takes_nothing_away(self, before: Held, after: Held) -> None:
        """What was in the backup and is still committed stays, but for what was deleted."""
        committed = fork_of(before.tip, self.topic.committed if before.topic is self.topic else None)
        if end_of(committed) <= after.log_start:
            return
        shared = fork_of(committed, after.tip)
        later = [tip for epoch, tip in self.topic.begun.items() if before.epoch < epoch <= after.epoch]
        if any(committed not in path_to(tip) for tip in later):
            return  # a leader has begun without it
        # The last batch may have been compacted away.
        is_compacted = self.topic.partition == TABLE and after.end >= end_of(committed)
        assert shared is committed or (is_compacted and shared is after.tip), (
            f"lost: {end_of(committed)} was committed and in the backup, only {end_of(shared)} is now"
        )

    def _follows_the_newest(self, after: Held) -> None:
        """No record has the place of one that the backup or a replica has in a newer epoch."""
        known = [] if self.before is None or self.before.topic is not after.topic else [self.before.tip]
        for number in self.numbers:
            broker = self.history.cluster.brokers[number]
            replica = broker.replicas.get(self.topic.partition)
            if replica is None:
                continue
            bound = broker.marks.get(self.topic.partition) if broker.is_running else None
            known += [each for each in path_to(replica.tip) if bound is None or each.end <= bound][:1]
        for tip in known:
            fork = fork_of(tip, after.tip)
            ours = [each.epoch for each in path_to(after.tip) if each.base >= end_of(fork)]
            theirs = [each.epoch for each in path_to(tip) if each.base >= end_of(fork)]
            assert not (ours and theirs) or max(after.epoch, *ours) >= theirs[0], (
                f"epoch {theirs[0]} after {end_of(fork)}"
            )
