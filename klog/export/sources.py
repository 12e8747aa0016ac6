"""Where the records of a job come from: what plans its splits, and opens their files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from klog.export.options import ReadOptions
from klog.export.planner import plan
from klog.replicas.files import open_input
from klog.replicas.fingerprints import fingerprints
from klog.replicas.splits import Plan, Split


class Source(Protocol):
    """Files with batches. Picklable: a process or an executor gets a copy, and opens for itself what it
    needs.
    """

    def plan(self, options: ReadOptions) -> Plan:
        """What a job reads. Raises `KlogError`s."""

    def open(self, file: str) -> BinaryIO:
        """A file of a split, as a stream of plain batches that can seek. It raises only `StorageError`."""

    def fingerprints(self, splits: Iterable[Split]) -> Mapping[str, str | None]:
        """What tells whether the files of splits have changed since they were planned; of those that may."""


@dataclass(frozen=True, slots=True)
class ReplicaFiles:
    """Segments in directories and object stores."""

    def plan(self, options: ReadOptions) -> Plan:
        """As `klog.export.planner.plan`."""
        return plan(options)

    def open(self, file: str) -> BinaryIO:
        """A segment."""
        return open_input(file)

    def fingerprints(self, splits: Iterable[Split]) -> Mapping[str, str | None]:
        """Of all files: brokers compact and truncate them."""
        return fingerprints(splits)
