"""Plays requests to a transaction coordinator of one partition: with a clock, a log in memory, and markers
that are written when a test says so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from klog.coordinator.transactions.coordinator import TransactionCoordinator, TransactionSettings
from klog.coordinator.transactions.end_waits import EndWaits
from klog.coordinator.transactions.loading import TransactionReader
from klog.coordinator.transactions.records import TransactionRecord
from klog.coordinator.transactions.requests import TransactionRequests
from klog.coordinator.transactions.transaction import Transaction
from klog.coordinator.transactions.transaction_partition import TransactionPartition, TransactionServices
from klog.coordinator.transactions.values import (
    NO_PRODUCER,
    DescribedTransaction,
    MarkersToWrite,
    OnWritten,
    Producer,
)
from klog.formats.names import TopicPartition
from klog.kernel import kernel
from klog.kernel.columns import BatchTable
from klog.metadata.errors import MetadataError
from klog.protocol.error_codes import ErrorCode
from klog.replication.internal_append import Appended
from klog.replication.purgatory import Timer
from klog.replication.timing_wheel import TimerTask
from klog.storage.log.built_batch import BuiltBatch
from tests.coordinator.playing import Answer

ID = "transfers"
TIMEOUT_MS = 60_000
EXPIRATION_MS = 1_000_000
START_MS = 1_700_000_000_000
FIRST_PRODUCER_ID = 1000
A = TopicPartition("a", 0)
B = TopicPartition("b", 3)
C = TopicPartition("c", 1)

OnAppended = Callable[[Appended], None]


@dataclass
class Markers:
    """A marker sender that does nothing by itself. `sent` are the markers that were not forgotten."""

    sent: list[tuple[MarkersToWrite, OnWritten]] = field(default_factory=list)
    all_sent: list[MarkersToWrite] = field(default_factory=list)
    # Each with all its partitions that were reported as written so far.
    reported: list[tuple[MarkersToWrite, set[TopicPartition]]] = field(default_factory=list)

    def send(self, wanted: MarkersToWrite, on_written: OnWritten) -> None:
        done: set[TopicPartition] = set()

        def report(partitions: Collection[TopicPartition], *, superseded: bool = False) -> None:
            done.update(partitions)
            on_written(partitions, superseded=superseded)

        self.sent.append((wanted, report))
        self.all_sent.append(wanted)
        self.reported.append((wanted, done))

    def write_own(self) -> None:
        """All markers are written when a test says so."""

    def forget(self, coordinator_partition: int) -> None:
        self.sent = [item for item in self.sent if item[0].coordinator_partition != coordinator_partition]

    def write_all(self) -> None:
        """Report all markers as written."""
        for wanted, on_written in self.sent:
            on_written(wanted.partitions)
        self.sent.clear()


@dataclass
class FakeTimer:
    """Timers that fire when a test says so."""

    tasks: list[TimerTask] = field(default_factory=list)

    def add(self, task: TimerTask) -> None:
        self.tasks.append(task)

    def fire(self) -> None:
        tasks, self.tasks = self.tasks, []
        for task in tasks:
            task.run()


@dataclass
class HeldAppend:
    """An append that has not been acknowledged."""

    batch: bytes
    timeout_ms: int
    leader_epoch: int
    on_done: OnAppended


class Play:
    """A coordinator that owns one partition, in which all ids are.

    Records are acknowledged at once with `append_error`, unless `holds_appends`: then `acknowledge` does it.
    """

    def __init__(self, wait_ms: int = 0) -> None:
        self.now_ms = START_MS
        self.batches: list[bytes] = []
        self.appends: list[HeldAppend] = []
        self.held: list[HeldAppend] = []
        self.holds_appends = False
        self.append_error = ErrorCode.NONE
        self.next_producer_id = FIRST_PRODUCER_ID
        self.has_producer_ids = True
        self.markers = Markers()
        self.timer = FakeTimer()
        self.is_loading = False
        self.why_not: ErrorCode | None = None
        self.settings = TransactionSettings(
            1, 900_000, EXPIRATION_MS, 1 << 20, 10_000, 10_000, 30_000, 1 << 20
        )
        self.services = TransactionServices(
            self._append,
            cast(Timer, self.timer),
            lambda: self.now_ms,
            lambda: self.now_ms,
            self.markers,
            self._next_producer_id,
            EndWaits(cast(Timer, self.timer), lambda: self.now_ms, wait_ms),
        )
        self.partition = TransactionPartition(7, 0, self.services)
        self.requests = TransactionRequests(cast(TransactionCoordinator, self))

    # -- what the requests ask of a coordinator --------------------------------------------------------------

    def owner_of(self, _transactional_id: str) -> TransactionPartition | ErrorCode:
        return self.partition if self.why_not is None else self.why_not

    def owned(self) -> list[TransactionPartition]:
        return [self.partition]

    # -- services --------------------------------------------------------------------------------------------

    def _append(
        self, partition: int, batch: BuiltBatch, on_done: OnAppended, *, leader_epoch: int, timeout_ms: int
    ) -> None:
        assert partition == 7
        append = HeldAppend(bytes(batch.view()), timeout_ms, leader_epoch, on_done)
        self.appends.append(append)
        self.held.append(append)
        if not self.holds_appends:
            self.acknowledge(self.append_error)

    def acknowledge(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Let the oldest append that is held end so."""
        append = self.held.pop(0)
        if error is ErrorCode.NONE:
            self.batches.append(append.batch)
        append.on_done(Appended(error))

    def _next_producer_id(self) -> int:
        if not self.has_producer_ids:
            raise MetadataError("no block")
        self.next_producer_id += 1
        return self.next_producer_id - 1

    # -- requests --------------------------------------------------------------------------------------------

    def init(
        self,
        expected: Producer = NO_PRODUCER,
        transactional_id: str | None = ID,
        timeout_ms: int = TIMEOUT_MS,
    ) -> Answer:
        answer = Answer()
        self.requests.init_producer(transactional_id, timeout_ms, expected, answer.results.append)
        return answer

    def add(self, producer: Producer, *partitions: TopicPartition, transactional_id: str = ID) -> Answer:
        answer = Answer()
        self.requests.add_partitions(transactional_id, producer, partitions, answer.results.append)
        return answer

    def end(self, producer: Producer, *, commit: bool = True, transactional_id: str = ID) -> Answer:
        answer = Answer()
        self.requests.end(transactional_id, producer, commit, answer.results.append)
        return answer

    def verify(self, producer: Producer, *partitions: TopicPartition) -> Any:
        return self.requests.verify_partitions(ID, producer, partitions)

    def described(self, transactional_id: str = ID) -> DescribedTransaction:
        return self.requests.describe(transactional_id)

    # -- shortcuts -------------------------------------------------------------------------------------------

    def producer(self) -> Producer:
        """A producer that has just been initialised."""
        answer = self.init()
        assert answer.error is ErrorCode.NONE
        producer: Producer = answer.value.producer
        return producer

    def open(self, *partitions: TopicPartition) -> Producer:
        """A producer with an open transaction."""
        producer = self.producer()
        assert self.add(producer, *(partitions or (A,))).error is ErrorCode.NONE
        return producer

    @property
    def transaction(self) -> Transaction:
        return self.partition.transactions[ID]

    def state(self) -> str:
        return self.described().state

    def written(self) -> dict[str, TransactionRecord]:
        """What a load of the log finds."""
        reader = TransactionReader("__transaction_state-7")
        read_batches(reader, self.batches)
        return reader.loaded

    def last_record(self) -> TransactionRecord:
        """The last record that was written for the id, acknowledged or not."""
        reader = TransactionReader("__transaction_state-7")
        read_batches(reader, [self.appends[-1].batch])
        (record,) = reader.loaded.values()
        return record

    def reload(self) -> None:
        """Lose the partition's leadership, and get it back in the next epoch."""
        self.partition.close()
        self.partition = TransactionPartition(7, self.partition.leader_epoch + 1, self.services)
        self.partition.install(self.written())


def read_batches(reader: TransactionReader, batches: Iterable[bytes]) -> None:
    """Give batches to a reader."""
    for batch in batches:
        table = BatchTable()
        data = memoryview(batch)
        kernel.scan(data, 0, True, table)
        reader.add_batch(data, table, 0)
