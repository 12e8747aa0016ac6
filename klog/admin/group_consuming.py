"""Reads topics as a member of a consumer group: from committed offsets on, and commits as it reads.

Rules: Kafka's consumer. A partition without a committed offset starts where auto.offset.reset says. Offsets
are committed at an interval, before partitions are given up, and at the end. Only records that the caller has
taken are committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from klog.admin.consuming import OnJump, PartitionReader, ReadPlan, ReadRange, Run, poll_once
from klog.client.cluster import Cluster
from klog.client.errors import ClientError, RefusedError
from klog.client.fetcher import Fetcher
from klog.client.groups import CommittedOffset, fetch_offsets
from klog.client.membership import GroupMember
from klog.client.offsets import list_offsets
from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition
from klog.protocol.offset_times import EARLIEST, LATEST
from klog.storage.reading.reader import OnProblem

_IDLE_PAUSE_S: Final = 0.5


class Reset(StrEnum):
    """Kafka's auto.offset.reset: where to start without a committed offset."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """How to read in a group. `commit_interval_ms` None commits nothing; `flush` runs before each commit."""

    group_id: str
    reset: Reset
    commit_interval_ms: int | None
    flush: Callable[[], object]
    on_lost: Callable[[], object]
    """Called if a commit is refused because the member has lost its partitions."""


class GroupReading:
    """Reads as one member. `runs` gives records, `took` says how far the caller has got, `close` leaves."""

    def __init__(
        self,
        cluster: Cluster,
        member: GroupMember,
        plan: ReadPlan,
        group: GroupPlan,
        on_problem: OnProblem,
        on_jump: OnJump,
    ) -> None:
        self._cluster = cluster
        self._member = member
        self._plan = plan
        self._group = group
        self._on_problem = on_problem
        self._on_jump = on_jump
        self._fetcher = Fetcher(cluster, {}, plan.fetch)
        self._readers: dict[TopicPartition, PartitionReader] = {}
        self._ranges: dict[TopicPartition, ReadRange] = {}
        self._taken: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._committed_s = cluster.clock.monotonic_s()

    def runs(self) -> Iterator[Run]:
        """The records of the member's partitions, which change as members come and go.

        Without `follow` it ends when all partitions have been read to the ends that they had when the member
        got them. Raises ClientError, ChannelError.
        """
        clock = self._cluster.clock
        idle_since_s = clock.monotonic_s()
        while True:
            if self._member.must_join:
                self._join()
                idle_since_s = clock.monotonic_s()
            if self._fetcher.positions:
                for run in self._poll():
                    yield run
                    idle_since_s = clock.monotonic_s()
            elif self._plan.follow:
                clock.sleep_s(_IDLE_PAUSE_S)
            else:
                return
            self._commit_if_due()
            self._member.heartbeat()
            idle_ms = (clock.monotonic_s() - idle_since_s) * 1000
            if self._plan.idle_timeout_ms is not None and idle_ms > self._plan.idle_timeout_ms:
                return

    def took(self, partition: TopicPartition, next_offset: int) -> None:
        """The caller is done with the records before this offset."""
        self._taken[partition] = next_offset

    def close(self, *, interrupted: bool, commit: bool) -> None:
        """Commit what was taken, if it is to be, and leave the group. Raises ClientError, ChannelError."""
        if interrupted:
            self._cluster.close()  # an answer may still be to come on a connection; it opens again
        try:
            if commit:
                self.commit()
        finally:
            self._member.leave()

    # -- partitions ------------------------------------------------------------------------------------------

    def _join(self) -> None:
        """Get the member's partitions, and start to read those that are new."""
        self.commit()
        if not self._member.keeps_partitions:
            self._member.assigned = frozenset()
        held = self._member.assigned
        self._member.join()
        assigned = self._member.assigned
        kept = held & assigned & self._ranges.keys()
        for partition in self._ranges.keys() - kept:
            for known in (self._ranges, self._readers, self._taken, self._committed):
                known.pop(partition, None)
        new = sorted(assigned - kept)
        starts = self._starts(new)
        ends = {} if self._plan.follow else self._ends(new)
        for partition in new:
            if partition not in self._committed:
                # Otherwise a member that starts at the end, and gets no record, would start there again.
                self._taken[partition] = starts[partition]
            self._ranges[partition] = ReadRange(starts[partition], ends.get(partition))
            self._readers[partition] = PartitionReader(
                partition, self._ranges[partition], self._plan, self._on_problem
            )
        going_on = {each: at for each, at in self._fetcher.positions.items() if each in kept}
        unread = {each: at for each, at in starts.items() if not self._ranges[each].is_empty}
        self._fetcher = Fetcher(self._cluster, going_on | unread, self._plan.fetch)

    def _starts(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """The committed offset of each partition, or where `reset` says."""
        if not partitions:
            return {}
        group_id = self._group.group_id
        retry = self._cluster.new_retry()
        while True:
            committed = fetch_offsets(self._cluster, [group_id], stable=True)[group_id]
            if not isinstance(committed, KlogError):
                break
            # The offsets of an open transaction are not known before it ends.
            if not (isinstance(committed, RefusedError) and committed.code.retriable):
                raise committed
            retry.failed(committed)
        found = {each: committed[each].offset for each in partitions if each in committed}
        self._committed |= found
        if missing := [each for each in partitions if each not in found]:
            if self._group.reset is Reset.NONE:
                raise ClientError(
                    f"group {group_id} has no committed offset for {missing[0]}",
                    cure="auto.offset.reset=earliest or latest says where to start",
                )
            time = EARLIEST if self._group.reset is Reset.EARLIEST else LATEST
            found |= list_offsets(self._cluster, dict.fromkeys(missing, time), self._plan.fetch.isolation)
        return found

    def _ends(self, partitions: list[TopicPartition]) -> Mapping[TopicPartition, int]:
        return list_offsets(self._cluster, dict.fromkeys(partitions, LATEST), self._plan.fetch.isolation)

    # -- records ---------------------------------------------------------------------------------------------

    def _poll(self) -> Iterator[Run]:
        """What the leaders give now."""
        for run in poll_once(self._fetcher, self._readers, self._ranges, self._on_jump):
            partition = run.partition  # the run is used again
            yield run
            self._member.heartbeat()
            if partition not in self._member.assigned:
                return  # the member was lost: what is left belongs to others
        # Past the last record there may be markers of transactions, and records that were compacted away.
        for partition, reader in self._readers.items():
            stop = self._ranges[partition].stop
            position = reader.next_offset if stop is None else min(reader.next_offset, stop)
            if position > self._taken.get(partition, self._ranges[partition].start):
                self._taken[partition] = position

    # -- commits ---------------------------------------------------------------------------------------------

    def _commit_if_due(self) -> None:
        interval_ms = self._group.commit_interval_ms
        since_ms = (self._cluster.clock.monotonic_s() - self._committed_s) * 1000
        if interval_ms is not None and since_ms >= interval_ms:
            self.commit()

    def commit(self) -> None:
        """Commit what the caller has taken and is not committed yet. Raises ClientError, ChannelError."""
        if self._group.commit_interval_ms is None:
            return
        self._committed_s = self._cluster.clock.monotonic_s()
        wanted = {
            partition: offset
            for partition, offset in self._taken.items()
            if self._committed.get(partition) != offset
        }
        if not wanted:
            return
        self._group.flush()
        if self._member.commit({each: CommittedOffset(offset) for each, offset in wanted.items()}):
            self._committed |= wanted
        else:
            self._group.on_lost()
