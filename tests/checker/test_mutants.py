"""The checks of the transaction checker find every fault of a broken broker, and none of a right one."""

from __future__ import annotations

import pytest

from tests.checker import checks
from tests.checker.model import Fault, History, ModelBroker

SEEDS = range(100)


def violations(history: History) -> list[str]:
    return checks.transaction_violations(
        history.transactions, history.visible, history.committed, history.inputs, history.observed
    )


def test_a_broker_without_faults_violates_nothing() -> None:
    for seed in SEEDS:
        assert violations(ModelBroker(seed).play()) == []


@pytest.mark.parametrize("fault", Fault)
def test_every_fault_is_found(fault: Fault) -> None:
    failed = 0
    for seed in SEEDS:
        broker = ModelBroker(seed, fault)
        history = broker.play()
        failed += broker.has_failed
        assert bool(violations(history)) == broker.has_failed, seed
    assert failed > len(SEEDS) / 2  # the others had no transaction that it could spoil
