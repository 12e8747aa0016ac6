"""The state of a recovery while it is planned: the segments, and what scans found.

`recovery` fills it, `recovery_indexes` reads it too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import BinaryIO

from klog.formats.checkpoints import EpochEntry
from klog.storage.files.files import open_for_reading
from klog.storage.files.partition_files import PartitionFiles
from klog.storage.reading.producer_state import AbortedTxn, pack_aborted
from klog.storage.repair.producer_snapshots import Snapshots
from klog.storage.repair.recovery_plan import Finding, RecoverySettings, Step
from klog.storage.repair.segment_scan import SegmentScan
from klog.storage.repair.segment_split import OpenSegment, Part, open_part
from klog.storage.repair.transient_files import ResolvedDirectory


@dataclass(slots=True)
class Recovered:
    """A segment that was scanned, with the other results of the scan."""

    scan: SegmentScan
    epochs: list[EpochEntry]
    aborted: tuple[AbortedTxn, ...]
    lone_aborts: frozenset[tuple[int, int]]
    at_load: bool  # recovered while loading, because an index is missing or unusable

    @property
    def valid_bytes(self) -> int:
        """The size of the segment afterwards."""
        return 0 if self.scan.disordered else self.scan.valid_bytes

    @property
    def txn_index(self) -> bytes:
        """The content of its transaction index."""
        return b"" if self.scan.disordered else pack_aborted(self.aborted)

    @property
    def next_offset(self) -> int:
        """The offset after its last record."""
        return self.scan.base_offset if self.scan.disordered else self.scan.next_offset


@dataclass(slots=True)
class Recovery:
    """What is known of the partition so far; each step of recovery adds to it."""

    files: PartitionFiles
    settings: RecoverySettings
    resolved: ResolvedDirectory
    snapshots: Snapshots
    findings: list[Finding]
    recovered: dict[int, Recovered] = field(default_factory=dict)
    removed: list[int] = field(default_factory=list)
    unindexed: set[int] = field(default_factory=set)
    held_bytes: int = 0
    parts: dict[str, Part] = field(default_factory=dict)
    splits: list[Step] = field(default_factory=list)

    def open(self, path: str) -> BinaryIO:
        """The segment at `path`; it may be a part of another file until the plan is carried out."""
        return opener(self.parts)(path)

    @property
    def segments(self) -> dict[int, str]:
        """Paths of the segments that the log keeps, by base offset."""
        return {base: path for base, path in self.resolved.segments.items() if base not in self.removed}


def opener(parts: dict[str, Part]) -> OpenSegment:
    """Opens segments, and those of `parts` as the parts of a file that they still are."""
    return lambda path: open_part(parts[path]) if path in parts else open_for_reading(path)
