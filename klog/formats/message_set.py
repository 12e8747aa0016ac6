"""Messages of magic 0 (Kafka 0.8, 0.9) and magic 1 (0.10; KIP-31, KIP-32), and compressed sets of them.

Rules: Kafka's documentation, "Old Message Format". A compressed message is a *wrapper*: its key is null, and
its value is a compressed set of whole messages (`inner` opens it). In magic 0 inner offsets are absolute. In
magic 1 they count from 0, and the wrapper has the offset of the last message, so that a broker can assign
offsets without compressing again.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, Final

import construct as c

from klog.formats import binary
from klog.formats import primitives as p
from klog.formats import structures as s
from klog.formats.checksums import confirm_crc32, crc32
from klog.formats.compression import DEFAULT_LIMIT_BYTES, compress, decompress
from klog.formats.constants import (
    CODECS,
    MESSAGE_CRC_FROM,
    MESSAGE_CRC_POSITION,
    MESSAGE_V0_HEADER_BYTES,
    MESSAGE_V1_HEADER_BYTES,
    MIN_ENTRY_BYTES,
    MIN_MESSAGE_SIZE,
)
from klog.formats.errors import CorruptRecordError, UnsupportedFormatError
from klog.formats.record_batch import Codec, TimestampType
from klog.formats.values import Bytes

TITLE: Final = "message"

Attributes: Final = c.BitStruct(
    "unused" / c.BitsInteger(4) * "zero",
    "timestampType" / TimestampType * "magic 1; LogAppendTime: inner messages take the wrapper's timestamp",
    "codec" / Codec * "how the value, a set of messages, is compressed; zstd is not allowed here",
)

Message: Final = c.Struct(
    "offset"
    / c.Int64sb
    * "of the message; of the last inner message in a wrapper; inside a magic 1 wrapper, relative",
    "size" / c.Int32sb * "bytes after this field",
    "body"
    / s.Bounded(
        lambda this: this.size,
        c.Struct(
            "crc" / c.Int32ub * "CRC-32 of everything after it",
            "magic" / c.OneOf(c.Int8sb, [0, 1]) * "0 or 1",
            "attributes" / Attributes,
            "timestamp" / c.If(lambda this: this.magic == 1, c.Int64sb) * "magic 1 only (ms), -1 for none",
            "key" / p.SizedBytes(c.Int32sb, null=True) * "null in a wrapper",
            "value" / p.SizedBytes(c.Int32sb, null=True) * "a wrapper's is a compressed set of messages",
        ),
    ),
)


def parse(data: Bytes, *, position_bytes: int = 0, check_crc: bool = True) -> c.Container:
    """One message, all of `data`. Raises `FormatError`, and `CorruptRecordError` if the crc does not
    match.
    """
    if check_crc:
        require_crc(data, position_bytes)
    message: c.Container = binary.parse_all(Message, data, TITLE, position_bytes)
    return message


def require_crc(data: Bytes, position_bytes: int) -> None:
    """Raise `CorruptRecordError` if the message in `data` does not have its own crc.

    Data that is shorter than the header passes.
    """
    if len(data) < MIN_ENTRY_BYTES:
        return
    stored = int.from_bytes(data[MESSAGE_CRC_POSITION:MESSAGE_CRC_FROM], "big")
    checked = memoryview(data)[MESSAGE_CRC_FROM:]
    computed = crc32(checked)
    if computed != stored:
        confirm_crc32(checked, computed)
    binary.require_crc(TITLE, stored, computed, position_bytes + MESSAGE_CRC_POSITION)


def build(message: c.Container) -> bytes:
    """The bytes of a message from its fields, with size and crc as they are given (`sealed` computes
    them).
    """
    return binary.build(Message, message, TITLE)


def sealed(offset: int, body: dict[str, Any]) -> c.Container:
    """A message with the size and the crc of its body (magic, attributes, timestamp, key, value)."""
    value = c.Container(offset=offset, size=0, body=c.Container(crc=0, **body))
    overhead = MIN_MESSAGE_SIZE
    if body["magic"] == 1:
        overhead += MESSAGE_V1_HEADER_BYTES - MESSAGE_V0_HEADER_BYTES
    value["size"] = overhead + len(body["key"] or b"") + len(body["value"] or b"")
    value["body"]["crc"] = crc32(build(value)[MESSAGE_CRC_FROM:])
    return value


def open_block(message: c.Container, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> bytes:
    """The decompressed set of messages in a wrapper, as bytes. Raises `CompressionError`."""
    if message.body.value is None:
        raise CorruptRecordError(f"{TITLE} at offset {message.offset}: compressed, but its value is null")
    return decompress(
        _codec_number(message), message.body.value, magic=message.body.magic, limit_bytes=limit_bytes
    )


def close_block(magic: int, codec: str, block: bytes) -> bytes:
    """A set of messages, compressed as in a wrapper of this magic."""
    return compress(int(Codec.encmapping[codec]), block, magic=magic)


def _codec_number(message: c.Container) -> int:
    codec = message.body.attributes.codec
    number = int(Codec.encmapping.get(codec, codec))
    if number >= len(CODECS) or codec == "zstd":
        raise UnsupportedFormatError(
            f"{TITLE} at offset {message.offset}: codec {codec} is not allowed in magic 0 and 1"
        )
    return number


def iterate_set(block: Bytes, *, position_bytes: int = 0) -> Iterator[c.Container]:
    """The messages of a set, up to the end of the bytes. Raises `FormatError` at the first damaged one."""
    stream = io.BytesIO(block)
    while p.remaining_bytes(stream):
        start = stream.tell()
        message = binary.parse_next(Message, stream, TITLE, position_bytes)
        require_crc(memoryview(block)[start : stream.tell()], position_bytes + start)
        yield message


def inner(message: c.Container, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> list[c.Container]:
    """The messages of a wrapper with their stored offsets. Raises `FormatError` and `CompressionError`."""
    found = list(iterate_set(open_block(message, limit_bytes=limit_bytes)))
    if not found:
        raise CorruptRecordError(f"{TITLE} at offset {message.offset}: wrapper without messages")
    return found


def absolute_offsets(message: c.Container, messages: list[c.Container]) -> list[int]:
    """The offsets of a wrapper's messages in the log: the stored ones (magic 0), or relative to the wrapper's
    (magic 1).

    If a wrapper of magic 1 has the offset 0, its client did not set the offset, and Kafka takes the stored
    ones.
    """
    counts_back = message.body.magic == 1 and message.offset != 0 and messages
    shift = message.offset - messages[-1].offset if counts_back else 0
    return [found.offset + shift for found in messages]
