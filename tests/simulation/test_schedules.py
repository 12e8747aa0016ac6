"""Random schedules: whatever happens, what Kafka promises holds at every step, and the cluster recovers."""

from __future__ import annotations

import os

import pytest

from tests.simulation.generation import schedule
from tests.simulation.printing import report
from tests.simulation.run import run
from tests.simulation.shrinking import shrink

SCHEDULES = int(os.environ.get("KLOG_SIMULATION_SCHEDULES", "400"))
PARTS = 20


@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_is_lost_and_all_brokers_agree_in_the_end(part: int) -> None:
    acknowledged = 0
    for seed in range(part, SCHEDULES, PARTS):
        outcome = run(schedule(seed))
        if outcome.failure is not None:
            failing = outcome.failure.schedule
            smallest = shrink(failing, lambda each: run(each).failure is not None, max_runs=100)
            pytest.fail(report(run(smallest).failure or outcome.failure))
        acknowledged += outcome.counts["acknowledged"]
    assert acknowledged, "no schedule has acknowledged anything"
