"""Ids belong to the partitions in which Kafka looks for them: by Java's hash, made positive."""

from __future__ import annotations

import pytest

from klog.coordinator.runtime.partitioning import partition_of
from klog.formats.java_hash import hash_of_string


# Computed by Java 17.
@pytest.mark.parametrize(
    ("text", "java", "partition"),
    [
        ("", 0, 0),
        ("a", 97, 47),
        ("console-consumer-12345", 158455506, 6),
        ("polygenelubricants", -2147483648, 0),
        ("g\u00e9\U0001f600", 5065285, 35),
        ("my-group", -1906497762, 12),
        ("\u0001\u8000zzzzzzzzz", -2076674501, 1),
    ],
)
def test_ids_are_hashed_as_java_hashes_them(text: str, java: int, partition: int) -> None:
    assert hash_of_string(text) == java % (1 << 32)
    assert partition_of(text, 50) == partition
