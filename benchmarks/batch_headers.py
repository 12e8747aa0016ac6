"""Reads the headers of record batches, without klog's own readers: what is compared must not judge itself."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final, NamedTuple

# The header of a batch of magic 2: Kafka's DefaultRecordBatch.
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_PREFIX_BYTES: Final = 12
_CODEC_MASK: Final = 7
_CONTROL_BIT: Final = 32


class Batch(NamedTuple):
    """A batch. `body` are its records, compressed as they are stored."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    codec: int
    is_control: bool
    producer: tuple[int, int, int]
    records: int
    body: bytes
    data: bytes


def batches(directory: Path) -> list[Batch]:
    """The batches in the segments of a partition's directory, in their order."""
    found = []
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        start = 0
        while start + _HEADER.size <= len(data):
            base, size, epoch, magic, _, attributes, delta, _, _, *producer, count = _HEADER.unpack_from(
                data, start
            )
            end = start + _PREFIX_BYTES + size
            if magic != 2 or size <= 0 or end > len(data):
                break
            whole = data[start:end]
            found.append(
                Batch(
                    base,
                    base + delta,
                    epoch,
                    attributes & _CODEC_MASK,
                    bool(attributes & _CONTROL_BIT),
                    (producer[0], producer[1], producer[2]),
                    count,
                    whole[_HEADER.size :],
                    whole,
                )
            )
            start = end
    return found
