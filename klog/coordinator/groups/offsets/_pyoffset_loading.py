"""Loads committed offsets from decoded records.

This is the plain form of `_offset_loading.pyx`; tests hold the two equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from klog.formats.checksums import Bytes
from klog.formats.constants import COMMIT_KEY_VERSION, COMMIT_VALUE_VERSION
from klog.formats.errors import FormatError
from klog.formats.record_fields import RecordFields, version_of
from klog.kernel.columns import RecordTable

IMPLEMENTATION: Final = "python"

_KEY_VERSIONS: Final = range(COMMIT_KEY_VERSION + 1)
_KEY: Final = RecordFields("GroupKey")
_VALUE: Final = RecordFields("OffsetCommitValue")
_NO_TIMESTAMP: Final = -1


@dataclass(slots=True)
class StoredOffset:
    """A committed offset, and the offset of its record in `__consumer_offsets`. It is not changed.

    It takes less memory than a tuple, and the garbage collector has nothing to do with it.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    written_at: int


Stored = dict[tuple[str, int], StoredOffset]


class _UnusualError(Exception):
    """The record is not one that is loaded here."""


class OffsetLoader:
    """Puts records into the offsets of their groups. `stored_of` gives those of a group, by its id."""

    def __init__(self, stored_of: Callable[[str], Stored]) -> None:
        self._stored_of = stored_of
        # Groups share the tuples of partitions that several of them have.
        self._partitions: dict[tuple[str, int], tuple[str, int]] = {}

    def load(self, payload: Bytes, records: RecordTable, number: int, end: int) -> int:
        """Take the records from `number` on, before `end`, that are plain commits or removals.

        Returns the number of the first record that is none, or that cannot be read; `end` if there is none.
        A plain commit has a value of version 3, and its text is ASCII. The records are not part of a
        transaction. Raises IndexError if there are fewer records than `end`.
        """
        if number < 0 or end > len(records):
            raise IndexError(f"records {number} to {end} of {len(records)}")
        with memoryview(payload) as view:
            while number < end:
                try:
                    key = _span(view, records.key_start[number], records.key_size[number])
                    value = _span(view, records.value_start[number], records.value_size[number])
                    self._load_one(key, value, records.offset[number])
                except (_UnusualError, FormatError):
                    break
                number += 1
        return number

    def _load_one(self, key: bytes | None, value: bytes | None, at: int) -> None:
        if key is None or version_of(key) not in _KEY_VERSIONS:
            raise _UnusualError
        named = _KEY.read(key)
        group_id, partition = named["group"], (named["topic"], named["partition"])
        _require_ascii(group_id, partition[0])
        new = None if value is None else _stored(value, at)
        partition = self._partitions.setdefault(partition, partition)
        stored = self._stored_of(group_id)
        if new is None:
            stored.pop(partition, None)
        else:
            stored[partition] = new


def _span(view: memoryview, start: int, size: int) -> bytes | None:
    if size < 0:
        return None
    if start < 0 or size > len(view) - start:
        raise _UnusualError
    return bytes(view[start : start + size])


def _require_ascii(*texts: str) -> None:
    if not all(map(str.isascii, texts)):
        raise _UnusualError


def _stored(value: bytes, at: int) -> StoredOffset:
    if version_of(value) != COMMIT_VALUE_VERSION:
        raise _UnusualError
    fields = _VALUE.read(value)
    _require_ascii(fields["metadata"])
    return StoredOffset(
        fields["offset"],
        fields["leaderEpoch"],
        fields["metadata"],
        fields["commitTimestamp"],
        _NO_TIMESTAMP,
        at,
    )
