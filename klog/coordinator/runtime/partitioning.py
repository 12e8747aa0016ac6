"""Chooses the partition of an internal topic that an id belongs to, as Kafka's coordinators do."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from klog.formats.java_hash import hash_of_string

_INT32_MIN: Final = 0x8000_0000


@lru_cache(maxsize=1024)
def partition_of(key: str, partitions: int) -> int:
    """The partition of the internal topic that a group id or a transactional id belongs to."""
    digest = hash_of_string(key)
    # Kafka's abs: the smallest number has no positive counterpart and becomes 0.
    if digest == _INT32_MIN:
        return 0
    return (digest if digest < _INT32_MIN else (1 << 32) - digest) % partitions
