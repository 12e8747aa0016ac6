"""Logs of a simulated cluster with transactional producers, and the truth about each transaction.

Time is counted in ms. Every batch has the time at which it arrived. Producers work as Kafka's do: the next
transaction begins when the last one is complete.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from klog.backup.moment.decisions import TRANSACTION_TOPIC, Decisions
from klog.backup.moment.history import HistoryBuilder
from klog.backup.moment.values import EndRule, PartitionHistory
from klog.coordinator.transactions.records import TransactionRecord
from klog.coordinator.transactions.values import Producer, TransactionState
from klog.formats.constants import CONTROL_BIT
from klog.formats.names import TopicPartition
from klog.formats.packed import INT64
from klog.kernel import kernel
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch, build_single
from klog.kernel.columns import BatchTable
from klog.kernel.markers import Marker, build_marker

STATE = TopicPartition(TRANSACTION_TOPIC, 0)
PARTITIONS = [TopicPartition("orders", number) for number in range(4)]


@dataclass(slots=True)
class Log:
    """A partition: batches with the time of arrival and the offset after each."""

    batches: list[tuple[int, bytes]] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    @property
    def end_offset(self) -> int:
        return self.ends[-1] if self.ends else 0

    def append(self, at_ms: int, batch: bytearray, records: int = 1) -> int:
        """Returns the offset of the batch."""
        offset = self.end_offset
        INT64.pack_into(batch, 0, offset)
        self.batches.append((at_ms, bytes(batch)))
        self.ends.append(offset + records)
        return offset

    def end_at(self, at_ms: int) -> int:
        """The end of the log at a time."""
        return max(
            (end for (at, _), end in zip(self.batches, self.ends, strict=True) if at <= at_ms), default=0
        )

    def data(self, until_ms: int) -> bytes:
        return b"".join(batch for at, batch in self.batches if at <= until_ms)


@dataclass(slots=True)
class Truth:
    """A transaction: offsets of its records by partition, when it was decided, and how."""

    producer_id: int
    records: dict[TopicPartition, list[int]] = field(default_factory=dict)
    is_commit: bool = True
    decided_ms: int | None = None


class SimulatedCluster:
    """Runs producers for some steps; `skew_ms` is the largest error of a broker's clock."""

    def __init__(self, seed: int, *, producers: int = 3, steps: int = 400, skew_ms: int = 0) -> None:
        self.random = random.Random(seed)
        self.logs: dict[TopicPartition, Log] = {each: Log() for each in (*PARTITIONS, STATE)}
        self.states: list[tuple[int, int, TransactionRecord]] = []
        self.truth: list[Truth] = []
        self.now_ms = 1_000_000
        self._skew = {each: self.random.randint(-skew_ms, skew_ms) for each in self.logs}
        running = [self._produce(Producer(1000 + number, 0)) for number in range(producers)]
        for _ in range(steps):
            next(self.random.choice(running))
            self.now_ms += self.random.randint(1, 9)

    def _produce(self, producer):  # type: ignore[no-untyped-def]
        while True:
            transaction = Truth(producer.producer_id)
            self.truth.append(transaction)
            chosen = self.random.sample(PARTITIONS, self.random.randint(1, len(PARTITIONS)))
            start_ms = self.now_ms
            self._state(producer, TransactionState.ONGOING, chosen, start_ms)
            yield
            for partition in chosen * self.random.randint(0, 2):
                self._write(transaction, producer, partition)
                yield
                if self.random.random() < 0.3:
                    plain = self.logs[self.random.choice(PARTITIONS)]
                    plain.append(self.now_ms, build_single(self.now_ms, b"k", b"plain"))
                    yield
            yield
            transaction.is_commit = self.random.random() < 0.7
            transaction.decided_ms = self.now_ms
            prepare = (
                TransactionState.PREPARE_COMMIT if transaction.is_commit else TransactionState.PREPARE_ABORT
            )
            self._state(producer, prepare, chosen, start_ms)
            yield
            for partition in self.random.sample(chosen, len(chosen)):
                marker = Marker(not transaction.is_commit, 7, self.now_ms + self._skew[partition])
                batch = build_marker(producer.producer_id, producer.epoch, marker)
                self.logs[partition].append(self.now_ms, batch)
                yield
            complete = (
                TransactionState.COMPLETE_COMMIT if transaction.is_commit else TransactionState.COMPLETE_ABORT
            )
            self._state(producer, complete, [], start_ms, transaction.decided_ms)
            yield

    def _write(self, transaction: Truth, producer: Producer, partition: TopicPartition) -> None:
        count = self.random.randint(1, 3)
        log = self.logs[partition]
        fields = BatchFields(
            producer_id=producer.producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        records = [RecordData(number, self.now_ms, b"k", b"v") for number in range(count)]
        offset = log.append(self.now_ms, build_batch(records, fields), count)
        transaction.records.setdefault(partition, []).extend(range(offset, offset + count))

    def _state(
        self,
        producer: Producer,
        state: TransactionState,
        chosen: list[TopicPartition],
        start_ms: int,
        updated_ms: int | None = None,
    ) -> None:
        """A coordinator takes the time in a completion before it sends the markers."""
        skew_ms = self._skew[STATE]
        updated_ms = (self.now_ms if updated_ms is None else updated_ms) + skew_ms
        offset = self.logs[STATE].append(self.now_ms, build_single(self.now_ms + skew_ms, b"k", b"v"))
        record = TransactionRecord(producer, 60_000, state, frozenset(chosen), updated_ms, start_ms + skew_ms)
        self.states.append((offset, self.now_ms + skew_ms, record))

    # -- what a backup knows ---------------------------------------------------------------------------------

    def history(
        self, partition: TopicPartition, rule: EndRule, view_ms: int, start_offset: int = 0
    ) -> PartitionHistory:
        """A partition of which everything up to a time is known. What is before `start_offset` was deleted by
        then, in the middle of a segment.
        """
        reader = HistoryBuilder(rule)
        data, table = memoryview(self.logs[partition].data(view_ms)), BatchTable()
        kernel.scan(data, 0, True, table)
        reader.follow(data, table)
        return reader.finish(view_ms, start_offset)

    def decisions(self, view_ms: int, compacted_ms: int = 0) -> Decisions:
        """The decisions up to a time. Before `compacted_ms` only the last record of each producer is left."""
        found, end = Decisions(), self.logs[STATE].end_at(view_ms)
        compacted = self.logs[STATE].end_at(compacted_ms)
        last = {record.producer: offset for offset, _, record in self.states if offset < compacted}
        for offset, written_ms, record in self.states:
            if offset < end and (offset >= compacted or last[record.producer] == offset):
                found.add(STATE, offset, offset + 1, written_ms, record)
        return found

    def status(self, partition: TopicPartition, transaction: Truth, end: int, added) -> str | None:  # type: ignore[no-untyped-def]
        """What readers see of a transaction: `commit`, `abort`, `open`, `part` or None for nothing."""
        offsets = transaction.records.get(partition, [])
        if not offsets or offsets[0] >= end:
            return None
        whole = "part " if offsets[-1] >= end else ""
        for marker in added:
            if marker.producer_id == transaction.producer_id and marker.first_offset == offsets[0]:
                return whole + ("abort" if marker.marker.aborted else "commit")
        data, table = memoryview(self.logs[partition].data(self.now_ms)), BatchTable()
        kernel.scan(data, 0, True, table)
        for row, offset in enumerate(table.base_offset):
            is_marker = (
                table.producer_id[row] == transaction.producer_id and table.attributes[row] & CONTROL_BIT
            )
            if is_marker and offsets[-1] < offset < end:
                return whole + ("commit" if transaction.is_commit else "abort")
        return whole + "open"
