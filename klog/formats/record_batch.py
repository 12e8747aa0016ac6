"""Record batches of magic 2, their records and headers (Kafka 0.11 on; KIP-98, KIP-534 for bit 6).

Rules: Kafka's documentation, "Record Batch" and "Record". The batch's fields are always readable. Its records
are a list in an uncompressed batch, and one block of bytes in a compressed one (`records` opens it).
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, Final

import construct as c

from klog.formats import binary
from klog.formats import primitives as p
from klog.formats import structures as s
from klog.formats.checksums import confirm_crc32c, crc32c
from klog.formats.compression import DEFAULT_LIMIT_BYTES, compress, decompress
from klog.formats.constants import (
    BATCH_CRC_FROM,
    BATCH_CRC_POSITION,
    BATCH_HEADER_BYTES,
    BATCH_LENGTH_OF_HEADER,
)
from klog.formats.constants import CODECS as CODEC_NAMES
from klog.formats.errors import CorruptRecordError, FormatError, UnsupportedFormatError
from klog.formats.values import Bytes

TITLE: Final = "record batch"

Codec: Final = c.Enum(c.BitsInteger(3), **{name: number for number, name in enumerate(CODEC_NAMES)})
TimestampType: Final = c.Enum(c.BitsInteger(1), CreateTime=0, LogAppendTime=1)

# Sixteen bits, highest first. An undefined codec (5 to 7) parses, so that a broken batch can be shown.
Attributes: Final = c.BitStruct(
    "unused" / c.BitsInteger(9) * "zero",
    "hasDeleteHorizon" / c.Flag * "baseTimestamp is the time from which tombstones or the marker may go",
    "isControl" / c.Flag * "one control record, not for clients",
    "isTransactional" / c.Flag * "part of a transaction",
    "timestampType" / TimestampType * "LogAppendTime: every record's timestamp is maxTimestamp",
    "codec" / Codec * "how the records are compressed, as one block",
)

Header: Final = c.Struct(
    "key" / p.SizedString(p.VarInt) * "never null",
    "value" / p.SizedBytes(p.VarInt, null=True) * "null differs from empty",
)

Record: Final = s.Sized(
    p.VarInt,
    c.Struct(
        "attributes" / c.Int8sb * "unused, zero",
        "timestampDelta" / p.VarLong * "milliseconds after baseTimestamp; may be negative",
        "offsetDelta" / p.VarInt * "offset = baseOffset + offsetDelta",
        "key" / p.SizedBytes(p.VarInt, null=True) * "null differs from empty",
        "value" / p.SizedBytes(p.VarInt, null=True) * "null is a tombstone where the topic is compacted",
        "headers" / p.SizedArray(p.VarInt, Header) * "in the producer's order, keys may repeat",
    ),
)

# The first two fields and the magic have the same positions in magic 0 and 1, so one scan reads all.
RecordBatch: Final = c.Struct(
    "baseOffset"
    / c.Int64sb
    * "of the first record the producer sent; the cleaner keeps it when that is gone",
    "batchLength" / c.Int32sb * "bytes after this field",
    "partitionLeaderEpoch"
    / c.Int32sb
    * "of the leader that appended; outside the crc, so it can be set in place",
    "magic" / c.Const(2, c.Int8sb) * "2",
    "crc" / c.Int32ub * "CRC-32C of everything from attributes on",
    "attributes" / Attributes,
    "lastOffsetDelta" / c.Int32sb * "last offset = baseOffset + lastOffsetDelta; the cleaner keeps it",
    "baseTimestamp" / c.Int64sb * "of the first record (ms), or the delete horizon",
    "maxTimestamp" / c.Int64sb * "largest of the records (ms), -1 for none",
    "producerId" / c.Int64sb * "-1 without idempotence",
    "producerEpoch" / c.Int16sb * "-1 without idempotence",
    "baseSequence" / c.Int32sb * "of the first record; -1 without idempotence, and in markers",
    "recordCount" / c.Int32sb * "0 in a batch that the cleaner emptied but must keep",
    "records"
    / s.Bounded(
        lambda this: this.batchLength - BATCH_LENGTH_OF_HEADER,
        c.IfThenElse(
            lambda this: this.attributes.codec == "none",
            p.CountedArray("recordCount", Record),
            c.GreedyBytes,
        ),
    )
    * "Record * recordCount; with a codec, one compressed block of them",
)


def parse(data: Bytes, *, position_bytes: int = 0, check_crc: bool = True) -> c.Container:
    """One batch, all of `data`. Raises `FormatError`, and `CorruptRecordError` if the crc does not match."""
    if check_crc:
        require_crc(data, position_bytes)
    batch: c.Container = binary.parse_all(RecordBatch, data, TITLE, position_bytes)
    return batch


def require_crc(data: Bytes, position_bytes: int) -> None:
    """Raise `CorruptRecordError` if the batch in `data` does not have its own crc.

    Data that is shorter than the header passes.
    """
    if len(data) < BATCH_HEADER_BYTES:
        return
    stored = int.from_bytes(data[BATCH_CRC_POSITION:BATCH_CRC_FROM], "big")
    checked = memoryview(data)[BATCH_CRC_FROM:]
    computed = crc32c(checked)
    if computed != stored:
        confirm_crc32c(checked, computed)
    binary.require_crc(TITLE, stored, computed, position_bytes + BATCH_CRC_POSITION)


def build(batch: c.Container) -> bytes:
    """The bytes of a batch from its fields, with lengths and crc as they are given (`sealed` computes
    them).
    """
    return binary.build(RecordBatch, batch, TITLE)


def sealed(batch: dict[str, Any]) -> c.Container:
    """The batch with the `magic`, `batchLength`, `recordCount` and `crc` for its other fields.

    `records` is a list (if the codec is none), or a block with `recordCount` given.
    """
    value = c.Container({**batch, "magic": 2, "crc": 0})
    if isinstance(value["records"], (bytes, bytearray, memoryview)):
        body_bytes = len(value["records"])
    else:
        value["recordCount"] = len(value["records"])
        body_bytes = len(build_records(value["records"]))
    value["batchLength"] = BATCH_LENGTH_OF_HEADER + body_bytes
    value["crc"] = crc32c(build(value)[BATCH_CRC_FROM:])
    return value


def records(
    batch: c.Container, *, position_bytes: int = 0, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> list[c.Container]:
    """The batch's records, decompressed if necessary. Raises `FormatError` and `CompressionError`.

    `position_bytes` is the position of the batch. Errors inside a compressed block have that position,
    because a block has no positions in the file.
    """
    if batch.attributes.codec == "none":
        return list(batch.records)
    if batch.recordCount == 0 and not batch.records:
        return []  # emptied by the cleaner: it has no compressed block
    block = open_block(batch, limit_bytes=limit_bytes)
    return list(iterate_records(block, batch.recordCount, position_bytes=position_bytes))


def open_block(batch: c.Container, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> bytes:
    """The decompressed records of a compressed batch, as bytes."""
    return decompress(_codec_number(batch), batch.records, magic=2, limit_bytes=limit_bytes)


def close_block(batch: c.Container, block: bytes) -> bytes:
    """A block of records compressed with the batch's codec."""
    return compress(_codec_number(batch), block, magic=2)


def _codec_number(batch: c.Container) -> int:
    number = int(Codec.encmapping.get(batch.attributes.codec, batch.attributes.codec))
    if number >= len(CODEC_NAMES):
        raise UnsupportedFormatError(f"{TITLE}: codec {number} is none of Kafka's")
    return number


def iterate_records(block: bytes, count: int, *, position_bytes: int = 0) -> Iterator[c.Container]:
    """`count` records, which must fill the block. Raises `FormatError` at the first damaged one."""
    if count < 0:
        raise CorruptRecordError(f"{TITLE} says {count} records", position_bytes=position_bytes)
    stream = io.BytesIO(block)
    for index in range(count):
        if not p.remaining_bytes(stream):
            raise CorruptRecordError(
                f"{TITLE} says {count} records, but holds {index}", position_bytes=position_bytes
            )
        try:
            yield binary.parse_next(Record, stream, "record")
        except FormatError as error:
            error.what = f"record {index} of {count} in a compressed block: {error.what}"
            error.position_bytes = position_bytes
            raise
    left = p.remaining_bytes(stream)
    if left:
        raise CorruptRecordError(
            f"{TITLE} says {count} records, but {left} bytes follow them", position_bytes=position_bytes
        )


def build_records(values: list[c.Container]) -> bytes:
    """The bytes of records, as in a batch before compression."""
    return b"".join(binary.build(Record, value, "record") for value in values)
