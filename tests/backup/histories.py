"""A broker's log directory under a random history, and the truth about it: what the records are, which
transactions were decided when, what groups have committed, and what was on the disk at each run of a backup.

No sockets: batches go through `PartitionLog`, the cleaner and retention, and the coordinators' records are
written as coordinators write them. Time is counted in ms, and every batch has the time of its arrival.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from klog.backup.moment.decisions import TRANSACTION_TOPIC
from klog.backup.moment.view import CHECKPOINT_AGE_MS
from klog.backup.prune import Rules, plan_prune, prune
from klog.backup.restoring.batches import Rows
from klog.coordinator.groups.records import offset_key, offset_value
from klog.coordinator.groups.values import CommittedOffset
from klog.coordinator.transactions.records import TransactionRecord, transaction_key, transaction_value
from klog.coordinator.transactions.values import Producer, TransactionState
from klog.formats.constants import CONTROL_BIT
from klog.formats.names import CONSUMER_OFFSETS, FileKind, TopicPartition, encode_uuid
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.kernel.columns import RecordTable
from klog.kernel.markers import Marker, build_marker
from klog.storage.cleaner.cleaner_values import CleanerConfig
from klog.storage.cleaner.decoding import decode_one
from klog.storage.cleaner.log_cleaner import LogCleaner
from klog.storage.cleaner.open_log import OpenLog
from klog.storage.log.append_values import Origin
from klog.storage.log.partition_log import PartitionLog
from klog.storage.log.retention import apply_retention
from tests.backup.recorded import rows_of
from tests.backup.repositories import Backups, log_files
from tests.export.logs import write_checkpoint, write_topic_id
from tests.storage.log.building import Clock, Later, new_log

OFFSETS = TopicPartition(CONSUMER_OFFSETS, 0)
STATE = TopicPartition(TRANSACTION_TOPIC, 0)
DATA = [TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("table", 0)]
GROUPS = ("billing", "search")
SMALL = {"segment.bytes": "1500", "segment.index.bytes": "4096", "index.interval.bytes": "200"}
COMPACT = {
    **SMALL,
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "20000",
}
_RETENTION_BYTES = 4000

Batches = tuple[tuple[int, int, bytes], ...]
"""What a partition has on the disk: first offset, end offset and bytes of each batch."""


@dataclass
class Transaction:
    """Where its records are. It was decided at `decided_ms`: until then it is open."""

    producer_id: int
    number: int
    is_commit: bool = True
    decided_ms: int | None = None

    def is_committed(self, at_ms: int) -> bool:
        return self.decided_ms is not None and self.decided_ms <= at_ms and self.is_commit


@dataclass(frozen=True)
class Appended:
    """The records of one batch of clients: offsets with values, the time, and their transaction."""

    at_ms: int
    values: dict[int, str]
    transaction: Transaction | None = None


@dataclass
class Partition:
    """A partition since its topic was created. `removals` are when records were removed from its log."""

    log: PartitionLog
    topic_id: str
    appended: list[Appended] = field(default_factory=list)
    removals: list[int] = field(default_factory=list)
    sequences: dict[int, int] = field(default_factory=dict)

    @property
    def offsets(self) -> set[int]:
        return {offset for each in self.appended for offset in each.values}

    def of_transactions(self) -> dict[tuple[int, int], set[int]]:
        """The offsets of each transaction, by its producer and number."""
        found: dict[tuple[int, int], set[int]] = {}
        for each in self.appended:
            if each.transaction is not None:
                key = (each.transaction.producer_id, each.transaction.number)
                found.setdefault(key, set()).update(each.values)
        return found

    def visible(self, at_ms: int) -> dict[int, str]:
        """What read_committed readers would see at a time if nothing had been removed."""
        found: dict[int, str] = {}
        for each in self.appended:
            if each.at_ms <= at_ms and (each.transaction is None or each.transaction.is_committed(at_ms)):
                found |= each.values
        return found


@dataclass(frozen=True)
class Seen:
    """What a run has of a partition, as it was at `at_ms`."""

    at_ms: int
    partition: Partition
    batches: Batches
    log_start_offset: int
    end_offset: int
    offsets: frozenset[int]
    sequences: dict[int, int]


Run = Mapping[TopicPartition, Seen]
"""What a run has of all partitions."""


@dataclass
class Commit:
    """An offset that a group has committed; `offset` is where its record lies."""

    at_ms: int
    offset: int
    group: str
    partition: TopicPartition
    committed: int | None
    transaction: Transaction | None = None


class History:
    """Plays `steps` random steps from a seed. Runs of a backup are among them."""

    def __init__(self, root: Path, seed: int, steps: int) -> None:
        self.random = random.Random(seed)
        self.directory = root / "logs"
        self.root = root
        self.backups = Backups(root / "repository", compression=self.random.choice(("none", "zstd", "gzip")))
        self.clock = Clock(self.backups.now_ms)
        self.begin_ms = self.clock.now_ms
        self.partitions = {each: self._created(each) for each in (*DATA, OFFSETS, STATE)}
        (self.directory / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=abc\n")
        self.deletions: list[int] = []
        self.commits: list[Commit] = []
        self.runs: dict[str, Run] = {}
        self._transactions = [self._transact(100 + number) for number in range(2)]
        self._number = 0
        choices: dict[Callable[[], object], int] = {
            self._plain: 6,
            self._idempotent: 6,
            lambda: next(self.random.choice(self._transactions)): 24,
            self._commit: 5,
            self._roll: 2,
            self._compact: 3,
            self._retain: 2,
            self._delete_records: 1,
            self._elect: 1,
            self._create_again: 1,
            self.run: 5,
            self._prune: 1,
        }
        for step in self.random.choices(list(choices), list(choices.values()), k=steps):
            step()
            self.clock.now_ms += self.random.choice((1, 20, 700, 4000))
        if not self.runs:
            self.run()

    def around(self, at_ms: int) -> tuple[Run | None, Run | None]:
        """The last run before a moment, and the first one that began long enough after it, or the newest."""
        runs = sorted(self.runs.values(), key=_time_of)
        before = [each for each in runs if _time_of(each) <= at_ms]
        after = [each for each in runs if _time_of(each) > at_ms]
        complete = [each for each in after if _time_of(each) >= at_ms + CHECKPOINT_AGE_MS]
        return before[-1] if before else None, (complete[:1] or after[-1:] or [None])[0]

    def owner(self, partition: TopicPartition, topic_id: str | None) -> Partition:
        """The partition with a topic id that some run has seen."""
        found = (run[partition].partition for run in self.runs.values())
        return next(each for each in found if each.topic_id == topic_id)

    # -- partitions ------------------------------------------------------------------------------------------

    def _created(self, partition: TopicPartition) -> Partition:
        config = SMALL if partition.topic == "orders" else COMPACT
        log = new_log(self.root, config, clock=self.clock, background=Later(), partition=partition)
        log.assign_epoch(0, 0)
        topic_id = encode_uuid(self.random.randbytes(16))
        write_topic_id(Path(log.directory), topic_id)
        return Partition(log, topic_id)

    def _append(self, partition: TopicPartition, batch: bytearray | bytes, origin: Origin) -> int:
        """The offset of its first record."""
        log = self.partitions[partition].log
        with log.lock:
            epoch = log.epochs.latest
            info = log.append_as_leader(memoryview(bytearray(batch)), epoch, self.clock.now_ms, origin)
            log.set_high_watermark(log.log_end_offset)
        return info.first_offset

    def _records(self, partition: TopicPartition) -> list[RecordData]:
        found = []
        for number in range(self.random.randint(1, 3)):
            self._number += 1
            key = b"key-%d" % self.random.randrange(4)
            found.append(RecordData(number, self.clock.now_ms, key, b"%d" % self._number))
        return found

    def _write(
        self, partition: TopicPartition, fields: BatchFields, transaction: Transaction | None = None
    ) -> None:
        records = self._records(partition)
        codec = self.random.choice((0, 0, 1, 4))
        first = self._append(partition, build_batch(records, replace(fields, codec=codec)), Origin.CLIENT)
        values = {first + number: each.value.decode() for number, each in enumerate(records)}  # type: ignore[union-attr]
        self.partitions[partition].appended.append(Appended(self.clock.now_ms, values, transaction))
        if fields.producer_id >= 0:
            self.partitions[partition].sequences[fields.producer_id] = fields.base_sequence + len(records)

    def _as_producer(self, partition: TopicPartition, producer_id: int) -> BatchFields:
        sequence = self.partitions[partition].sequences.get(producer_id, 0)
        return BatchFields(producer_id=producer_id, producer_epoch=0, base_sequence=sequence)

    # -- steps -----------------------------------------------------------------------------------------------

    def _plain(self) -> None:
        self._write(self.random.choice(DATA), BatchFields())

    def _idempotent(self) -> None:
        partition = self.random.choice(DATA)
        self._write(partition, self._as_producer(partition, self.random.choice((7, 8))))

    def _transact(self, producer_id: int) -> Iterator[None]:
        """Transactions one after the other, a step at a time."""
        producer, number = Producer(producer_id, 0), 0
        while True:
            number += 1
            transaction = Transaction(producer_id, number, self.random.random() < 0.6)
            written: list[TopicPartition] = []
            start_ms = 0
            for _ in range(self.random.randint(1, 4)):
                partition = self.random.choice([*DATA, OFFSETS])
                if partition not in written:
                    written.append(partition)
                    start_ms = start_ms or self.clock.now_ms
                    self._decide(producer, TransactionState.ONGOING, written, start_ms)
                    yield
                if partition == OFFSETS:
                    self._commit_offset(transaction)
                else:
                    fields = replace(self._as_producer(partition, producer_id), is_transactional=True)
                    self._write(partition, fields, transaction)
                yield
            ending = (
                TransactionState.PREPARE_COMMIT if transaction.is_commit else TransactionState.PREPARE_ABORT
            )
            transaction.decided_ms = self.clock.now_ms
            self._decide(producer, ending, written, start_ms)
            yield
            for partition in self.random.sample(written, len(written)):
                marker = Marker(not transaction.is_commit, 0, self.clock.now_ms)
                self._append(partition, build_marker(producer_id, 0, marker), Origin.COORDINATOR)
                yield
            done = (
                TransactionState.COMPLETE_COMMIT if transaction.is_commit else TransactionState.COMPLETE_ABORT
            )
            self._decide(producer, done, [], start_ms)
            yield

    def _decide(
        self, producer: Producer, state: TransactionState, written: Sequence[TopicPartition], start_ms: int
    ) -> None:
        now_ms = self.clock.now_ms
        record = TransactionRecord(producer, 60_000, state, frozenset(written), now_ms, start_ms)
        key, value = transaction_key(f"id-{producer.producer_id}"), transaction_value(record)
        batch = build_batch([RecordData(0, now_ms, key, value)], BatchFields())
        self._append(STATE, batch, Origin.COORDINATOR)

    def _commit(self) -> None:
        self._commit_offset(None)

    def _commit_offset(self, transaction: Transaction | None) -> None:
        group = self.random.choice(GROUPS) if transaction is None else f"of-{transaction.producer_id}"
        partition = self.random.choice(DATA)
        committed = self.random.randint(0, self.partitions[partition].log.log_end_offset)
        self._store_commit(group, partition, committed, transaction)

    def _store_commit(
        self, group: str, partition: TopicPartition, committed: int | None, transaction: Transaction | None
    ) -> None:
        now_ms = self.clock.now_ms
        value = None if committed is None else offset_value(CommittedOffset(committed, -1, "", now_ms))
        fields = BatchFields()
        if transaction is not None:
            fields = BatchFields(producer_id=transaction.producer_id, producer_epoch=0, is_transactional=True)
        record = RecordData(0, now_ms, offset_key(group, partition), value)
        offset = self._append(OFFSETS, build_batch([record], fields), Origin.COORDINATOR)
        self.commits.append(Commit(now_ms, offset, group, partition, committed, transaction))

    def _roll(self) -> None:
        log = self.partitions[self.random.choice([*DATA, OFFSETS, STATE])].log
        if log.segments.active.size:
            log.roll()

    def _compact(self) -> None:
        """As the cleaner does: of `table`, or of a coordinator's topic."""
        partition = self.partitions[self.random.choice([TopicPartition("table", 0), OFFSETS, STATE])]
        if partition.log.segments.active.size:
            partition.log.roll()
        background = Later()
        cleaner = LogCleaner(
            lambda: [OpenLog(partition.log, background, self.clock)],
            [str(self.directory)],
            CleanerConfig(dedupe_buffer_bytes=1 << 20),
            clock_ms=self.clock,
            on_directory_failure=_fail,
            on_uncleanable=_fail,
        )
        if cleaner.clean_dirtiest():
            partition.removals.append(self.clock.now_ms)
        for path in background.deletions:
            os.unlink(path)

    def _retain(self) -> None:
        partition = self.partitions[self.random.choice(DATA[:2])]
        log = partition.log
        keeping = log.config
        log.reconfigure(replace(keeping, retention_bytes=_RETENTION_BYTES))
        if apply_retention(log, self.clock.now_ms):
            partition.removals.append(self.clock.now_ms)
            self._checkpoint()
        log.reconfigure(keeping)

    def _delete_records(self) -> None:
        partition = self.partitions[self.random.choice(DATA)]
        log = partition.log
        if log.advance_log_start(self.random.randint(log.log_start_offset, log.log_end_offset)):
            partition.removals.append(self.clock.now_ms)
            self._checkpoint()

    def _checkpoint(self) -> None:
        starts = {f"{each.topic}_{each.partition}": found.log.log_start_offset
                  for each, found in self.partitions.items()}  # fmt: skip
        write_checkpoint(self.directory, FileKind.LOG_START_CHECKPOINT, **starts)

    def _elect(self) -> None:
        log = self.partitions[self.random.choice([*DATA, OFFSETS, STATE])].log
        log.assign_epoch(log.epochs.latest + self.random.randint(1, 2), log.log_end_offset)

    def _create_again(self) -> None:
        """The topic `table` is deleted, with the offsets of groups, and created again."""
        table = TopicPartition("table", 0)
        self.partitions[table].log.close()
        shutil.rmtree(self.partitions[table].log.directory)
        for group in GROUPS:
            if any(each.group == group and each.partition == table for each in self.commits):
                self._store_commit(group, table, None, None)
        self.partitions[table] = self._created(table)
        self.deletions.append(self.clock.now_ms)
        self._checkpoint()

    # -- backups ---------------------------------------------------------------------------------------------

    def run(self) -> None:
        """A backup of everything."""
        self.clock.now_ms += CHECKPOINT_AGE_MS + 1  # what was decided just before a run may be left out
        self.backups.now_ms = self.clock.now_ms - 1000  # the next run is a second later
        result = self.backups.run(self.directory, jobs=self.random.choice((1, 2)))
        assert result.is_clean, result.manifest.problems
        self.runs[result.manifest.id] = {each: self._seen(found) for each, found in self.partitions.items()}

    def _seen(self, partition: Partition) -> Seen:
        log = partition.log
        return Seen(
            self.clock.now_ms,
            partition,
            tuple(batches_in(Path(log.directory))),
            log.log_start_offset,
            log.log_end_offset,
            frozenset(offsets_in(Path(log.directory))),
            dict(partition.sequences),
        )

    def _prune(self) -> None:
        repository = self.backups.repository
        plan = plan_prune(repository, Rules(last=self.random.randint(1, 4)), self.clock.now_ms, 0)
        prune(repository, plan, lambda _name: None)
        for identifier in plan.removed:
            del self.runs[identifier]


def _time_of(run: Run) -> int:
    return run[STATE].at_ms


def _fail(*what: object) -> None:
    raise AssertionError(what)


def batches_in(directory: Path) -> Iterator[tuple[int, int, bytes]]:
    """The batches of a partition directory, in their order."""
    for rows in rows_of(directory):
        yield from _batches(rows)


def _batches(rows: Rows) -> Iterator[tuple[int, int, bytes]]:
    table = rows.table
    for row in range(len(table)):
        start = table.position[row] - table.origin
        data = bytes(rows.data[start : start + table.size[row]])
        yield table.base_offset[row], table.last_offset[row] + 1, data


def offsets_in(directory: Path) -> Iterator[int]:
    """The offsets of all records in a partition directory."""
    records = RecordTable()
    for rows in rows_of(directory):
        for row in range(len(rows.table)):
            decode_one(rows.data, rows.table, row, records)
            yield from records.offset


def values_in(directory: Path, log_start_offset: int) -> dict[int, str]:
    """The records of clients in a partition directory that read_committed readers see, by offset.

    Raises AssertionError if a transaction is open.
    """
    from klog.kernel.markers import marker_of_batch

    open_ones: dict[int, dict[int, str]] = {}
    found: dict[int, str] = {}
    records = RecordTable()
    for rows in rows_of(directory):
        table = rows.table
        for row, (_, _, data) in enumerate(_batches(rows)):
            producer_id = table.producer_id[row]
            if table.attributes[row] & CONTROL_BIT:
                ended = open_ones.pop(producer_id, {})
                if not table.count[row]:
                    assert not ended  # the cleaner has removed the marker after the records
                    continue
                marker = marker_of_batch(data)
                assert marker is not None
                found |= {} if marker.aborted else ended
                continue
            payload = memoryview(decode_one(rows.data, table, row, records))
            values = {}
            for number in range(len(records)):
                start, size = records.value_start[number], records.value_size[number]
                values[records.offset[number]] = bytes(payload[start : start + size]).decode()
            is_transactional = bool(table.attributes[row] & 0x10)
            if is_transactional:
                open_ones.setdefault(producer_id, {}).update(values)
            else:
                found |= values
    assert not open_ones
    return {offset: value for offset, value in found.items() if offset >= log_start_offset}


def log_bytes(directory: Path) -> bytes:
    return b"".join(log_files(directory).values())
