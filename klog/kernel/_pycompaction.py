"""The offset map of compaction, and the rewriting of batches: the twin of `_compaction` in pure Python.

The meaning and the rules are stated here; tests hold both equal. An `OffsetMap` remembers the last offset of
each key in memory of a fixed size: 24 bytes a key, as in Kafka's `SkimpyOffsetMap`, 16 of them for a hash of
the key. Two keys with the same hash would lose a record, so the hash has 128 bits. It is keyed with a secret,
so that nobody can construct such keys (with MD5, Kafka's choice, one can). No file depends on the hash
function: the compiled map uses SipHash-2-4-128, this one BLAKE2b.
"""

from __future__ import annotations

import hashlib
from array import array
from typing import Final

from klog.formats.checksums import Bytes
from klog.formats.constants import DELETE_HORIZON_BIT
from klog.formats.errors import CorruptRecordError, UsageError
from klog.kernel.batch_builder import encode_record
from klog.kernel.columns import BatchTable, RecordTable
from klog.kernel.selection import Selection

IMPLEMENTATION: Final = "python"

SLOT_BYTES: Final = 24
_HASH_BYTES: Final = 16
_SECRET_BYTES: Final = 16


class OffsetMap:
    """The last offset of each key.

    `slots` is the number of keys that fit the memory, `capacity` the largest number that is accepted, `size`
    the present number. The map covers the log up to `latest_offset` (-1: nothing); the caller moves it over
    batches without keys. Raises `UsageError` if not even one key fits.
    """

    def __init__(self, memory_bytes: int, load_factor: float, secret: bytes) -> None:
        if len(secret) != _SECRET_BYTES:
            raise UsageError("the secret of an offset map has 16 bytes")
        self.slots = memory_bytes // SLOT_BYTES
        self.capacity = int(self.slots * load_factor)
        if self.capacity < 1 or self.capacity >= self.slots:
            raise UsageError(
                "offset map is too small to hold a single key, or may fill up",
                cure="raise log.cleaner.dedupe.buffer.size",
            )
        self.size = 0
        self.latest_offset = -1
        self._secret = secret
        self._hashes = bytearray(self.slots * _HASH_BYTES)
        self._next_offsets = array(
            "q", bytes(8 * self.slots)
        )  # the offset + 1; 0 means that the slot is empty

    def _find(self, key: Bytes) -> tuple[int, bytes]:
        wanted = hashlib.blake2b(key, digest_size=_HASH_BYTES, key=self._secret).digest()
        slot = int.from_bytes(wanted[:8], "little") % self.slots
        while self._next_offsets[slot]:
            at = slot * _HASH_BYTES
            if self._hashes[at : at + _HASH_BYTES] == wanted:
                break
            slot = slot + 1 if slot + 1 < self.slots else 0
        return slot, wanted

    def put(self, payload: Bytes, records: RecordTable, first: int, last: int, from_offset: int) -> int:
        """Add the keys of the records `first` to `last` (exclusive) at or above `from_offset`.

        Returns `last`, or the row of the first record that did not fit because the map was full. As in Kafka,
        a full map does not accept a key that it has, either.
        """
        _require_rows(records, first, last)
        view = memoryview(payload)
        for row in range(first, last):
            key, offset = _span(view, records.key_start[row], records.key_size[row]), records.offset[row]
            if key is None or offset < from_offset:
                continue
            if self.size >= self.capacity:
                return row
            slot, hashed = self._find(key)
            if not self._next_offsets[slot]:
                self._hashes[slot * _HASH_BYTES : (slot + 1) * _HASH_BYTES] = hashed
                self.size += 1
            self._next_offsets[slot] = offset + 1
            self.latest_offset = offset
        return last

    def get(self, key: Bytes) -> int:
        """The last offset of a key, -1 if the map does not have it."""
        return self._next_offsets[self._find(key)[0]] - 1

    def select(
        self,
        payload: Bytes,
        table: BatchTable,
        records: RecordTable,
        first: int,
        last: int,
        now_ms: int,
        keep_legacy: bool,
        chosen: Selection,
    ) -> int:
        """Decide which of the records `first` to `last` (exclusive) of data batches stay in a compacted log.

        Records beyond `latest_offset` stay. Records without a key are removed; their number is returned. Of
        each key the last record stays; but a tombstone stays only until its batch's delete horizon, and a
        tombstone of magic 0 or 1 only with `keep_legacy`. The decisions are written to `chosen`, which is for
        the batches of `table`.
        """
        _require_rows(records, first, last)
        if len(chosen.kept) != len(table):
            raise UsageError("a selection of another table")
        chosen.keep.extend(bytes(max(last - len(chosen.keep), 0)))
        view = memoryview(payload)
        invalid = 0
        for row in range(first, last):
            batch, offset = records.batch[row], records.offset[row]
            if not 0 <= batch < len(table):
                raise UsageError(f"record {row} belongs to no batch of the table")
            key = _span(view, records.key_start[row], records.key_size[row])
            if offset > self.latest_offset:
                keep = True
            elif key is None:
                keep = False
                invalid += 1
            else:
                keep = offset >= self.get(key)
                if keep and records.value_size[row] < 0:
                    keep = _keeps_tombstone(table, batch, now_ms, keep_legacy)
            chosen.keep[row] = keep
            if keep:
                chosen.kept[batch] += 1
                chosen.last_kept_offset[batch] = offset
                chosen.tombstones[batch] += records.value_size[row] < 0
        return invalid


def _keeps_tombstone(table: BatchTable, batch: int, now_ms: int, keep_legacy: bool) -> bool:
    if table.magic[batch] < 2:
        return keep_legacy
    return not table.attributes[batch] & DELETE_HORIZON_BIT or now_ms < table.base_timestamp[batch]


def _require_rows(records: RecordTable, first: int, last: int) -> None:
    if not 0 <= first <= last <= len(records):
        raise UsageError(f"records {first} to {last} of a table of {len(records)}")


def _span(view: memoryview, start: int, size: int) -> memoryview | None:
    if size > 0 and not 0 <= start <= len(view) - size:
        raise UsageError("a record of the table does not lie in the payload")
    return view[start : start + size] if size >= 0 else None


def rewrite(
    payload: Bytes,
    records: RecordTable,
    first: int,
    last: int,
    keep: array[int],
    base_offset: int,
    base_timestamp: int | None,
) -> tuple[bytes, int, int, int]:
    """Those of the magic 2 records `first` to `last` that `keep` marks, encoded for a batch with these bases.

    Without a base timestamp the one of the first kept record is used. Returns the (uncompressed) records,
    their number, the base timestamp and their largest timestamp. Raises `CorruptRecordError` if offsets do
    not ascend or a timestamp is below -1: Kafka does not write such a batch either.
    """
    from klog.kernel.kernel import headers

    _require_rows(records, first, last)
    if len(keep) < last:
        raise UsageError("flags for fewer records than there are")
    view = memoryview(payload)
    parts: list[bytes] = []
    largest = previous = -1
    for row in range(first, last):
        if not keep[row]:
            continue
        offset, timestamp = records.offset[row], records.timestamp[row]
        if timestamp < -1:
            raise CorruptRecordError(f"record {offset} has the timestamp {timestamp}")
        if parts and offset <= previous:
            raise CorruptRecordError(f"offset {offset} follows {previous} in one batch")
        previous = offset
        base_timestamp = timestamp if base_timestamp is None else base_timestamp
        key = _span(view, records.key_start[row], records.key_size[row])
        value = _span(view, records.value_start[row], records.value_size[row])
        parts.append(
            encode_record(
                offset - base_offset,
                timestamp - base_timestamp,
                None if key is None else bytes(key),
                None if value is None else bytes(value),
                headers(payload, records.headers_start[row], records.header_count[row]),
            )
        )
        largest = max(largest, timestamp)
    return b"".join(parts), len(parts), 0 if base_timestamp is None else base_timestamp, largest
