"""Summaries: what a range of backups holds, so that many manifests need not be read.

A summary repeats what manifests and states say, which never changes. So it may be removed at any time, and
there may be several of one backup. Whether a backup exists is only said by its manifest's name.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from klog.backup.documents import Document
from klog.backup.model import Manifest, PartitionRef
from klog.cluster_metadata.json_codecs import (
    INT64,
    TEXT,
    Codec,
    Member,
    array,
    integer,
    mapping,
    optional,
    structure,
)
from klog.formats.constants import INT64_MAX
from klog.formats.errors import FormatError
from klog.formats.names import TopicPartition

Ranges = tuple[int, ...]
"""Ascending numbers of backups: a first one, an end (exclusive), a first one, and so on."""


@dataclass(frozen=True, slots=True)
class BackupSummary:
    """What a list shows of a backup. `size_bytes` is that of the logs, `problems` how many the run had."""

    id: str
    begin_ms: int
    end_ms: int
    topics: int
    partitions: int
    size_bytes: int
    stored_bytes: int
    problems: int


@dataclass(frozen=True, slots=True)
class Summary:
    """Some backups by their ids, and which of them have a topic. `objects` is the name of a `ObjectUse`."""

    backups: tuple[BackupSummary, ...]
    topics: Mapping[str, Ranges]
    objects: str | None = None


@dataclass(frozen=True, slots=True)
class ObjectUse:
    """Which of the backups of a summary need an object. Those that all of them need may be left out."""

    objects: Mapping[str, Ranges]

    def of(self, numbers: Iterable[int]) -> dict[str, int]:
        """The objects that any of some backups needs, each with the last of them that does, without those
        that all need.
        """
        wanted = sorted(numbers)
        found = {}
        for name, ranges in self.objects.items():
            for first, end in pairs(ranges):
                last = bisect_left(wanted, end)
                if bisect_left(wanted, first) < last:
                    found[name] = wanted[last - 1]
        return found


def pairs(ranges: Ranges) -> Iterable[tuple[int, int]]:
    """The ranges, each with its first number and its end."""
    return zip(ranges[::2], ranges[1::2], strict=True)


def joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Ranges in any order as ascending ones that do not touch."""
    found: list[int] = []
    for first, end in sorted(ranges):
        if found and first <= found[-1]:
            found[-1] = max(found[-1], end)
        else:
            found += (first, end)
    return tuple(found)


@dataclass(slots=True)
class Growing:
    """Collects ranges of numbers that come in their order."""

    _ranges: dict[Any, list[int]] = field(default_factory=dict)

    def add(self, key: object, number: int) -> None:
        """A key has a number."""
        found = self._ranges.setdefault(key, [])
        if found and found[-1] == number:
            found[-1] += 1
        elif not found or found[-1] < number:
            found += (number, number + 1)

    def items(self) -> Iterable[tuple[Any, Ranges]]:
        """Each key with its ranges."""
        return ((key, tuple(found)) for key, found in self._ranges.items())


def summary_of(manifest: Manifest, refs: Mapping[TopicPartition, PartitionRef]) -> BackupSummary:
    """What a list shows of a backup with these partitions."""
    return BackupSummary(
        manifest.id,
        manifest.begin_ms,
        manifest.end_ms,
        len({partition.topic for partition in refs}),
        len(refs),
        sum(ref.size_bytes for ref in refs.values()),
        manifest.stored_bytes,
        len(manifest.problems),
    )


# -- Documents ----------------------------------------------------------------------------------------------

_COUNT: Final = integer(0, INT64_MAX)


def _decode_ranges(value: Any, place: str) -> Ranges:  # noqa: ANN401 (JSON)
    numbers: Ranges = array(_COUNT).decode(value, place)
    if len(numbers) % 2 or any(one >= other for one, other in pairwise(numbers)):
        raise FormatError(f"{place} has ranges that do not ascend")
    return numbers


_RANGES: Final = Codec(list, _decode_ranges)
_BACKUP: Final = structure(
    BackupSummary,
    id=Member("id", TEXT),
    begin_ms=Member("beginMs", INT64),
    end_ms=Member("endMs", INT64),
    topics=Member("topics", _COUNT),
    partitions=Member("partitions", _COUNT),
    size_bytes=Member("sizeBytes", _COUNT),
    stored_bytes=Member("storedBytes", _COUNT),
    problems=Member("problems", _COUNT, 0),
)
_SUMMARY: Final = structure(
    Summary,
    backups=Member("backups", array(_BACKUP)),
    topics=Member("topics", mapping(_RANGES)),
    objects=Member("objects", optional(TEXT), None),
)
_OBJECT_USE: Final = structure(ObjectUse, objects=Member("objects", mapping(_RANGES)))

SUMMARY: Final[Document[Summary]] = Document("klog backup summary", _SUMMARY, is_packed=True)
OBJECT_USE: Final[Document[ObjectUse]] = Document("klog backup needs", _OBJECT_USE, is_packed=True)
