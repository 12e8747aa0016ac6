"""The offsets that one group has committed, is committing, or may commit with a transaction.

Rules: Kafka's `GroupMetadata` (offsets, pendingOffsetCommits, pendingTransactionalOffsetCommits); KIP-98,
KIP-211 (expiry), KIP-447 (requireStable). A commit counts when its records are replicated. Of two commits the
one with the larger offset in `__consumer_offsets` wins, whichever is acknowledged first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from klog.coordinator.groups.offsets.offset_loading import StoredOffset
from klog.coordinator.groups.values import (
    CONSUMER_PROTOCOL,
    NO_TIMESTAMP,
    CommittedOffset,
    FetchedOffset,
    GroupState,
)
from klog.formats.names import PartitionKey
from klog.protocol.error_codes import ErrorCode

_UNSTABLE: Final = FetchedOffset(error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
_UNKNOWN: Final = FetchedOffset()

Commits = Mapping[PartitionKey, CommittedOffset]


class _Pending(NamedTuple):
    """An offset of an open transaction, and the offset of its record's batch."""

    commit: CommittedOffset
    written_at: int


# The commits that are being written. One that fails takes no other of its partition with it.
_InFlight = dict[PartitionKey, list[CommittedOffset]]


def _add(in_flight: _InFlight, commits: Commits) -> None:
    for key, commit in commits.items():
        in_flight.setdefault(key, []).append(commit)


def _take(in_flight: _InFlight, key: PartitionKey, commit: CommittedOffset) -> bool:
    """Remove this commit. False if it is not there any more."""
    waiting = in_flight.get(key, [])
    # Another commit may be equal: two requests are two commits.
    for index, each in enumerate(waiting):
        if each is commit:
            del waiting[index]
            if not waiting:
                del in_flight[key]
            return True
    return False


class _Transaction:
    """The offsets of one producer's open transaction."""

    def __init__(self) -> None:
        self.in_flight: _InFlight = {}
        self.written: dict[PartitionKey, _Pending] = {}

    @property
    def is_empty(self) -> bool:
        return not (self.in_flight or self.written)

    def __contains__(self, key: PartitionKey) -> bool:
        return key in self.written or key in self.in_flight

    def forget(self, key: PartitionKey) -> None:
        self.in_flight.pop(key, None)
        self.written.pop(key, None)


@dataclass(frozen=True, slots=True)
class GroupView:
    """What the expiry of offsets depends on. `subscribed` is None if the topics are not known."""

    state: GroupState
    state_since_ms: int
    protocol_type: str | None
    subscribed: Collection[str] | None


class GroupOffsets:
    """The offsets of one group. Not safe for threads."""

    __slots__ = ("_in_flight", "_stored", "_transactional")

    def __init__(self) -> None:
        self._stored: dict[PartitionKey, StoredOffset] = {}
        self._in_flight: _InFlight = {}
        # By producer id, until its transaction ends.
        self._transactional: dict[int, _Transaction] = {}

    @property
    def count(self) -> int:
        """How many partitions have an offset."""
        return len(self._stored)

    def positions(self) -> list[tuple[PartitionKey, int]]:
        """The partitions and their offsets as they are now; safe without a lock."""
        return [(key, stored.offset) for key, stored in list(self._stored.items())]

    @property
    def is_empty(self) -> bool:
        """Whether nothing is committed, and nothing is about to be."""
        return not (self._stored or self._in_flight or self._transactional)

    # -- commits ---------------------------------------------------------------------------------------------

    def begin(self, commits: Commits) -> None:
        """The records of these commits are being written."""
        _add(self._in_flight, commits)

    def written(self, commits: Commits, batch_offset: int) -> None:
        """The records are replicated; their batch is at `batch_offset`."""
        for key, commit in commits.items():
            if _take(self._in_flight, key, commit):
                self._store(key, StoredOffset(*commit, batch_offset))

    def failed(self, commits: Commits) -> None:
        """The records of these commits could not be written."""
        for key, commit in commits.items():
            _take(self._in_flight, key, commit)

    def _store(self, key: PartitionKey, new: StoredOffset) -> None:
        old = self._stored.get(key)
        if old is None or old.written_at < new.written_at:
            self._stored[key] = new

    def store_all(
        self,
        keys: Sequence[PartitionKey],
        offsets: Iterable[tuple[int, int, str]],
        now_ms: int,
        first_offset: int,
    ) -> None:
        """Take commits that are acknowledged already, one after the other from `first_offset` on.

        Each has its offset, leader epoch and metadata. None of them expires at a time of its own.
        """
        stored = self._stored
        written_at = first_offset
        for key, (offset, leader_epoch, metadata) in zip(keys, offsets, strict=True):
            # Nothing was written after them, so they are the newest.
            stored[key] = StoredOffset(offset, leader_epoch, metadata, now_ms, NO_TIMESTAMP, written_at)
            written_at += 1

    def begin_transactional(self, producer_id: int, commits: Commits) -> None:
        """The records of these commits of an open transaction are being written."""
        _add(self._transaction(producer_id).in_flight, commits)

    def written_transactional(self, producer_id: int, commits: Commits, batch_offset: int) -> None:
        """The records are replicated. They count when the transaction is committed."""
        transaction = self._transactional.get(producer_id)
        if transaction is None:
            return  # it has ended meanwhile
        for key, commit in commits.items():
            if _take(transaction.in_flight, key, commit):
                known = transaction.written.get(key)
                if known is None or known.written_at < batch_offset:
                    transaction.written[key] = _Pending(commit, batch_offset)

    def failed_transactional(self, producer_id: int, commits: Commits) -> None:
        """The records could not be written. What was written before stays a part of the transaction."""
        transaction = self._transactional.get(producer_id)
        if transaction is None:
            return
        for key, commit in commits.items():
            _take(transaction.in_flight, key, commit)
        if transaction.is_empty:
            del self._transactional[producer_id]

    @property
    def open_producers(self) -> Iterable[int]:
        """The producers with offsets in a transaction that is open."""
        return self._transactional.keys()

    def complete(self, producer_id: int, *, committed: bool) -> None:
        """A transaction has ended: its commits count, or are dropped."""
        transaction = self._transactional.pop(producer_id, None)
        if transaction is not None and committed:
            for key, (commit, written_at) in transaction.written.items():
                self._store(key, StoredOffset(*commit, written_at))

    def _transaction(self, producer_id: int) -> _Transaction:
        found = self._transactional.get(producer_id)
        if found is None:
            found = self._transactional[producer_id] = _Transaction()
        return found

    # -- loading ---------------------------------------------------------------------------------------------

    def loaded(self) -> dict[PartitionKey, StoredOffset]:
        """The committed offsets, for `OffsetLoader`."""
        return self._stored

    def load(
        self, key: PartitionKey, commit: CommittedOffset, batch_offset: int, producer_id: int | None
    ) -> None:
        """Take a commit from the log; `producer_id` is that of the transaction that it is part of."""
        if producer_id is None:
            self._stored[key] = StoredOffset(*commit, batch_offset)
        else:
            self._transaction(producer_id).written[key] = _Pending(commit, batch_offset)

    def load_removal(self, key: PartitionKey, producer_id: int | None) -> None:
        """Take from the log that an offset was removed."""
        if producer_id is None:
            self._stored.pop(key, None)
        elif producer_id in self._transactional:
            self._transactional[producer_id].forget(key)

    # -- reading ---------------------------------------------------------------------------------------------

    def committed(self) -> dict[PartitionKey, CommittedOffset]:
        """All committed offsets."""
        return {key: _commit(stored) for key, stored in self._stored.items()}

    def fetch(
        self, keys: Iterable[PartitionKey] | None, *, require_stable: bool
    ) -> dict[PartitionKey, FetchedOffset]:
        """The answers for these partitions, or for all that have an offset."""
        return {
            key: self._fetch(key, require_stable=require_stable)
            for key in (list(self._stored) if keys is None else keys)
        }

    def _fetch(self, key: PartitionKey, *, require_stable: bool) -> FetchedOffset:
        if require_stable and self._is_pending(key):
            return _UNSTABLE
        stored = self._stored.get(key)
        if stored is None:
            return _UNKNOWN
        return FetchedOffset(stored.offset, stored.leader_epoch, stored.metadata)

    def _is_pending(self, key: PartitionKey) -> bool:
        return key in self._in_flight or any(key in each for each in self._transactional.values())

    # -- removal ---------------------------------------------------------------------------------------------

    def remove(self, keys: Iterable[PartitionKey]) -> list[PartitionKey]:
        """Forget offsets, also those that are about to be committed; those that were committed."""
        removed = []
        for key in keys:
            self._in_flight.pop(key, None)
            for transaction in self._transactional.values():
                transaction.forget(key)
            if self._stored.pop(key, None) is not None:
                removed.append(key)
        self._transactional = {id_: each for id_, each in self._transactional.items() if not each.is_empty}
        return removed

    def remove_all(self) -> list[PartitionKey]:
        """Forget all; those that were committed."""
        removed = list(self._stored)
        self._stored.clear()
        self._in_flight.clear()
        self._transactional.clear()
        return removed

    def remove_expired(self, group: GroupView, now_ms: int, retention_ms: int) -> list[PartitionKey]:
        """Forget the offsets that have expired; which."""
        expired = [
            key
            for key, stored in self._stored.items()
            if key not in self._in_flight and _has_expired(group, key[0], stored, now_ms, retention_ms)
        ]
        for key in expired:
            del self._stored[key]
        return expired


def _commit(stored: StoredOffset) -> CommittedOffset:
    return CommittedOffset(
        stored.offset,
        stored.leader_epoch,
        stored.metadata,
        stored.commit_timestamp_ms,
        stored.expire_timestamp_ms,
    )


def _has_expired(group: GroupView, topic: str, commit: StoredOffset, now_ms: int, retention_ms: int) -> bool:
    """Whether an offset is past its retention.

    For a group that has become empty it counts from then, for one that was never more than its offsets from
    the commit. A group with members keeps the offsets of topics that it subscribes to.
    """
    since_ms = commit.commit_timestamp_ms
    if group.protocol_type is not None:
        if group.state is GroupState.EMPTY:
            since_ms = since_ms if group.state_since_ms == NO_TIMESTAMP else group.state_since_ms
        elif (
            group.state is not GroupState.STABLE
            or group.protocol_type != CONSUMER_PROTOCOL
            or group.subscribed is None
            or topic in group.subscribed
        ):
            return False
    if commit.expire_timestamp_ms != NO_TIMESTAMP:
        return now_ms >= commit.expire_timestamp_ms
    return now_ms - since_ms >= retention_ms
