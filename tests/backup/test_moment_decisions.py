"""Which decision of `__transaction_state` is about a transaction that a partition has a part of."""

from __future__ import annotations

import pytest

from klog.backup.moment.decisions import TRANSACTION_TOPIC, Decisions
from klog.backup.moment.values import Transaction
from klog.coordinator.transactions.records import TransactionRecord
from klog.coordinator.transactions.values import Producer, TransactionState
from klog.formats.names import TopicPartition

STATE = TopicPartition(TRANSACTION_TOPIC, 0)
ORDERS = TopicPartition("orders", 0)


def _add(decisions: Decisions, offset: int, at_ms: int, state: TransactionState, start_ms: int) -> None:
    named = frozenset({ORDERS}) if state is TransactionState.PREPARE_COMMIT else frozenset[TopicPartition]()
    record = TransactionRecord(Producer(7, 0), 60_000, state, named, at_ms, start_ms)
    decisions.add(STATE, offset, offset + 1, at_ms, record)


@pytest.mark.parametrize(("first_ms", "offset"), [(750, 3), (850, 4)])
def test_a_completion_alone_is_passed_over_if_it_came_before_the_transaction_began(
    first_ms: int, offset: int
) -> None:
    """After the producer's marker at 600 came a transaction from 700 to 800, whose PrepareCommit is compacted
    away, and one from 850 on. Only the completion of the first is left: it says nothing of partitions.
    """
    decisions = Decisions()
    _add(decisions, 3, 800, TransactionState.COMPLETE_COMMIT, 700)
    _add(decisions, 4, 900, TransactionState.PREPARE_COMMIT, 850)

    found = decisions.decision_of(ORDERS, Transaction(7, 0, 23, 26, first_ms, 600))

    assert found is not None
    assert found.offset == offset
