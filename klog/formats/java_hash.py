"""Java's hash of a string, by which Kafka chooses a coordinator's partition and orders some of its output."""

from __future__ import annotations

from typing import Final

_MULTIPLIER: Final = 31
_UINT32: Final = 0xFFFF_FFFF


def hash_of_string(text: str) -> int:
    """Java's `String.hashCode`, over UTF-16, unsigned."""
    digest = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(units), 2):
        digest = (digest * _MULTIPLIER + (units[position] << 8 | units[position + 1])) & _UINT32
    return digest


def remainder(digest: int, divisor: int) -> int:
    """The remainder of Kafka's `abs` of a 32-bit hash, which is given unsigned. The smallest signed number
    has no positive counterpart: its `abs` is 0.
    """
    absolute = min(digest, 2**32 - digest)
    return absolute % divisor if absolute < 2**31 else 0
