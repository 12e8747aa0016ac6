"""Generates a compacted topic for the benchmarks: batches of about 16 KiB with random keys that repeat.

Arguments: `directory sizeMiB codec`. There are a million keys and values of 100 characters; one record in
fifty is a tombstone. Segments have 64 MiB and indexes; the active segment is empty.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from benchmarks.segment_indexes import write_indexes
from klog.formats import compression
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch

KEYS = 1_000_000
VALUE_CHARACTERS = 100
RECORDS_PER_BATCH = 130
SEGMENT_BYTES = 64 << 20
FIRST_TIMESTAMP_MS = 1_700_000_000_000
TOMBSTONES = 0.02


def write(directory: Path, size_bytes: int, codec: int) -> None:
    """Writes the segments until their size reaches `size_bytes`."""
    chance = random.Random(1)
    values = [chance.randbytes(VALUE_CHARACTERS // 2).hex().encode() for _ in range(200)]
    directory.mkdir(parents=True)
    offset = written = 0
    while written < size_bytes:
        with (directory / f"{offset:020d}.log").open("wb") as file:
            while file.tell() < SEGMENT_BYTES and written + file.tell() < size_bytes:
                records = [
                    RecordData(
                        offset + number,
                        FIRST_TIMESTAMP_MS + offset + number,
                        b"key-%09d" % chance.randrange(KEYS),
                        None if chance.random() < TOMBSTONES else chance.choice(values),
                    )
                    for number in range(RECORDS_PER_BATCH)
                ]
                file.write(build_batch(records, BatchFields(codec=codec)))
                offset += RECORDS_PER_BATCH
            written += file.tell()
    (directory / f"{offset:020d}.log").touch()
    for path in sorted(directory.glob("*.log")):
        write_indexes(path)


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]) << 20, compression.CODEC_NAMES.index(sys.argv[3]))
