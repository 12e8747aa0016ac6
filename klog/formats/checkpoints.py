"""Checkpoint files: offsets of a log directory's partitions, and the leader epochs of one partition.

They are read and written as their definitions (`checkpoint_files`) say, from which the lines are derived.

Rules: Kafka's `CheckpointFile`, `OffsetCheckpointFile` and `LeaderEpochCheckpointFile` (KIP-101). An empty
file is valid and has no entries. A wrong count is an error, because a broker takes the log directory offline
for it. The name of the file says which offset it holds (see `names`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from klog.formats.constants import CHECKPOINT_VERSION
from klog.formats.errors import FormatError, UnsupportedFormatError
from klog.formats.names import TopicPartition
from klog.formats.text_format import TextFormat, derived_line

_OFFSETS: Final = TextFormat(
    "offset checkpoint",
    tuple(derived_line(f"OffsetCheckpointFile.{line}") for line in ("version", "count", "entries")),
)
_EPOCHS: Final = TextFormat(
    "leader epoch checkpoint",
    tuple(derived_line(f"LeaderEpochFile.{line}") for line in ("version", "count", "entries")),
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
    first, second, entry = definition.lines
    version = first.read(lines[0][1], definition.title, lines[0][0])["version"]
    if version != CHECKPOINT_VERSION:
        raise UnsupportedFormatError(
            f"{definition.title}: version {version} is not defined (known: {CHECKPOINT_VERSION})",
            position_bytes=0,
        )
    # Kafka takes a file that ends here for empty.
    if len(lines) == 1:
        return CHECKPOINT_VERSION, []
    count = second.read(lines[1][1], definition.title, lines[1][0])["count"]
    entries = [entry.read(text, definition.title, at) for at, text in lines[2:]]
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
    first, second, _ = definition.lines
    lines = [first.write(version=version), second.write(count=len(rows)), *rows]
    return "".join(f"{line}\n" for line in lines).encode("utf-8")


def parse_offsets(data: bytes) -> OffsetCheckpoint:
    """An offset checkpoint file. Raises `FormatError`."""
    version, rows = _read(_OFFSETS, data)
    entries = (
        OffsetEntry(TopicPartition(str(row["topic"]), int(row["partition"])), int(row["offset"]))
        for row in rows
    )
    return OffsetCheckpoint(tuple(entries), version)


def build_offsets(checkpoint: OffsetCheckpoint) -> bytes:
    """The bytes of an offset checkpoint file."""
    line = _OFFSETS.lines[2]
    rows = [
        line.write(topic=entry.partition.topic, partition=entry.partition.partition, offset=entry.offset)
        for entry in checkpoint.entries
    ]
    return _write(_OFFSETS, checkpoint.version, rows)


def parse_epochs(data: bytes) -> EpochCheckpoint:
    """A leader epoch checkpoint file. Raises `FormatError`."""
    version, rows = _read(_EPOCHS, data)
    entries = (EpochEntry(int(row["epoch"]), int(row["startOffset"])) for row in rows)
    return EpochCheckpoint(tuple(entries), version)


def build_epochs(checkpoint: EpochCheckpoint) -> bytes:
    """The bytes of a leader epoch checkpoint file."""
    line = _EPOCHS.lines[2]
    rows = [line.write(epoch=entry.epoch, startOffset=entry.start_offset) for entry in checkpoint.entries]
    return _write(_EPOCHS, checkpoint.version, rows)
