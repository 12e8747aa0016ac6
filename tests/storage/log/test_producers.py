"""Idempotence and transactions on the log: duplicates, sequences, epochs, markers, the last stable offset."""

from __future__ import annotations

from pathlib import Path

import pytest

from klog.storage.log.append_values import AppendError, Origin
from klog.storage.log.partition_log import PartitionLog
from tests.storage.log.building import (
    NOW_MS,
    append,
    batch,
    idempotent,
    marker,
    new_log,
    offsets_of,
    reload,
    transactional,
)

LARGEST = 2**31 - 1


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    return new_log(tmp_path)


def refused(log: PartitionLog, data: memoryview, origin: Origin = Origin.CLIENT) -> str:
    end = log.log_end_offset
    with pytest.raises(AppendError) as error:
        append(log, data, origin=origin)
    assert log.log_end_offset == end
    return error.value.error


def test_a_batch_sent_again_is_acknowledged_with_its_offsets_and_not_written(log: PartitionLog) -> None:
    first = append(log, idempotent(0, 3))
    append(log, idempotent(3))
    again = append(log, idempotent(0, 3))
    assert (again.first_offset, again.last_offset, again.duplicate) == (0, 2, True)
    assert (first.duplicate, again.log_append_time_ms) == (False, NOW_MS)
    assert log.log_end_offset == 4


def test_the_last_five_batches_of_a_producer_are_remembered(log: PartitionLog) -> None:
    for sequence in range(6):
        append(log, idempotent(sequence))
    assert [append(log, idempotent(sequence)).duplicate for sequence in range(1, 6)] == [True] * 5
    assert refused(log, idempotent(0)) == "OUT_OF_ORDER_SEQUENCE_NUMBER"


def test_after_a_cut_the_batches_that_are_left_are_remembered_as_before(log: PartitionLog) -> None:
    for sequence in range(4):
        append(log, idempotent(sequence))
        append(log, idempotent(sequence, producer=8, epoch=1))
    log.roll()
    for sequence in range(4, 8):
        append(log, idempotent(sequence))
    log.truncate_to(10)
    assert [append(log, idempotent(sequence)).duplicate for sequence in range(1, 6)] == [True] * 5
    assert append(log, idempotent(6)).duplicate is False
    log.truncate_to(7)
    again = [append(log, idempotent(sequence, producer=8, epoch=1)) for sequence in range(3)]
    assert [(each.first_offset, each.duplicate) for each in again] == [(1, True), (3, True), (5, True)]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("rolled_after", [0, 3, 7])
def test_after_a_restart_a_batch_sent_again_is_one_of_the_last_five_as_before(
    tmp_path: Path, clean: bool, rolled_after: int
) -> None:
    log = new_log(tmp_path)
    for sequence in range(7):
        append(log, idempotent(sequence, timestamp=NOW_MS - sequence))
        append(log, idempotent(0, producer=8, epoch=sequence))
        if sequence + 1 == rolled_after:
            log.roll()
    if clean:
        log.close()
    else:
        log.release()
    again, _ = reload(log, tmp_path, clean=clean, recovery_point=log.recovery_point)
    told = [append(again, idempotent(sequence)) for sequence in range(2, 7)]
    assert [(each.first_offset, each.duplicate) for each in told] == [
        (2 * sequence, True) for sequence in range(2, 7)
    ]
    assert refused(again, idempotent(1)) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    # Batches of an epoch that is over are not.
    assert append(again, idempotent(0, producer=8, epoch=6)).duplicate
    assert refused(again, idempotent(0, producer=8, epoch=5)) == "INVALID_PRODUCER_EPOCH"
    assert append(again, idempotent(7)).duplicate is False


def test_the_batches_of_a_producer_expire_together(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, idempotent(0, timestamp=NOW_MS + 1000))
    append(log, idempotent(1, timestamp=NOW_MS - 1000))
    log.close()
    again, _ = reload(log, tmp_path, clean=True, producer_expiration_ms=500)
    assert again.producers.is_empty


def test_a_cut_brings_back_no_producer_where_all_were_forgotten(log: PartitionLog) -> None:
    append(log, idempotent(0))
    append(log, idempotent(1))
    log.producers.remove_expired(NOW_MS + 1000, 1000)
    log.truncate_to(1)
    assert log.producers.is_empty
    assert append(log, idempotent(9)).first_offset == 1


def test_a_duplicate_has_the_same_first_and_last_sequence(log: PartitionLog) -> None:
    append(log, idempotent(0, 3))
    assert refused(log, idempotent(0, 2)) == "OUT_OF_ORDER_SEQUENCE_NUMBER"


def test_sequences_count_on_without_a_gap(log: PartitionLog) -> None:
    append(log, idempotent(0, 3))
    assert refused(log, idempotent(4)) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert append(log, idempotent(3)).last_offset == 3


def test_sequences_wrap_to_0(log: PartitionLog) -> None:
    append(log, idempotent(LARGEST - 1, 3))  # the last record has sequence 0
    assert append(log, idempotent(LARGEST - 1, 3)).duplicate
    assert refused(log, idempotent(0)) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert append(log, idempotent(1)).last_offset == 3
    append(log, idempotent(LARGEST, producer=8))
    assert append(log, idempotent(0, producer=8)).last_offset == 5


def test_a_producer_that_the_log_does_not_know_may_begin_anywhere(log: PartitionLog) -> None:
    assert append(log, idempotent(500)).last_offset == 0


def test_a_new_epoch_begins_at_0(log: PartitionLog) -> None:
    append(log, idempotent(5))
    assert refused(log, idempotent(6, epoch=1)) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    append(log, idempotent(0, epoch=1))
    assert not append(log, idempotent(1, epoch=1)).duplicate


def test_a_producer_without_an_epoch_may_go_on_anywhere(log: PartitionLog) -> None:
    append(log, idempotent(0, epoch=-1))
    assert append(log, idempotent(5, epoch=-1)).first_offset == 1
    assert append(log, idempotent(3, epoch=0)).first_offset == 2
    assert refused(log, idempotent(5, epoch=0)) == "OUT_OF_ORDER_SEQUENCE_NUMBER"


def test_an_old_epoch_is_fenced(log: PartitionLog) -> None:
    assert refused(log, idempotent(0, epoch=-2)) == "INVALID_PRODUCER_EPOCH"
    append(log, idempotent(0, epoch=2))
    assert refused(log, idempotent(0, epoch=1)) == "INVALID_PRODUCER_EPOCH"
    assert refused(log, idempotent(1, epoch=1), Origin.COORDINATOR) == "INVALID_PRODUCER_EPOCH"


def test_coordinators_keep_no_sequences(log: PartitionLog) -> None:
    for _ in range(2):
        written = batch(2, producer_id=7, producer_epoch=0, is_transactional=True)
        assert not append(log, written, origin=Origin.COORDINATOR).duplicate
    assert log.producers.entries()[7].last_sequence == -1


def test_nothing_may_be_written_outside_of_an_open_transaction(log: PartitionLog) -> None:
    append(log, transactional(0))
    assert refused(log, idempotent(1)) == "INVALID_TXN_STATE"


def test_an_aborted_transaction_gets_an_entry_in_the_transaction_index(log: PartitionLog) -> None:
    append(log, batch())
    append(log, transactional(0, 2))
    append(log, transactional(0, producer=8))
    append(log, marker(commit=False), origin=Origin.COORDINATOR)
    append(log, marker(commit=False, producer=8), origin=Origin.COORDINATOR)
    first, second = log.segments.active.aborted()
    # Another transaction was still open when the first was aborted.
    assert tuple(first) == (7, 1, 4, 3)
    assert tuple(second) == (8, 3, 5, 6)


def test_a_committed_or_empty_transaction_gets_none(log: PartitionLog) -> None:
    append(log, transactional(0))
    append(log, marker(commit=True), origin=Origin.COORDINATOR)
    append(log, marker(commit=False, producer=9), origin=Origin.COORDINATOR)
    assert log.segments.active.aborted() == []


def test_the_first_unstable_offset_stays_until_the_marker_is_below_the_high_watermark(
    log: PartitionLog,
) -> None:
    append(log, batch(2))
    append(log, transactional(0, 3))
    log.set_high_watermark(5)
    assert (log.producers.first_unstable_offset, log.last_stable_offset) == (2, 2)
    append(log, marker(commit=True), origin=Origin.COORDINATOR)
    assert log.last_stable_offset == 2
    log.set_high_watermark(5)
    assert log.last_stable_offset == 2, "the marker at 5 is not replicated yet"
    log.set_high_watermark(6)
    assert (log.producers.first_unstable_offset, log.last_stable_offset) == (None, 6)


def test_a_cut_keeps_the_last_stable_offset_before_a_marker_that_is_not_replicated(
    log: PartitionLog,
) -> None:
    append(log, batch())
    append(log, transactional(0, 3))
    append(log, marker(commit=True), origin=Origin.COORDINATOR)
    append(log, batch(2))
    log.set_high_watermark(3)
    log.truncate_to(5)
    assert (log.log_end_offset, log.last_stable_offset) == (5, 1)
    log.set_high_watermark(5)
    assert log.last_stable_offset == 5


def test_the_last_stable_offset_is_never_below_the_log_start(log: PartitionLog) -> None:
    append(log, transactional(0, 3))
    append(log, batch(3))
    log.set_high_watermark(6)
    log.advance_log_start(4)
    assert log.last_stable_offset == 4


def test_a_marker_of_an_old_coordinator_or_producer_epoch_is_fenced(log: PartitionLog) -> None:
    append(log, transactional(0, epoch=1))
    append(log, marker(commit=True, epoch=1, coordinator_epoch=4), origin=Origin.COORDINATOR)
    old_coordinator = marker(commit=True, epoch=1, coordinator_epoch=3)
    assert refused(log, old_coordinator, Origin.COORDINATOR) == "TRANSACTION_COORDINATOR_FENCED"
    assert refused(log, marker(commit=True), Origin.COORDINATOR) == "INVALID_PRODUCER_EPOCH"


def test_a_marker_with_a_new_epoch_forgets_the_batches_of_the_old_one(log: PartitionLog) -> None:
    append(log, transactional(0))
    append(log, marker(commit=False, epoch=1), origin=Origin.COORDINATOR)
    assert refused(log, idempotent(5, epoch=1)) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert append(log, idempotent(0, epoch=1)).last_offset == 2


def test_read_committed_reads_come_with_the_aborted_transactions_that_overlap_them(
    tmp_path: Path,
) -> None:
    log = new_log(tmp_path, {"index.interval.bytes": "0"})
    append(log, transactional(0))
    append(log, marker(commit=False), origin=Origin.COORDINATOR)
    log.roll()
    append(log, batch())
    append(log, transactional(1))
    append(log, marker(commit=False), origin=Origin.COORDINATOR)
    log.set_high_watermark(5)

    def aborted(offset: int, limit: int) -> list[int]:
        read = log.read(offset, 10_000, limit, committed=True)
        assert offsets_of(read)
        return [txn.first_offset for txn in read.aborted]

    assert aborted(0, 2) == [0]
    assert aborted(2, 3) == []
    assert aborted(2, 5) == [3]
    assert aborted(4, 5) == [3]
    assert log.read(0, 10_000, 5).aborted == ()


def test_producers_idle_for_too_long_are_forgotten_unless_a_transaction_is_open(log: PartitionLog) -> None:
    append(log, idempotent(0, producer=1))
    append(log, transactional(0, producer=2))
    assert log.producers.remove_expired(NOW_MS + 99, 100) == 0
    assert log.producers.remove_expired(NOW_MS + 100, 100) == 1
    assert list(log.producers.by_id) == [2]


@pytest.mark.parametrize("clean", [True, False])
def test_producers_are_known_again_after_a_restart(tmp_path: Path, clean: bool) -> None:
    log = new_log(tmp_path)
    append(log, idempotent(0, 3))
    append(log, transactional(LARGEST, 2, producer=8))
    append(log, transactional(0, producer=9))
    append(log, marker(commit=False, producer=9, coordinator_epoch=5), origin=Origin.COORDINATOR)
    (log.close if clean else log.release)()
    again, _ = reload(log, tmp_path, clean=clean)
    assert again.producers.entries() == log.producers.entries()
    assert again.producers.first_unstable_offset == 3
    assert append(again, idempotent(0, 3)).duplicate
    assert append(again, transactional(LARGEST, 2, producer=8)).duplicate
    assert refused(again, idempotent(7)) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert append(again, idempotent(3)).last_offset == 7
