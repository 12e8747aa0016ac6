"""What recovery will do to a partition directory, as values: files set aside, the cut, files written anew.

A plan is made by `recovery` from what is on disk and carried out by `recovery_run`; a dry run shows it.
Steps are in the order in which they must happen: a run that is killed anywhere and started again ends in
the same state.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from klog.storage.producer_state import DEFAULT_PRODUCER_EXPIRATION_MS
from klog.storage.segment_scan import IndexSettings


@dataclass(frozen=True, slots=True)
class RecoverySettings:
    """How to recover. `recovery_point` is the offset below which segments are trusted (0: none are; None: all
    are, for the broker stopped cleanly).

    `log_start_offset` is what `log-start-offset-checkpoint` says of the partition, 0 where it says nothing.
    `now_ms` decides which producers have expired. `finds_producers` is false where whoever opens the log then
    finds out what they are at its end.
    """

    now_ms: int
    index: IndexSettings = field(default_factory=IndexSettings)
    producer_expiration_ms: int = DEFAULT_PRODUCER_EXPIRATION_MS
    recovery_point: int | None = 0
    log_start_offset: int = 0
    finds_producers: bool = True


@dataclass(frozen=True, slots=True)
class SetAside:
    """Move a file into the quarantine."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class SwapIn:
    """Give the finished output of the cleaner its final name."""

    name: str
    target: str


@dataclass(frozen=True, slots=True)
class Cut:
    """End a `.log` at `valid_bytes`; what follows goes into the quarantine."""

    name: str
    valid_bytes: int
    size_bytes: int
    why: str


@dataclass(frozen=True, slots=True)
class Trim:
    """End a `.log` at `valid_bytes`; what follows are zeros, as after a crash of a broker that allocates its
    segments.
    """

    name: str
    valid_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SplitOff:
    """Write a part of the `.log` `source` as a segment of its own; `source` stays as it is."""

    name: str
    source: str
    start_bytes: int
    end_bytes: int


@dataclass(frozen=True, slots=True)
class Write:
    """Give a derived file this content; what it held before goes into the quarantine."""

    name: str
    data: bytes
    why: str


@dataclass(frozen=True, slots=True)
class WriteIndexes:
    """Write offset and time index of a segment anew from its sound batches (too large for the plan)."""

    base_offset: int
    valid_bytes: int
    why: str


Step = SetAside | SwapIn | Cut | Trim | SplitOff | Write | WriteIndexes

REFUSES: Final = "refuses to start"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that recovery met: what and where, and what Kafka makes of it."""

    name: str
    what: str
    kafka: str
    position_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """All that recovery does to one partition directory, in order.

    `log_end_offset` is where the log ends afterwards, `segments` how many it has. Nothing to do: no steps.
    """

    path: str
    steps: tuple[Step, ...]
    findings: tuple[Finding, ...]
    log_start_offset: int
    log_end_offset: int
    segments: int

    @property
    def takes_away(self) -> bool:
        """Whether any file or part of one leaves the directory."""
        return any(isinstance(step, SetAside | Cut) for step in self.steps)

    @property
    def kafka_refuses(self) -> Finding | None:
        """What keeps Kafka from starting on this directory, if anything does."""
        return next((finding for finding in self.findings if finding.kafka.startswith(REFUSES)), None)
