"""Chooses the partition of a key as Kafka does, so that klog and Java clients agree on every key.

Rules: `org.apache.kafka.clients.producer.internals.BuiltInPartitioner` (murmur2 of the key, KIP-480 and
KIP-794 for records without one).
"""

from __future__ import annotations

import struct
from typing import Final

_WORD: Final = struct.Struct("<I")
_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_UINT32: Final = 0xFFFF_FFFF


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2, unsigned."""
    size = len(data)
    whole = size & ~3
    digest = _SEED ^ size
    for (word,) in _WORD.iter_unpack(memoryview(data)[:whole]):
        mixed = word * _MULTIPLIER & _UINT32
        digest = (digest * _MULTIPLIER & _UINT32) ^ ((mixed ^ mixed >> 24) * _MULTIPLIER & _UINT32)
    if size > whole:
        digest = (digest ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _UINT32
    digest = (digest ^ digest >> 13) * _MULTIPLIER & _UINT32
    return digest ^ digest >> 15


def partition_of_key(key: bytes, partitions: int) -> int:
    """The partition of a key in a topic of so many partitions."""
    return (murmur2(key) & 0x7FFF_FFFF) % partitions
