"""The producers of a log as its batches show them: last sequences, open and aborted transactions.

Rules: Kafka's `ProducerStateManager`, `ProducerAppendInfo` and `TransactionIndex` for batches that are
already in the log (KIP-98: replication origin, so nothing is refused). The state holds the last batch of each
producer, its history the ones before. The caller passes the time. `producer_snapshots` decides which snapshot
to start from.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from klog.formats.checksums import Bytes, confirm_crc32c, crc32c
from klog.formats.constants import (
    CODEC_MASK,
    CONTROL_BIT,
    INT64_MAX,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    SNAPSHOT_COUNT_POSITION,
    SNAPSHOT_CRC_FROM,
    SNAPSHOT_CRC_POSITION,
    SNAPSHOT_ENTRY_BYTES,
    SNAPSHOT_HEADER_BYTES,
    SNAPSHOT_VERSION,
    TRANSACTIONAL_BIT,
    TXN_INDEX_VERSION,
)
from klog.formats.errors import FormatError, KlogError
from klog.formats.packed import SNAPSHOT_ENTRY, SNAPSHOT_HEADER, TXN_INDEX_ENTRY
from klog.formats.wrapping import last_sequence, wrap_int32
from klog.kernel import kernel
from klog.kernel.columns import BatchTable, RecordTable
from klog.kernel.markers import BadMarker, bad_marker, decoded_marker
from klog.storage.reading.producer_history import BATCHES_REMEMBERED, History, SentBatch, sent_batch

_TRANSACTION_BITS: Final = TRANSACTIONAL_BIT | CONTROL_BIT
_SMALLEST_MAP: Final = 16
_NO_OFFSET: Final = -1


class ProducerEntry(NamedTuple):
    """One producer as a snapshot stores it; -1 stands for a missing value. Timestamps are in ms."""

    producer_id: int
    epoch: int = NO_PRODUCER_EPOCH
    last_sequence: int = NO_SEQUENCE
    last_offset: int = _NO_OFFSET
    offset_delta: int = 0
    timestamp: int = NO_TIMESTAMP
    coordinator_epoch: int = -1
    txn_first_offset: int = _NO_OFFSET


class AbortedTxn(NamedTuple):
    """One entry of a transaction index; `last_offset` is that of the ABORT marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class ProducerState:
    """Producers and open transactions up to `end_offset` (exclusive).

    `aborted` collects the transactions that were aborted since it was last emptied. `history`, if given,
    collects what snapshots do not keep. `complaints` (offset and sentence) are batches that a broker would
    have refused; Kafka does not start with them. `bad_markers` are the control batches that do not decode.
    """

    def __init__(self, end_offset: int = 0, history: History | None = None) -> None:
        self.producers: dict[int, ProducerEntry] = {}
        self.open_txns: dict[int, int] = {}  # first offset -> producer id
        self.end_offset = end_offset
        self.snapshot_offset = 0  # of the newest snapshot that this state includes
        self.aborted: list[AbortedTxn] = []
        self.lone_aborts: set[tuple[int, int]] = (
            set()
        )  # (producer, offset) of markers that ended no open transaction
        self.complaints: list[tuple[int, str]] = []
        self.bad_markers: list[BadMarker] = []
        self.history = history

    def load(self, entries: Iterable[ProducerEntry], now_ms: int = 0, expiration_ms: int = INT64_MAX) -> None:
        """Add the entries of a snapshot, without producers that were idle too long and have no open
        transaction. By default all are added. Of several entries of a producer the last one counts.
        """
        for entry in entries:
            if entry.txn_first_offset < 0 and now_ms - entry.timestamp >= expiration_ms:
                continue
            self.producers[entry.producer_id] = entry
            if self.history is not None and entry.last_offset >= 0:
                batch = sent_batch(*entry[2:6])
                self.history.sent(entry.producer_id, entry.epoch, batch)
            if entry.txn_first_offset >= 0:
                self.open_txns[entry.txn_first_offset] = entry.producer_id

    def snapshot(self) -> bytes:
        """The bytes of a snapshot of this state."""
        return pack_snapshot(self.producers, _no_batches if self.history is None else self.history.batches)

    def take(self, data: Bytes, table: BatchTable, first: int = 0, last: int | None = None) -> int:
        """Follow the batches `first` to `last` (exclusive) of `table`, scanned from `data`.

        Returns the row after the last batch followed. It is less than `last` if a control batch does not
        decode; Kafka ends the log there.
        """
        last = len(table) if last is None else last
        if first >= last:
            return last
        whole = first == 0 and last == len(table)
        producer_ids = table.producer_id if whole else table.producer_id[first:last]
        if max(producer_ids) >= 0:
            attributes = set(table.attributes if whole else table.attributes[first:last])
            if self.open_txns or any(value & _TRANSACTION_BITS for value in attributes):
                return self._take_each(data, table, first, last)
            self._take_last(table, {pid: row for row, pid in enumerate(producer_ids, first)})
            if self.history is not None:
                self._note_batches(table, producer_ids, first)
        self._advance(table, last)
        return last

    def follow(self, data: Bytes, table: BatchTable, first: int = 0, last: int | None = None) -> None:
        """As `take`, but control batches that do not decode are skipped: they end no transaction."""
        last = len(table) if last is None else last
        while first < last:
            first = self.take(data, table, first, last) + 1

    def _advance(self, table: BatchTable, end: int) -> None:
        """Only magic 2 batches move the end, because older ones have no producers."""
        for row in range(end - 1, -1, -1):
            if table.magic[row] >= 2:
                self.end_offset = table.last_offset[row] + 1
                return

    def _take_last(self, table: BatchTable, last_row_of: dict[int, int]) -> None:
        """Without transactions only the last batch of each producer changes the state."""
        for producer_id, row in last_row_of.items():
            if producer_id >= 0:
                self._append(table, row, self.producers.get(producer_id) or ProducerEntry(producer_id))

    def _note_batches(self, table: BatchTable, producer_ids: Sequence[int], first: int) -> None:
        """Add the last batches of each producer to the history."""
        rows_of: dict[int, deque[int]] = {}
        for row, producer_id in enumerate(producer_ids, first):
            if producer_id >= 0:
                rows_of.setdefault(producer_id, deque(maxlen=BATCHES_REMEMBERED)).append(row)
        for rows in rows_of.values():
            for row in rows:
                self._note_batch(table, row)

    def _note_batch(self, table: BatchTable, row: int) -> None:
        if self.history is not None:
            last_offset = table.last_offset[row]
            delta = wrap_int32(last_offset - table.base_offset[row])
            last = last_sequence(table.base_sequence[row], delta)
            batch = sent_batch(last, last_offset, delta, table.max_timestamp[row])
            self.history.sent(table.producer_id[row], table.producer_epoch[row], batch)

    def _append(self, table: BatchTable, row: int, entry: ProducerEntry) -> None:
        last_offset = table.last_offset[row]
        delta = wrap_int32(last_offset - table.base_offset[row])
        self.producers[entry.producer_id] = entry._replace(
            epoch=table.producer_epoch[row],
            last_sequence=last_sequence(table.base_sequence[row], delta),
            last_offset=last_offset,
            offset_delta=delta,
            timestamp=table.max_timestamp[row],
        )

    def _take_each(self, data: Bytes, table: BatchTable, first: int, last: int) -> int:
        for row in range(first, last):
            producer_id = table.producer_id[row]
            if producer_id >= 0:
                entry = self.producers.get(producer_id) or ProducerEntry(producer_id)
                if table.attributes[row] & CONTROL_BIT:
                    if not self._take_marker(data, table, row, entry):
                        return row
                else:
                    self._take_data(table, row, entry)
            if table.magic[row] >= 2:
                self.end_offset = table.last_offset[row] + 1
        return last

    def _take_data(self, table: BatchTable, row: int, entry: ProducerEntry) -> None:
        base_offset = table.base_offset[row]
        if table.attributes[row] & TRANSACTIONAL_BIT:
            if entry.txn_first_offset < 0:
                entry = entry._replace(txn_first_offset=base_offset)
                self.open_txns[base_offset] = entry.producer_id
        elif entry.txn_first_offset >= 0:
            what = f"producer {entry.producer_id} wrote outside of its open transaction"
            self.complaints.append((base_offset, what))
        self._append(table, row, entry)
        self._note_batch(table, row)

    def _take_marker(self, data: Bytes, table: BatchTable, row: int, entry: ProducerEntry) -> bool:
        """End the producer's transaction; False if the control batch does not decode."""
        if table.count[row] == 0:
            return True  # the cleaner has removed the record
        records = RecordTable()
        kernel.decode(data, table, row, row + 1, records)
        marker = decoded_marker(data, records)
        if marker is None:
            codec = table.attributes[row] & CODEC_MASK
            self.bad_markers.append(bad_marker(data, records, codec))
            return False
        offset = table.base_offset[row]
        epoch = table.producer_epoch[row]
        if entry.txn_first_offset >= 0:
            self._complete(entry, offset, aborted=marker.aborted)
        elif marker.aborted:
            self.lone_aborts.add((entry.producer_id, offset))
        # In a newer epoch the batches of the older one do not count.
        kept = entry if entry.epoch == epoch else ProducerEntry(entry.producer_id)
        self.producers[entry.producer_id] = kept._replace(
            epoch=epoch,
            timestamp=marker.timestamp,
            coordinator_epoch=marker.coordinator_epoch,
            txn_first_offset=_NO_OFFSET,
        )
        return True

    def _complete(self, entry: ProducerEntry, offset: int, *, aborted: bool) -> None:
        first_offset = entry.txn_first_offset
        if self.history is not None:
            self.history.ended.append((first_offset, offset))
        if aborted:
            others = [first for first, pid in self.open_txns.items() if pid != entry.producer_id]
            stable = min(others, default=offset + 1)
            self.aborted.append(AbortedTxn(entry.producer_id, first_offset, offset, stable))
        self.open_txns.pop(first_offset, None)


def pack_aborted(aborted: Iterable[AbortedTxn]) -> bytes:
    """The bytes of a transaction index."""
    return b"".join(TXN_INDEX_ENTRY.pack(TXN_INDEX_VERSION, *txn) for txn in aborted)


def unpack_aborted(data: Bytes) -> list[AbortedTxn]:
    """The entries of a transaction index; part of an entry at the end of the file is left out."""
    whole = len(data) // TXN_INDEX_ENTRY.size * TXN_INDEX_ENTRY.size
    return [AbortedTxn(*fields[1:]) for fields in TXN_INDEX_ENTRY.iter_unpack(memoryview(data)[:whole])]


def _no_batches(producer_id: int, epoch: int) -> Iterable[SentBatch]:  # noqa: ARG001
    return ()


def pack_snapshot(
    producers: Mapping[int, ProducerEntry],
    batches: Callable[[int, int], Iterable[SentBatch]] = _no_batches,
) -> bytes:
    """The bytes of a producer snapshot, producers in the order in which Kafka's hash map would give them.

    `batches` are the last ones of a producer in an epoch, oldest first. Each gets an entry of its own, before
    the producer's. Kafka, which has one entry for each producer, keeps the last it reads: the producer's.
    """
    entries = [
        SNAPSHOT_ENTRY.pack(*stored)
        for producer_id in hash_map_order(list(producers))
        for stored in _stored(producers[producer_id], batches)
    ]
    body = b"".join(entries)
    packed = SNAPSHOT_HEADER.pack(SNAPSHOT_VERSION, 0, len(entries)) + body
    crc = crc32c(memoryview(packed)[SNAPSHOT_CRC_FROM:])
    return SNAPSHOT_HEADER.pack(SNAPSHOT_VERSION, crc, len(entries)) + body


def _stored(
    entry: ProducerEntry, batches: Callable[[int, int], Iterable[SentBatch]]
) -> Iterable[ProducerEntry]:
    """The entries of one producer. None of a batch may outlive the last one, with which Kafka expires it."""
    for batch in batches(entry.producer_id, entry.epoch):
        if batch.last_sequence >= 0 and batch.last_offset < entry.last_offset:
            yield entry._replace(
                last_sequence=batch.last_sequence,
                last_offset=batch.last_offset,
                offset_delta=batch.last_offset - batch.first_offset,
                timestamp=min(batch.timestamp, entry.timestamp),
                txn_first_offset=_NO_OFFSET,
            )
    yield entry


def unpack_snapshot(data: Bytes) -> list[ProducerEntry]:
    """The entries of a producer snapshot, the last of each producer being the producer's own.

    Raises `FormatError` if a broker would call it corrupt.
    """
    cure = "a broker deletes it and takes the next older one; `klog rebuild-index --snapshots` rebuilds it"
    if len(data) < SNAPSHOT_HEADER_BYTES:
        raise FormatError(
            f"snapshot of {len(data)} bytes is shorter than its header", position_bytes=0, cure=cure
        )
    version, crc, count = SNAPSHOT_HEADER.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise FormatError(f"snapshot has the unknown version {version}", position_bytes=0, cure=cure)
    if not 0 <= count <= (len(data) - SNAPSHOT_HEADER_BYTES) // SNAPSHOT_ENTRY_BYTES:
        raise FormatError(
            f"snapshot of {len(data)} bytes cannot hold {count} producers",
            position_bytes=SNAPSHOT_COUNT_POSITION,
            cure=cure,
        )
    checked = memoryview(data)[SNAPSHOT_CRC_FROM:]
    computed = crc32c(checked)
    if computed != crc:
        confirm_crc32c(checked, computed)
        raise FormatError(
            f"snapshot's crc is {crc}, but its bytes give {computed}",
            position_bytes=SNAPSHOT_CRC_POSITION,
            cure=cure,
        )
    end = SNAPSHOT_HEADER_BYTES + count * SNAPSHOT_ENTRY_BYTES
    return [
        ProducerEntry(*fields)
        for fields in SNAPSHOT_ENTRY.iter_unpack(memoryview(data)[SNAPSHOT_HEADER_BYTES:end])
    ]


def producers_in(data: Bytes) -> dict[int, ProducerEntry]:
    """The producers in a snapshot as Kafka reads them: the last entry of each. Raises `FormatError`."""
    return {entry.producer_id: entry for entry in unpack_snapshot(data)}


def newest_state(
    offsets: Iterable[int],
    data_of: Callable[[int], bytes],
    *,
    on_bad: Callable[[int, KlogError], None] | None = None,
    errors: type[KlogError] = FormatError,
    now_ms: int = 0,
    expiration_ms: int = INT64_MAX,
    history: History | None = None,
) -> ProducerState | None:
    """The producers of the newest valid snapshot; None if there is none.

    `offsets` are those of the snapshots, descending. Those with one of the `errors` are passed over; `on_bad`
    gets their errors.
    """
    for offset in offsets:
        try:
            entries = unpack_snapshot(data_of(offset))
        except errors as error:
            if on_bad is not None:
                on_bad(offset, error)
            continue
        state = ProducerState(offset, history)
        state.load(entries, now_ms, expiration_ms)
        state.snapshot_offset = offset
        return state
    return None


def hash_map_order(producer_ids: list[int]) -> list[int]:
    """The producer ids (in order of appearance) in the order of a Java `HashMap` with these keys.

    Kafka stores entries in that order. It has no meaning, but files with equal bytes are easy to compare. A
    map doubles when it is more than three quarters full.
    """
    buckets = _SMALLEST_MAP
    while len(producer_ids) > buckets * 3 // 4:
        buckets *= 2

    def bucket(producer_id: int) -> int:
        bits = producer_id & (1 << 64) - 1
        hashed = (bits ^ bits >> 32) & (1 << 32) - 1
        return (hashed ^ hashed >> 16) & buckets - 1

    return sorted(producer_ids, key=bucket)
