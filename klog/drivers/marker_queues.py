"""Decides which markers go to which broker next, and what an answer means. Pure: no threads, no clock.

Rules: Kafka's `TransactionMarkerChannelManager` and `TransactionMarkerRequestCompletionHandler`. A marker
goes to the leaders of its partitions, one entry for each broker. What a leader does not accept now is looked
up again; without a limit, because a transaction that is decided must end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from klog.coordinator.transactions.values import MarkersToWrite, OnWritten
from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode

UNKNOWN: Final = -1
"""No leader is known now, or it is not alive."""

LeaderOf = Callable[[TopicPartition], int]
"""The broker id of a partition's leader, or UNKNOWN."""

MarkerErrors = dict[int, dict[TopicPartition, ErrorCode]]
"""What became of markers, by producer id and partition."""

_NOTHING_SAID: Final[Mapping[TopicPartition, ErrorCode]] = {}
_ALL_WRITTEN: Final = frozenset((ErrorCode.NONE,))
# The partition has its marker, or can hold none.
_DONE: Final = frozenset(
    (ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION)
)
_TRY_AGAIN: Final = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
)


@dataclass(eq=False, slots=True)
class Transaction:
    """One transaction whose markers are sent, and whom to tell. Compared by identity."""

    wanted: MarkersToWrite
    on_written: OnWritten


class Entry(NamedTuple):
    """Partitions of one transaction that have one leader, and how often in a row that has failed.

    Their marker has the coordinator's epoch, unless they need a `raised_epoch` (`fenced_markers`).
    """

    transaction: Transaction
    partitions: frozenset[TopicPartition]
    failures: int = 0
    raised_epoch: int | None = None

    @property
    def coordinator_epoch(self) -> int:
        """The epoch of the coordinator in the marker."""
        raised = self.raised_epoch
        return self.transaction.wanted.marker.coordinator_epoch if raised is None else raised


class RoutedEntries(NamedTuple):
    """What became of entries: partitions that are done, those to route again, those that are given up.

    Those whose log knows a newer epoch of the producer are `superseded`, and those whose log knows a newer
    epoch of the coordinator are `fenced`.
    """

    done: tuple[Entry, ...] = ()
    again: tuple[Entry, ...] = ()
    refused: tuple[tuple[Entry, ErrorCode], ...] = ()
    superseded: tuple[Entry, ...] = ()
    fenced: tuple[Entry, ...] = ()


def judged(entries: Iterable[Entry], answer: MarkerErrors) -> RoutedEntries:
    """What an answer means. What it leaves out is sent again."""
    done: list[Entry] = []
    again: list[Entry] = []
    refused: list[tuple[Entry, ErrorCode]] = []
    superseded: list[Entry] = []
    fenced: list[Entry] = []
    for entry in entries:
        producer_id = entry.transaction.wanted.marker.producer.producer_id
        errors = answer.get(producer_id, _NOTHING_SAID)
        by_error: dict[ErrorCode, set[TopicPartition]] = {}
        for partition in entry.partitions:
            error = errors.get(partition, ErrorCode.REQUEST_TIMED_OUT)
            by_error.setdefault(error, set()).add(partition)
        if by_error.keys() == _ALL_WRITTEN:
            done.append(entry)
            continue
        written = {each for error in _DONE for each in by_error.get(error, ())}
        unwritten = {each for error in _TRY_AGAIN for each in by_error.get(error, ())}
        if written:
            done.append(entry._replace(partitions=frozenset(written)))
        if unwritten:
            again.append(entry._replace(partitions=frozenset(unwritten), failures=entry.failures + 1))
        newer = by_error.pop(ErrorCode.INVALID_PRODUCER_EPOCH, None)
        if newer:
            superseded.append(entry._replace(partitions=frozenset(newer)))
        newer = by_error.pop(ErrorCode.TRANSACTION_COORDINATOR_FENCED, None)
        if newer:
            fenced.append(entry._replace(partitions=frozenset(newer)))
        refused += [
            (entry._replace(partitions=frozenset(by_error[error])), error)
            for error in by_error.keys() - _DONE - _TRY_AGAIN
        ]
    return RoutedEntries(tuple(done), tuple(again), tuple(refused), tuple(superseded), tuple(fenced))


@dataclass(slots=True)
class MarkerQueues:
    """The markers that wait, by broker. Not safe for threads."""

    leader_of: LeaderOf
    # By coordinator partition: the partitions of each transaction that have no marker yet.
    _missing: dict[int, dict[Transaction, set[TopicPartition]]] = field(default_factory=dict)
    _queues: dict[int, list[Entry]] = field(default_factory=dict)
    # By coordinator partition: the coordinator epochs that partitions need for the markers of producers.
    _raised: dict[int, dict[tuple[int, TopicPartition], int]] = field(default_factory=dict)

    @property
    def waiting(self) -> int:
        """How many entries wait for their turn, or for a leader to be known."""
        return sum(len(queue) for queue in self._queues.values())

    @property
    def waiting_for_leaders(self) -> int:
        """How many of them wait for a leader to be known."""
        return len(self._queues.get(UNKNOWN, ()))

    def add(self, transaction: Transaction) -> set[int]:
        """Queue the markers of a transaction; returns the brokers for which it has some."""
        wanted = transaction.wanted
        self._missing.setdefault(wanted.coordinator_partition, {})[transaction] = set(wanted.partitions)
        return self.route((Entry(transaction, wanted.partitions),))

    def route(self, entries: Iterable[Entry]) -> set[int]:
        """Queue entries for the present leaders of their partitions; returns these, UNKNOWN among them."""
        brokers: set[int] = set()
        for entry in self._by_epoch(self.live(entries)):
            by_leader: dict[int, set[TopicPartition]] = {}
            for partition in entry.partitions:
                by_leader.setdefault(self.leader_of(partition), set()).add(partition)
            brokers.update(by_leader)
            if len(by_leader) == 1:
                (leader,) = by_leader
                self._queues.setdefault(leader, []).append(entry)
                continue
            for leader, partitions in by_leader.items():
                part = entry._replace(partitions=frozenset(partitions))
                self._queues.setdefault(leader, []).append(part)
        return brokers

    def _by_epoch(self, entries: Iterable[Entry]) -> Iterable[Entry]:
        """The entries, with partitions that need a raised epoch on their own."""
        for entry in entries:
            wanted = entry.transaction.wanted
            raised = self._raised.get(wanted.coordinator_partition)
            if raised is None:
                yield entry
                continue
            producer_id = wanted.marker.producer.producer_id
            alone = [each for each in sorted(entry.partitions) if (producer_id, each) in raised]
            for each in alone:
                yield entry._replace(partitions=frozenset((each,)), raised_epoch=raised[producer_id, each])
            rest = entry.partitions.difference(alone)
            if rest:
                yield entry._replace(partitions=rest)

    def raise_epoch(self, transaction: Transaction, partition: TopicPartition, epoch: int) -> None:
        """Let all markers of this producer for the partition have this coordinator epoch, until `forget`."""
        wanted = transaction.wanted
        raised = self._raised.setdefault(wanted.coordinator_partition, {})
        raised[wanted.marker.producer.producer_id, partition] = epoch

    def take(self, broker_id: int) -> list[Entry]:
        """The entries to send to a broker in one request.

        An answer names producers only, so a second marker of one producer waits for the next request.
        """
        producers: set[int] = set()
        taken: list[Entry] = []
        kept: list[Entry] = []
        for entry in self.live(self._queues.pop(broker_id, ())):
            producer_id = entry.transaction.wanted.marker.producer.producer_id
            (kept if producer_id in producers else taken).append(entry)
            producers.add(producer_id)
        if kept:
            self._queues[broker_id] = kept
        return taken

    def take_unknown(self) -> list[Entry]:
        """The entries whose leader was not known; to be routed again."""
        return self.live(self._queues.pop(UNKNOWN, ()))

    def live(self, entries: Iterable[Entry]) -> list[Entry]:
        """Those of the entries that have not been dropped or forgotten meanwhile."""
        return [entry for entry in entries if self._missing_of(entry.transaction) is not None]

    def written(self, entry: Entry) -> bool:
        """Note that partitions have their marker; whether somebody still wants to know."""
        missing = self._missing_of(entry.transaction)
        if missing is None:
            return False
        missing -= entry.partitions
        if not missing:
            self.drop(entry.transaction)
        return True

    def drop(self, transaction: Transaction) -> None:
        """Send no more markers of one transaction."""
        number = transaction.wanted.coordinator_partition
        transactions = self._missing.get(number, {})
        transactions.pop(transaction, None)
        if not transactions:
            self._missing.pop(number, None)

    def forget(self, coordinator_partition: int) -> None:
        """Drop the transactions of a partition of `__transaction_state`, also those that are being sent."""
        self._missing.pop(coordinator_partition, None)
        self._raised.pop(coordinator_partition, None)
        for broker_id, queue in list(self._queues.items()):
            kept = self.live(queue)
            if kept:
                self._queues[broker_id] = kept
            else:
                del self._queues[broker_id]

    def _missing_of(self, transaction: Transaction) -> set[TopicPartition] | None:
        return self._missing.get(transaction.wanted.coordinator_partition, {}).get(transaction)
