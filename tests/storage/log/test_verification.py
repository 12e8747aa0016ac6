"""Records open a transaction in a log only if the coordinator was asked after the last marker (KIP-890)."""

from __future__ import annotations

from pathlib import Path

import pytest

from klog.storage.log.append_values import AppendError, Origin
from klog.storage.log.partition_log import AppendInfo, PartitionLog
from klog.storage.log.verification import UNCHECKED
from tests.storage.log.building import NOW_MS, append, idempotent, marker, new_log, transactional

PRODUCER = 7
DAY_MS = 86_400_000


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    return new_log(tmp_path)


def begin(log: PartitionLog, sequence: int = 0, *, epoch: int = 0, now_ms: int = NOW_MS) -> object | None:
    return log.producers.begin_verification(PRODUCER, epoch, sequence, now_ms)


def write(
    log: PartitionLog, data: memoryview, guard: object | None, origin: Origin = Origin.CLIENT
) -> AppendInfo:
    with log.lock:
        return log.append_as_leader(data, 0, NOW_MS, origin, guard)


def refused(log: PartitionLog, data: memoryview, guard: object | None, origin: Origin = Origin.CLIENT) -> str:
    with pytest.raises(AppendError) as error:
        write(log, data, guard, origin)
    return error.value.error


@pytest.mark.parametrize("origin", [Origin.CLIENT, Origin.COORDINATOR])
def test_records_without_the_guard_of_a_verification_open_no_transaction(
    log: PartitionLog, origin: Origin
) -> None:
    assert refused(log, transactional(0), None, origin) == "INVALID_TXN_STATE"
    guard = begin(log)
    assert refused(log, transactional(0), None, origin) == "INVALID_TXN_STATE"
    assert refused(log, transactional(0), object(), origin) == "INVALID_TXN_STATE"
    assert write(log, transactional(0), guard, origin).first_offset == 0


def test_where_the_switch_is_off_nothing_is_checked(log: PartitionLog) -> None:
    assert write(log, transactional(0), UNCHECKED).first_offset == 0


def test_other_records_and_markers_need_no_verification(log: PartitionLog) -> None:
    assert write(log, idempotent(0), None).first_offset == 0
    assert write(log, marker(commit=True), None, Origin.COORDINATOR).first_offset == 1


def test_an_open_transaction_needs_no_further_verification(log: PartitionLog) -> None:
    write(log, transactional(0), begin(log))
    assert begin(log, 1) is None
    assert write(log, transactional(1), None).first_offset == 1
    assert not log.producers.verifying


def test_a_new_epoch_is_verified_although_the_old_one_has_a_transaction_open(log: PartitionLog) -> None:
    write(log, transactional(0), begin(log))
    guard = begin(log, 0, epoch=1)
    assert guard is not None
    assert refused(log, transactional(0, epoch=1), None) == "INVALID_TXN_STATE"


def test_a_marker_between_the_verification_and_the_records_refuses_them(log: PartitionLog) -> None:
    guard = begin(log)
    append(log, marker(commit=False), origin=Origin.COORDINATOR)
    assert refused(log, transactional(0), guard) == "INVALID_TXN_STATE"
    assert log.producers.first_unstable_offset is None


def test_records_after_the_marker_of_their_transaction_are_refused(log: PartitionLog) -> None:
    write(log, transactional(0), begin(log))
    append(log, marker(commit=True), origin=Origin.COORDINATOR)
    assert refused(log, transactional(1), None) == "INVALID_TXN_STATE"
    assert write(log, transactional(1), begin(log, 1)).first_offset == 2


def test_requests_that_wait_for_the_same_verification_share_its_guard(log: PartitionLog) -> None:
    first, second = begin(log, 0), begin(log, 1)
    assert first is second
    write(log, transactional(0), first)
    assert write(log, transactional(1), second).first_offset == 1, "the transaction is open now"


def test_a_request_that_overtakes_an_earlier_one_is_out_of_order(log: PartitionLog) -> None:
    guard = begin(log, 3)
    begin(log, 0)
    assert refused(log, transactional(3), guard) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    write(log, transactional(0, 3), guard)
    assert write(log, transactional(3), guard).first_offset == 3


def test_a_higher_epoch_begins_with_sequences_of_its_own(log: PartitionLog) -> None:
    begin(log, 0)
    guard = begin(log, 5, epoch=1)
    begin(log, 2, epoch=0)
    assert write(log, transactional(5, epoch=1), guard).first_offset == 0


def test_a_stale_epoch_is_fenced_also_if_it_is_not_verified(log: PartitionLog) -> None:
    append(log, marker(commit=True, epoch=4), origin=Origin.COORDINATOR)
    assert refused(log, transactional(0, epoch=3), None) == "INVALID_PRODUCER_EPOCH"


def test_a_repeated_batch_is_acknowledged_without_a_verification(log: PartitionLog) -> None:
    write(log, transactional(0), begin(log))
    append(log, marker(commit=True), origin=Origin.COORDINATOR)
    assert write(log, transactional(0), None).duplicate


def test_verifications_are_forgotten_with_idle_producers(log: PartitionLog) -> None:
    guard = begin(log)
    assert log.producers.remove_expired(NOW_MS + DAY_MS - 1, DAY_MS) == 0
    assert log.producers.verifying
    log.producers.remove_expired(NOW_MS + DAY_MS, DAY_MS)
    assert not log.producers.verifying
    assert refused(log, transactional(0), guard) == "INVALID_TXN_STATE"
