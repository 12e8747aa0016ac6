"""The coordinators' topics agree with the cut: no open transaction, no offset beyond the end."""

from __future__ import annotations

import pytest

from klog.backup.moment.corrections import fenced_epochs, offset_corrections, transaction_corrections
from klog.coordinator.groups.records import read_key, read_offset_value
from klog.coordinator.groups.values import CommittedOffset
from klog.coordinator.transactions.records import (
    TransactionRecord,
    read_transaction_key,
    read_transaction_value,
)
from klog.coordinator.transactions.values import Producer, TransactionState
from klog.formats.names import TopicPartition

ORDERS = TopicPartition("orders", 0)


def _record(state: TransactionState, epoch: int = 3) -> TransactionRecord:
    return TransactionRecord(Producer(7, epoch), 60_000, state, frozenset({ORDERS}), 1000, 900)


@pytest.mark.parametrize(
    ("state", "after", "epoch"),
    [
        (TransactionState.ONGOING, TransactionState.COMPLETE_ABORT, 4),
        (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT, 3),
        (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT, 3),
    ],
)
def test_what_was_decided_is_complete_and_what_was_not_is_aborted_in_the_next_epoch(
    state: TransactionState, after: TransactionState, epoch: int
) -> None:
    ((key, value),) = transaction_corrections({"t": _record(state)}, 5000)

    assert read_transaction_key(key) == "t"
    assert value is not None
    assert read_transaction_value(value) == TransactionRecord(
        Producer(7, epoch), 60_000, after, frozenset(), 5000, 900
    )


@pytest.mark.parametrize(
    "state", [TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT]
)
def test_an_id_without_an_open_transaction_stays_as_it_is(state: TransactionState) -> None:
    assert transaction_corrections({"t": _record(state)}, 5000) == []


def test_only_producers_of_undecided_transactions_are_fenced() -> None:
    assert fenced_epochs([_record(TransactionState.ONGOING)]) == {7: 4}
    assert fenced_epochs([_record(TransactionState.PREPARE_COMMIT)]) == {}
    assert fenced_epochs([_record(TransactionState.ONGOING, epoch=32767)]) == {7: 32767}


def _corrected(
    offsets: dict[tuple[str, int], int], ends: dict[TopicPartition, int], names: dict[str, str]
) -> dict[tuple[str, int], int | None]:
    committed = {key: CommittedOffset(offset, 2, "m", 1000) for key, offset in offsets.items()}
    found: dict[tuple[str, int], int | None] = {}
    for key, value in offset_corrections("g", committed, ends, names):
        read = read_key(key)
        assert read is not None
        assert read.group_id == "g"
        assert read.partition is not None
        found[read.partition] = None if value is None else read_offset_value(value).offset
        assert value is None or read_offset_value(value)._replace(offset=0) == CommittedOffset(
            0, 2, "m", 1000
        )
    return found


def test_no_offset_is_beyond_the_restored_end() -> None:
    offsets = {("orders", 0): 10, ("orders", 1): 11, ("other", 0): 99}
    ends = {TopicPartition("orders", 0): 10, TopicPartition("orders", 1): 10}

    assert _corrected(offsets, ends, {}) == {("orders", 1): 10}


def test_a_topic_under_a_new_name_takes_its_offsets_along() -> None:
    ends = {TopicPartition("orders-old", 0): 10}

    assert _corrected({("orders", 0): 12}, ends, {"orders": "orders-old"}) == {
        ("orders", 0): None,
        ("orders-old", 0): 10,
    }
