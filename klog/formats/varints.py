"""Writes numbers in base 128, lowest seven bits first: unsigned (KIP-482) and zig-zag signed (KIP-98).

Readers decode them themselves, because each has its own limits and errors.
"""

from __future__ import annotations

from typing import Final

ONE_BYTE: Final = tuple(bytes((value,)) for value in range(0x80))
"""The encodings of the numbers below 128, which nearly all numbers are."""


def uvarint(value: int) -> bytes:
    """A number of 0 or more."""
    if value < 0x80:
        return ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def zigzag(value: int) -> bytes:
    """A signed number (of 32 or 64 bits); numbers near 0 of either sign are short."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    return ONE_BYTE[value] if value < 0x80 else uvarint(value)
