"""What recovery will do to a partition directory, as values: files set aside, the truncation, files
rewritten.

`recovery` makes a plan from what is on disk, `recovery_run` carries it out, and a dry run shows it. The steps
are in the order in which they must happen: if a run is killed anywhere and started again, the result is the
same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from klog.formats.names import FileKind
from klog.storage.reading.producer_history import DEFAULT_PRODUCER_EXPIRATION_MS
from klog.storage.repair.segment_scan import IndexSettings


@dataclass(frozen=True, slots=True)
class RecoverySettings:
    """How to recover. Segments below `recovery_point` are trusted (0: none; None: all, after a clean stop).

    `log_start_offset` is the partition's offset in `log-start-offset-checkpoint`, 0 without an entry.
    `now_ms` decides which producers have expired. `finds_producers` is false if the caller finds out the
    producers at the log's end when it opens the log. With `keeps_valid` no file is touched that `klog verify`
    calls valid, though Kafka would write it again with other content.
    """

    now_ms: int
    index: IndexSettings = field(default_factory=IndexSettings)
    producer_expiration_ms: int = DEFAULT_PRODUCER_EXPIRATION_MS
    recovery_point: int | None = 0
    log_start_offset: int = 0
    finds_producers: bool = True
    keeps_valid: bool = False


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
    """End a `.log` at `valid_bytes`; the bytes after it are moved into the quarantine."""

    name: str
    valid_bytes: int
    size_bytes: int
    why: str


@dataclass(frozen=True, slots=True)
class Trim:
    """End a `.log` at `valid_bytes`. Zeros follow, as after a crash of a broker that pre-allocates its
    segments.
    """

    name: str
    valid_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SplitOff:
    """Write a part of the `.log` `source` as a segment of its own; `source` is not changed."""

    name: str
    source: str
    start_bytes: int
    end_bytes: int


@dataclass(frozen=True, slots=True)
class Write:
    """Write the content of a derived file; its old content is moved into the quarantine."""

    name: str
    data: bytes
    why: str


@dataclass(frozen=True, slots=True)
class WriteIndexes:
    """Write offset and time index of a segment from its valid batches; they are too large for the plan."""

    base_offset: int
    valid_bytes: int
    why: str
    kinds: tuple[FileKind, ...] = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)


Step = SetAside | SwapIn | Cut | Trim | SplitOff | Write | WriteIndexes

REFUSES: Final = "refuses to start"
EMPTIES: Final = "empties the segment and deletes all later ones"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that recovery found: the file, what it is, and what Kafka does about it."""

    name: str
    what: str
    kafka: str
    position_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """Everything that recovery does to one partition directory, in order.

    `log_end_offset` is the end of the log afterwards, `segments` the number of its segments. A plan without
    steps changes nothing.
    """

    path: str
    steps: tuple[Step, ...]
    findings: tuple[Finding, ...]
    log_start_offset: int
    log_end_offset: int
    segments: int

    @property
    def takes_away(self) -> bool:
        """Whether a file or a part of one leaves the directory."""
        return any(isinstance(step, SetAside | Cut) for step in self.steps)

    @property
    def kafka_refuses(self) -> Finding | None:
        """The reasons why Kafka would not start on this directory."""
        return next((finding for finding in self.findings if finding.kafka.startswith(REFUSES)), None)
