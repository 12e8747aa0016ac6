"""Tasks of a conversion and their results: values that are sent to other processes, and kept as JSON.

A task makes one or more segments of a range of a log. Tasks are independent: where one ends and the next one
begins, no batches are joined, whatever else the log holds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from klog.convert.options import ConvertOptions
from klog.formats.checkpoints import EpochEntry
from klog.formats.errors import KlogError
from klog.formats.names import FileKind, TopicPartition, segment_file
from klog.replicas.splits import Split


class Source(NamedTuple):
    """The batches of a segment that start at positions `start_bytes` to before `end_bytes`."""

    base_offset: int
    start_bytes: int
    end_bytes: int
    size_bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class ConvertTask:
    """Batches of one log, and what to make of them.

    `base_offset` is the name of the first new segment (None: the offset of its first batch). The files are
    written into `target`; until they are swapped in, their names end in `.cleaned`. A piece of a task has
    the task's number as `whole`; its segments are merged, so they need not survive a crash of the machine.
    """

    number: int
    partition: TopicPartition
    directory: str
    target: str
    base_offset: int | None
    sources: tuple[Source, ...]
    options: ConvertOptions
    epochs: tuple[EpochEntry, ...] = ()
    whole: int | None = None

    @property
    def index_interval_bytes(self) -> int:
        """The topic's `index.interval.bytes`."""
        return self.options.index_interval_bytes

    @property
    def size_bytes(self) -> int:
        """Bytes of the originals."""
        return sum(source.end_bytes - source.start_bytes for source in self.sources)

    def path(self, kind: FileKind, base_offset: int) -> str:
        """A new file."""
        return os.path.join(self.target, segment_file(kind, base_offset))

    def source_path(self, kind: FileKind, source: Source) -> str:
        """A file of the original."""
        return os.path.join(self.directory, segment_file(kind, source.base_offset))

    @property
    def split(self) -> Split:
        """The task as runners of jobs know tasks: for grouping, and for messages."""
        first, last = self.sources[0], self.sources[-1]
        return Split(
            number=self.number,
            topic=self.partition.topic,
            partition=self.partition.partition,
            file=self.source_path(FileKind.LOG, first),
            base_offset=first.base_offset,
            start_bytes=first.start_bytes,
            end_bytes=first.start_bytes + self.size_bytes,
            first_offset=first.base_offset,
            end_offset=last.base_offset + 1,
        )

    def to_json(self) -> dict[str, Any]:
        """The task as JSON values."""
        return {
            "number": self.number,
            "partition": self.partition,
            "directory": self.directory,
            "target": self.target,
            "baseOffset": self.base_offset,
            "sources": self.sources,
            "options": asdict(self.options),
            "epochs": self.epochs,
        }


class NewSegment(NamedTuple):
    """A finished segment, whose files are on disk. `files` are the kinds of its files."""

    base_offset: int
    next_offset: int
    size_bytes: int
    files: tuple[str, ...]

    @classmethod
    def from_json(cls, values: Sequence[Any]) -> NewSegment:
        """The segment that JSON has as an array."""
        base_offset, next_offset, size_bytes, files = values
        return cls(base_offset, next_offset, size_bytes, tuple(files))


@dataclass(frozen=True, slots=True)
class Failure:
    """A task that failed."""

    number: int
    error: KlogError


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What a task made. `has_producers` says whether a batch has a producer id.

    `records_compared` is the number of records that were compared with the originals (None: they were not).
    """

    number: int
    segments: tuple[NewSegment, ...]
    batches_read: int
    batches_written: int
    has_producers: bool
    records_compared: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The result as JSON values."""
        return {
            "number": self.number,
            "segments": self.segments,
            "batchesRead": self.batches_read,
            "batchesWritten": self.batches_written,
            "hasProducers": self.has_producers,
            "recordsCompared": self.records_compared,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TaskResult:
        """The result that `to_json` wrote."""
        return cls(
            values["number"],
            tuple(NewSegment.from_json(one) for one in values["segments"]),
            values["batchesRead"],
            values["batchesWritten"],
            values["hasProducers"],
            values["recordsCompared"],
        )
