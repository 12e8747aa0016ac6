"""Builds messages of magic 0 and 1: the writer beside the definition in `message_set`.

A test holds both equal. Rules: `LegacyRecord` and `MemoryRecordsBuilder.writeLegacyCompressedWrapperHeader`.
"""

from __future__ import annotations

from typing import Final

from klog.formats import compression, fixed_fields
from klog.formats.checksums import crc32
from klog.formats.constants import ENTRY_PREFIX_BYTES, MESSAGE_CRC_FROM, MESSAGE_CRC_POSITION, NO_TIMESTAMP
from klog.formats.packed import INT32, UINT32

_HEADS: Final = (
    fixed_fields.run("Message0").through("attributes"),
    fixed_fields.run("Message1").through("timestamp"),
)


def build_message(
    offset: int, magic: int, attributes: int, timestamp: int, key: bytes | None, value: bytes | None
) -> bytes:
    """One message of magic 0, which has no timestamp, or 1."""
    head, fields = _HEADS[magic], _sized(key) + _sized(value)
    size = head.size - ENTRY_PREFIX_BYTES + len(fields)
    times = (timestamp,) if magic else ()
    message = bytearray(head.pack(offset, size, 0, magic, attributes, *times) + fields)
    UINT32.pack_into(message, MESSAGE_CRC_POSITION, crc32(memoryview(message)[MESSAGE_CRC_FROM:]))
    return bytes(message)


def build_wrapper(
    messages: bytes, magic: int, codec: int, time_type: int, last_offset: int, max_timestamp: int
) -> bytes:
    """A compressed set of inner messages. `time_type` is the bit of the attributes, 0 for magic 0."""
    block = compression.compress(codec, messages, magic=magic)
    timestamp = max_timestamp if magic else NO_TIMESTAMP
    return build_message(last_offset, magic, time_type | codec, timestamp, None, block)


def _sized(data: bytes | None) -> bytes:
    return INT32.pack(-1) if data is None else INT32.pack(len(data)) + data
