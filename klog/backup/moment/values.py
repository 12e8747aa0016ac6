"""What is known of partitions around a moment, and the cut that is made of it. Times are in ms since 1970."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from klog.formats.names import TopicPartition
from klog.kernel.markers import Marker


class Basis(StrEnum):
    """How the end of a partition at a moment is known."""

    ARRIVAL = "arrival"  # a run read the partition, and nothing had to be decided by records
    TIMESTAMP = "timestamp"  # the timestamps of records
    OFFSET = "offset"  # it was given


@dataclass(frozen=True, slots=True)
class EndRule:
    """Where a partition ends. What lies below `lowest` had arrived. Nothing from `highest` on (None: open)
    is taken. Between both, the log ends before the first batch with a timestamp after `moment_ms` (None: at
    `highest`).
    """

    lowest: int
    highest: int | None = None
    moment_ms: int | None = None
    is_given: bool = False


class Gap(NamedTuple):
    """Offsets that are lost: a damaged object of the repository had them. The end is exclusive."""

    first_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """The part of a transaction that one partition has.

    Its batches lie from `first_offset` to before `end_offset`; both are the marker's offset if it has none.
    `first_ms` is the timestamp of its first batch, `previous_ms` that of the producer's marker before it (-1:
    none is known). `marker` ends it at `marker_offset`; both are None if the log ends before it. If it was
    open before a `gap`, this is the part before that, and a marker is added in the gap.
    """

    producer_id: int
    epoch: int
    first_offset: int
    end_offset: int
    first_ms: int
    previous_ms: int
    marker_offset: int | None = None
    marker: Marker | None = None
    gap: Gap | None = None

    @property
    def is_committed(self) -> bool:
        """Whether its COMMIT marker is known."""
        return self.marker is not None and not self.marker.aborted

    def ends_before(self, offset: int) -> bool:
        """Whether its marker lies before an offset."""
        return self.marker_offset is not None and self.marker_offset < offset

    def is_open_at(self, offset: int) -> bool:
        """Whether a log that ends at an offset has records of it, and no marker."""
        return self.first_offset < min(offset, self.end_offset) and not self.ends_before(offset)


@dataclass(frozen=True, slots=True)
class PartitionHistory:
    """A partition around a moment. `end_offset` is where it ends by the rule, `view_end` where all that is
    known of it ends. Everything that was acknowledged up to `complete_ms` is known. `leader_epoch` is that of
    the last batch before the end, -1 for none. `coordinator_epochs` are those of each producer's last marker.
    What was decided up to `decisions_lost_until_ms` may be lost in a gap, -1 if there is none. The log begins
    at `start_offset`: after the end, if all that was there at the moment had been deleted when a run read it.
    """

    end_offset: int
    view_end: int
    basis: Basis
    complete_ms: int
    transactions: tuple[Transaction, ...]
    coordinator_epochs: Mapping[int, int]
    leader_epoch: int = -1
    decisions_lost_until_ms: int = -1
    start_offset: int = 0


class AddedMarker(NamedTuple):
    """A marker that is added at the end of a partition or in a gap, for a transaction that began at
    `first_offset`.
    """

    producer_id: int
    epoch: int
    marker: Marker
    first_offset: int


@dataclass(frozen=True, slots=True)
class PartitionCut:
    """Where a partition ends. All batches below `end_offset` stay as they are, then `added` follow.

    `rule_end` is the end by time alone. It is another one if a transaction had to be whole (then the end is
    later), or could not be (then it is earlier). `gaps` have the markers that are added in gaps before it.
    """

    end_offset: int
    rule_end: int
    basis: Basis
    added: tuple[AddedMarker, ...] = ()
    gaps: Mapping[Gap, tuple[AddedMarker, ...]] = field(default_factory=dict)

    @property
    def restored_end(self) -> int:
        """The log end offset with the markers that are added."""
        return self.end_offset + len(self.added)


Cut = Mapping[TopicPartition, PartitionCut]
