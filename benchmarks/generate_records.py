"""Generates a topic for the benchmarks of exports: records of 100 to 1000 bytes, four partitions, indexes.

Arguments: `directory sizeMiB codec`. Keys are random numbers. Values are JSON of words and numbers with a
uniformly distributed length. There are too many distinct values for a compressor to find one again in its
window. Batches have about 16 KiB.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from benchmarks.segment_indexes import write_indexes
from klog.formats import compression
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch

TOPIC = "records"
PARTITIONS = 4
SEGMENT_BYTES = 256 << 20
RECORD_BYTES = (100, 1000)
KEY_BYTES = 10
BATCH_BYTES = 16 << 10
DISTINCT_VALUES = 20_000
FIRST_TIMESTAMP_MS = 1_700_000_000_000

_WORDS = (
    "click",
    "view",
    "cart",
    "order",
    "return",
    "login",
    "logout",
    "search",
    "refund",
    "ship",
    "page",
    "item",
)


def write(directory: Path, size_bytes: int, codec: int) -> None:
    """Writes partitions until their uncompressed records have `size_bytes`."""
    chance = random.Random(5)
    values = [_value(chance) for _ in range(DISTINCT_VALUES)]
    for partition in range(PARTITIONS):
        place = directory / f"{TOPIC}-{partition}"
        place.mkdir(parents=True)
        _write_partition(place, size_bytes // PARTITIONS, values, codec, chance)


def _value(chance: random.Random) -> bytes:
    size = chance.randint(*RECORD_BYTES) - KEY_BYTES
    parts = [f'{{"id":{chance.randrange(10**9)},"user":"u{chance.randrange(10**6):06d}"']
    while sum(map(len, parts)) < size - 1:
        parts.append(f',"{chance.choice(_WORDS)}":"{chance.getrandbits(40):x} {chance.choice(_WORDS)}"')
    return "".join(parts)[: size - 1].encode() + b"}"


def _write_partition(
    place: Path, size_bytes: int, values: list[bytes], codec: int, chance: random.Random
) -> None:
    offset = written = 0
    while written < size_bytes:
        log = place / f"{offset:020d}.log"
        of_segment = 0
        with log.open("wb") as file:
            while of_segment < SEGMENT_BYTES and written < size_bytes:
                records, taken = _records(offset, values, chance)
                file.write(build_batch(records, BatchFields(codec=codec, leader_epoch=0)))
                offset += len(records)
                of_segment += taken
                written += taken
        write_indexes(log)


def _records(offset: int, values: list[bytes], chance: random.Random) -> tuple[list[RecordData], int]:
    """The records of one batch, and their size in bytes."""
    records: list[RecordData] = []
    taken = 0
    while taken < BATCH_BYTES:
        value = chance.choice(values)
        key = b"%0*d" % (KEY_BYTES, chance.randrange(10**KEY_BYTES))
        records.append(
            RecordData(offset + len(records), FIRST_TIMESTAMP_MS + offset + len(records), key, value)
        )
        taken += KEY_BYTES + len(value)
    return records, taken


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]) << 20, compression.CODEC_NAMES.index(sys.argv[3]))
