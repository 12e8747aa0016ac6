"""Batches of arbitrary bytes, built without the definitions: also such as no correct producer writes."""

from __future__ import annotations

from klog.formats.checksums import crc32c

Headers = list[tuple[bytes, bytes | None]]
Content = tuple[bytes | None, bytes | None, Headers]


def _varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63) & (2**64 - 1)
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _sized(data: bytes | None) -> bytes:
    return b"\x01" if data is None else _varint(len(data)) + data


def uncompressed_batch(contents: list[Content], base_offset: int = 7, attributes: int = 0) -> bytes:
    """A batch of magic 2 with these keys, values and headers; header keys may be any bytes."""
    block = b""
    for delta, (key, value, headers) in enumerate(contents):
        fields = b"\0\0" + _varint(delta) + _sized(key) + _sized(value) + _varint(len(headers))
        fields += b"".join(_sized(name) + _sized(content) for name, content in headers)
        block += _varint(len(fields)) + fields
    count = len(contents)
    numbers = (attributes, 2), (max(count - 1, 0), 4), (1_600_000_000_000, 8), (1_600_000_000_000, 8)
    tail = b"".join(number.to_bytes(size, "big") for number, size in numbers)
    tail += b"\xff" * 14 + count.to_bytes(4, "big") + block
    body = bytes(4) + b"\x02" + crc32c(tail).to_bytes(4, "big") + tail
    return base_offset.to_bytes(8, "big") + len(body).to_bytes(4, "big") + body
