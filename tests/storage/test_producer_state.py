"""The state of producers and transactions follows from batch headers and markers."""

from __future__ import annotations

import struct

from klog.formats.checksums import crc32c
from klog.formats.constants import CONTROL_BIT, TRANSACTIONAL_BIT
from klog.kernel import kernel
from klog.kernel.columns import BatchTable
from klog.storage.reading.producer_state import AbortedTxn, ProducerState

ABORT, COMMIT = 0, 1


def batch(
    offset: int, pid: int, *, count: int = 1, sequence: int = 0, attributes: int = 0, body: bytes = b""
) -> bytes:
    rest = struct.pack(">hiqqqhii", attributes, count - 1, 100, 100, pid, 0, sequence, count) + body
    head = struct.pack(">qiibI", offset, len(rest) + 9, 0, 2, crc32c(rest))
    return head + rest


def data(offset: int, pid: int, *, count: int = 1, sequence: int = 0) -> bytes:
    return batch(offset, pid, count=count, sequence=sequence, attributes=TRANSACTIONAL_BIT)


def marker(offset: int, pid: int, kind: int, coordinator_epoch: int = 0) -> bytes:
    record = (
        b"\0\0\0\x08"
        + struct.pack(">hh", 0, kind)
        + b"\x0c"
        + struct.pack(">hi", 0, coordinator_epoch)
        + b"\0"
    )
    body = bytes([len(record) * 2]) + record
    return batch(offset, pid, attributes=TRANSACTIONAL_BIT | CONTROL_BIT, sequence=-1, body=body)


def follow(*batches: bytes) -> tuple[ProducerState, int]:
    log = b"".join(batches)
    table = BatchTable()
    kernel.scan(log, 0, True, table)
    assert len(table) == len(batches)
    state = ProducerState()
    return state, state.take(memoryview(log), table)


def test_an_aborted_transaction_has_an_entry_a_committed_one_has_none() -> None:
    state, _ = follow(data(0, 1), marker(1, 1, ABORT), data(2, 1), marker(3, 1, COMMIT))
    assert state.aborted == [AbortedTxn(1, 0, 1, last_stable_offset=2)]
    assert state.open_txns == {}


def test_the_last_stable_offset_is_where_the_earliest_other_open_transaction_starts() -> None:
    state, _ = follow(data(0, 1), data(1, 2), data(2, 3), marker(3, 3, ABORT))
    assert state.aborted == [AbortedTxn(3, 2, 3, last_stable_offset=0)]


def test_a_marker_without_data_ends_nothing() -> None:
    state, _ = follow(marker(0, 1, ABORT))
    assert state.aborted == []
    assert state.lone_aborts == {(1, 0)}


def test_the_last_batch_of_a_producer_is_what_a_snapshot_keeps() -> None:
    state, _ = follow(batch(0, 1, count=5, sequence=0), batch(5, 2), batch(6, 1, count=3, sequence=5))
    entry = state.producers[1]
    assert (entry.last_sequence, entry.last_offset, entry.offset_delta) == (7, 8, 2)
    assert state.end_offset == 9


def test_sequences_wrap_after_the_largest() -> None:
    state, _ = follow(batch(0, 1, count=3, sequence=2**31 - 2))
    assert state.producers[1].last_sequence == 0


def test_following_ends_at_a_marker_that_does_not_decode() -> None:
    broken = batch(1, 1, attributes=TRANSACTIONAL_BIT | CONTROL_BIT, body=b"\x7f\x7f")
    _, followed = follow(data(0, 1), broken, data(2, 1))
    assert followed == 1


def test_plain_records_inside_a_transaction_are_reported() -> None:
    state, _ = follow(data(0, 1), batch(1, 1, sequence=1))
    assert [offset for offset, _ in state.complaints] == [1]


def test_idle_producers_expire_when_a_snapshot_is_loaded_but_not_with_an_open_transaction() -> None:
    old, _ = follow(batch(0, 1), data(1, 2))
    loaded = ProducerState()
    loaded.load(old.producers.values(), now_ms=1100, expiration_ms=1000)
    assert set(loaded.producers) == {2}
    assert loaded.open_txns == {1: 2}
