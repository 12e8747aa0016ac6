"""Transactional clients write while runs read. Whatever moment is restored, the clients' histories fit it."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from klog.backup.moment.values import Basis
from klog.backup.restoring.request import RestoreRequest
from tests.backup.recorded import RUNS, SEED, Recorded, check, restore, without_input

MOMENTS = int(os.environ.get("KLOG_TEST_MOMENTS", "12"))


@pytest.mark.parametrize("number", range(MOMENTS))
def test_any_moment_is_as_the_clients_histories_say(recorded: Recorded, tmp_path: Path, number: int) -> None:
    at_ms = random.Random(SEED + number).randint(recorded.begin_ms + 300, recorded.end_ms)

    plan = restore(recorded.repository, RestoreRequest(at_ms, wants=without_input), tmp_path / "restored")

    assert check(recorded, plan, tmp_path / "restored", at_ms) > 0


@pytest.mark.parametrize("run", range(RUNS + 1))
def test_the_end_of_a_run_on_a_busy_broker_fits(recorded: Recorded, tmp_path: Path, run: int) -> None:
    identifier = recorded.repository.ids()[run]
    request = RestoreRequest(backup=identifier, wants=without_input)

    plan = restore(recorded.repository, request, tmp_path / "restored")

    assert check(recorded, plan, tmp_path / "restored", None) > 0
    assert {each.cut.basis for each in plan.partitions} == {Basis.ARRIVAL}
