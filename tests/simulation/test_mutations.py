"""The simulation finds the defects that it is there to find."""

from __future__ import annotations

from itertools import chain

import pytest

from tests.simulation.generation import schedule
from tests.simulation.mutations import MUTATIONS
from tests.simulation.run import run

SEEDS = 1000

TRIED_FIRST = {
    "a shrink of the ISR applied early": 73,
    "an ISR answer of an older version applied": 52,
    "an offset commit answered before the high watermark": 120,
    "markers of a replaced transaction coordinator": 432,
    "no fencing by leader epoch": 25,
}
"""Schedules that have found defects which many others do not find. They only save time."""


@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_a_defect_is_found(name: str) -> None:
    with MUTATIONS[name]():
        seeds = chain(filter(None, [TRIED_FIRST.get(name)]), range(SEEDS))
        found = next((seed for seed in seeds if run(schedule(seed)).failure is not None), None)
    assert found is not None, f"{SEEDS} schedules do not find: {name}"
    assert run(schedule(found)).failure is None, "the schedule fails without the defect, too"
