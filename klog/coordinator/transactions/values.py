"""Requests and answers of the transaction coordinator, as plain values.

Rules: Kafka's InitProducerId, AddPartitionsToTxn, EndTxn, WriteTxnMarkers, DescribeTransactions and
ListTransactions messages, without what differs between their versions; KIP-98. Times are milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Final, NamedTuple, Protocol

from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1


class TransactionState(Enum):
    """The states of a transactional id: the number in the records, and the name in answers to clients."""

    EMPTY = 0, "Empty"
    ONGOING = 1, "Ongoing"
    PREPARE_COMMIT = 2, "PrepareCommit"
    PREPARE_ABORT = 3, "PrepareAbort"
    COMPLETE_COMMIT = 4, "CompleteCommit"
    COMPLETE_ABORT = 5, "CompleteAbort"
    DEAD = 6, "Dead"
    PREPARE_EPOCH_FENCE = 7, "PrepareEpochFence"

    def __init__(self, number: int, title: str) -> None:
        self.number = number
        self.title = title


class Producer(NamedTuple):
    """A producer id in one of its epochs."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH


NO_PRODUCER: Final = Producer()


class InitResult(NamedTuple):
    """The answer to an InitProducerId request."""

    error: ErrorCode
    producer: Producer = NO_PRODUCER


class Marker(NamedTuple):
    """What a marker says: how the transaction of a producer ended, and in which epoch of the coordinator."""

    producer: Producer
    coordinator_epoch: int
    committed: bool


class MarkersToWrite(NamedTuple):
    """The markers of one transaction. `coordinator_partition` is that of `__transaction_state`."""

    transactional_id: str
    coordinator_partition: int
    marker: Marker
    partitions: frozenset[TopicPartition]


class OnWritten(Protocol):
    """Is called with partitions that are done: written, or gone with their topic.

    They are `superseded` if their logs refuse the marker, because they know a newer epoch of the producer.
    """

    def __call__(self, partitions: Collection[TopicPartition], *, superseded: bool = False) -> None: ...


class MarkerSender(Protocol):
    """Writes markers on the leaders of partitions, as often as needed."""

    def send(self, wanted: MarkersToWrite, on_written: OnWritten) -> None:
        """Returns at once; `write_own` is to be called after it.

        `on_written` is called from any thread, once or more often. If a leader refuses the marker for good
        for another reason than the producer's epoch, the rest is never reported.
        """

    def write_own(self) -> None:
        """Write the markers for partitions that this broker leads, those of other transactions, too.

        To be called without any lock that an `on_written` takes, or the `on_done` of an append.
        """

    def forget(self, coordinator_partition: int) -> None:
        """Stop sending the markers of a partition of `__transaction_state`, which is led elsewhere now."""


class DescribedTransaction(NamedTuple):
    """The answer to DescribeTransactions for one transactional id."""

    error: ErrorCode
    transactional_id: str
    state: str = ""
    timeout_ms: int = 0
    start_ms: int = NO_TIMESTAMP
    producer: Producer = NO_PRODUCER
    partitions: Collection[TopicPartition] = ()


class ListedTransaction(NamedTuple):
    """One transactional id in the answer to ListTransactions."""

    transactional_id: str
    producer_id: int
    state: str


class Listing(NamedTuple):
    """The answer to ListTransactions."""

    error: ErrorCode
    unknown_states: Collection[str] = ()
    listed: Collection[ListedTransaction] = ()


VerifyErrors = Mapping[TopicPartition, ErrorCode]


class PartitionVerifier(Protocol):
    """Asks the coordinator whether partitions are in a producer's open transaction (KIP-890)."""

    def verify(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        on_done: Callable[[VerifyErrors], None],
    ) -> None:
        """Returns at once. `on_done` gets the error of each partition, once, from any thread."""

    def is_verified_here(self, transactional_id: str, producer: Producer, partition: TopicPartition) -> bool:
        """Whether this broker coordinates the id, and the producer's transaction has the partition."""
