"""Chooses the partition of an internal topic that an id belongs to, as Kafka's coordinators do."""

from __future__ import annotations

from typing import Final

_MULTIPLIER: Final = 31
_UINT32: Final = 0xFFFF_FFFF
_INT32_MIN: Final = 0x8000_0000


def java_hash(text: str) -> int:
    """Java's `String.hashCode`, unsigned."""
    digest = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(units), 2):
        digest = (digest * _MULTIPLIER + (units[position] << 8 | units[position + 1])) & _UINT32
    return digest


def partition_of(key: str, partitions: int) -> int:
    """The partition of the internal topic that a group id or a transactional id belongs to."""
    digest = java_hash(key)
    # Kafka's abs: the smallest number has no positive counterpart and becomes 0.
    if digest == _INT32_MIN:
        return 0
    return (digest if digest < _INT32_MIN else (1 << 32) - digest) % partitions
