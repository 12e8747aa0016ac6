"""Checkpoint files: offsets of a log directory's partitions, and the leader epochs of one partition.

Rules: Kafka's `CheckpointFile`, `OffsetCheckpointFile` and `LeaderEpochCheckpointFile` (KIP-101). An empty
file is valid and has no entries. A wrong count is an error, because a broker takes the log directory offline
for it. The name of the file says which offset it holds (see `names`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from klog.formats.constants import CHECKPOINT_VERSION
from klog.formats.errors import FormatError, UnsupportedFormatError
from klog.formats.names import TopicPartition
from klog.formats.text_format import INT32, INT64, WORD, Line, TextField, TextFormat

_VERSION: Final = Line("{version}", "once", (TextField("version", INT32, "0"),))
_COUNT: Final = Line("{count}", "once", (TextField("count", INT32, "entries that follow"),))

OffsetCheckpointFile: Final = TextFormat(
    "offset checkpoint",
    (
        _VERSION,
        _COUNT,
        Line(
            "{topic} {partition} {offset}",
            "count times",
            (
                TextField("topic", WORD, "of the partition"),
                TextField("partition", INT32, "number"),
                TextField("offset", INT64, "recovery point, log start, high watermark or first dirty offset"),
            ),
            "one partition of this log directory; in no order",
        ),
    ),
    "An empty file has no entries. The four files differ in what the offset means, which is in their names.",
)
LeaderEpochFile: Final = TextFormat(
    "leader epoch checkpoint",
    (
        _VERSION,
        _COUNT,
        Line(
            "{epoch} {startOffset}",
            "count times",
            (
                TextField("epoch", INT32, "leader epoch"),
                TextField("startOffset", INT64, "first offset that this leader wrote"),
            ),
            "one epoch; both columns ascend",
        ),
    ),
    "An empty file has no entries.",
)


class OffsetEntry(NamedTuple):
    """The offset of one partition."""

    partition: TopicPartition
    offset: int


class EpochEntry(NamedTuple):
    """The first offset that the leader of an epoch wrote."""

    epoch: int
    start_offset: int


class OffsetCheckpoint(NamedTuple):
    """An offset checkpoint file with its entries in order; version None is an empty file."""

    entries: tuple[OffsetEntry, ...]
    version: int | None = CHECKPOINT_VERSION


class EpochCheckpoint(NamedTuple):
    """A leader epoch checkpoint file with its entries in order; version None is an empty file."""

    entries: tuple[EpochEntry, ...]
    version: int | None = CHECKPOINT_VERSION


def _read(definition: TextFormat, data: bytes) -> tuple[int | None, list[dict[str, int | str]]]:
    lines = definition.split(data)
    if not lines:
        return None, []
    version = _VERSION.read(lines[0][1], definition.title, lines[0][0])["version"]
    if version != CHECKPOINT_VERSION:
        raise UnsupportedFormatError(
            f"{definition.title}: version {version} is not defined (known: {CHECKPOINT_VERSION})",
            position_bytes=0,
        )
    # Kafka takes a file that ends here for empty.
    if len(lines) == 1:
        return CHECKPOINT_VERSION, []
    count = _COUNT.read(lines[1][1], definition.title, lines[1][0])["count"]
    entries = [definition.lines[2].read(text, definition.title, at) for at, text in lines[2:]]
    if len(entries) != count:
        raise FormatError(
            f"{definition.title}: {count} entries announced, but {len(entries)} are there",
            position_bytes=lines[1][0],
            cure="the file was cut or edited; a broker takes its log directory offline",
        )
    return CHECKPOINT_VERSION, entries


def _write(definition: TextFormat, version: int | None, rows: list[str]) -> bytes:
    if version is None:
        if rows:
            raise FormatError(f"{definition.title} cannot be written: entries, but no version")
        return b""
    lines = [_VERSION.write(version=version), _COUNT.write(count=len(rows)), *rows]
    return "".join(f"{line}\n" for line in lines).encode("utf-8")


def parse_offsets(data: bytes) -> OffsetCheckpoint:
    """An offset checkpoint file. Raises `FormatError`."""
    version, rows = _read(OffsetCheckpointFile, data)
    entries = (
        OffsetEntry(TopicPartition(str(row["topic"]), int(row["partition"])), int(row["offset"]))
        for row in rows
    )
    return OffsetCheckpoint(tuple(entries), version)


def build_offsets(checkpoint: OffsetCheckpoint) -> bytes:
    """The bytes of an offset checkpoint file."""
    line = OffsetCheckpointFile.lines[2]
    rows = [
        line.write(topic=entry.partition.topic, partition=entry.partition.partition, offset=entry.offset)
        for entry in checkpoint.entries
    ]
    return _write(OffsetCheckpointFile, checkpoint.version, rows)


def parse_epochs(data: bytes) -> EpochCheckpoint:
    """A leader epoch checkpoint file. Raises `FormatError`."""
    version, rows = _read(LeaderEpochFile, data)
    entries = (EpochEntry(int(row["epoch"]), int(row["startOffset"])) for row in rows)
    return EpochCheckpoint(tuple(entries), version)


def build_epochs(checkpoint: EpochCheckpoint) -> bytes:
    """The bytes of a leader epoch checkpoint file."""
    line = LeaderEpochFile.lines[2]
    rows = [line.write(epoch=entry.epoch, startOffset=entry.start_offset) for entry in checkpoint.entries]
    return _write(LeaderEpochFile, checkpoint.version, rows)
