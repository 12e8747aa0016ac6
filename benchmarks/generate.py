"""Generates large segments for the benchmarks in a few seconds. Kafka accepts them as valid.

A record has 100 bytes (a key of 10 and a JSON value of 90 bytes), and a batch about 16 KiB, as with the
default settings of a producer. The file repeats a pool of batch bodies with new offsets and timestamps,
because a gigabyte of distinct records would take minutes. The compression libraries are those that klog uses.
"""

from __future__ import annotations

import random
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import lz4.frame
import zstandard
from crc32c import crc32c

from klog.formats.varints import zigzag

KEY_BYTES = 10
VALUE_BYTES = 90
BATCH_TARGET_BYTES = 16 * 1024
POOL_SIZE = 256
FIRST_TIMESTAMP_MS = 1_700_000_000_000
PARTITION = "bench-0"

# baseOffset, batchLength, partitionLeaderEpoch, magic, crc: the checksum covers what follows.
_PREFIX = struct.Struct(">qiibI")
# attributes, lastOffsetDelta, baseTimestamp, maxTimestamp, producerId, producerEpoch, baseSequence, count
_CHECKED = struct.Struct(">hiqqqhii")
_LENGTH_FROM_BYTES = 12

_WORDS = ("click", "view", "cart", "order", "return", "login", "logout", "search", "refund", "ship")


@dataclass(frozen=True)
class Body:
    """The records of one batch, compressed or not."""

    records: bytes
    count: int


def _uncompressed(records: bytes) -> bytes:
    return records


_CODECS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "none": (0, _uncompressed),
    "lz4": (3, lz4.frame.compress),
    "zstd": (4, zstandard.ZstdCompressor().compress),
}


def segment(directory: Path, size_bytes: int, codec: str = "none") -> Path:
    """Writes `directory/bench-0/0...0.log`: batches of `codec`, until they have `size_bytes` uncompressed."""
    attributes, compress = _CODECS[codec]
    chosen = random.Random(7)
    pool = [_body(chosen) for _ in range(POOL_SIZE)]
    packed = [compress(body.records) for body in pool]
    path = directory / PARTITION / f"{0:020d}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    offset = written_bytes = index = 0
    with path.open("wb", buffering=1 << 20) as log:
        while written_bytes < size_bytes:
            body, records = pool[index % POOL_SIZE], packed[index % POOL_SIZE]
            log.write(_batch(offset, body.count, attributes, records))
            offset += body.count
            written_bytes += len(body.records) + _PREFIX.size + _CHECKED.size
            index += 1
    return path


def _batch(base_offset: int, count: int, attributes: int, records: bytes) -> bytes:
    base_timestamp_ms = FIRST_TIMESTAMP_MS + base_offset
    checked = _CHECKED.pack(
        attributes, count - 1, base_timestamp_ms, base_timestamp_ms + count - 1, -1, -1, -1, count
    )
    checksum = crc32c(records, crc32c(checked))
    length_bytes = _PREFIX.size - _LENGTH_FROM_BYTES + len(checked) + len(records)
    return b"".join((_PREFIX.pack(base_offset, length_bytes, 0, 2, checksum), checked, records))


def _body(chosen: random.Random) -> Body:
    records: list[bytes] = []
    size_bytes = _PREFIX.size + _CHECKED.size
    while True:
        record = _record(len(records), chosen)
        if size_bytes + len(record) > BATCH_TARGET_BYTES:
            return Body(b"".join(records), len(records))
        records.append(record)
        size_bytes += len(record)


def _record(delta: int, chosen: random.Random) -> bytes:
    """One record: attributes, timestamp delta, offset delta, key, value, no headers.

    Lengths and deltas are zigzag varints.
    """
    key = b"%0*d" % (KEY_BYTES, chosen.randrange(10**KEY_BYTES))
    value = b'{"id":%d,"event":"%s","user":"u%06d","session":"%012x","amount":%d' % (
        chosen.randrange(10**9),
        chosen.choice(_WORDS).encode(),
        chosen.randrange(10**6),
        chosen.getrandbits(48),
        chosen.randrange(10**4),
    )
    value = value.ljust(VALUE_BYTES - 1, b" ") + b"}"
    fields = (
        b"\0",
        zigzag(delta),
        zigzag(delta),
        zigzag(len(key)),
        key,
        zigzag(len(value)),
        value,
        zigzag(0),
    )
    content = b"".join(fields)
    return zigzag(len(content)) + content


if __name__ == "__main__":
    segment(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
