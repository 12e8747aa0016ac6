"""Chooses the partition of an internal topic that an id belongs to, as Kafka's coordinators do."""

from __future__ import annotations

from functools import lru_cache

from klog.formats.java_hash import hash_of_string, remainder


@lru_cache(maxsize=1024)
def partition_of(key: str, partitions: int) -> int:
    """The partition of the internal topic that a group id or a transactional id belongs to."""
    return remainder(hash_of_string(key), partitions)
