"""The simulation finds the defects that it is there to find."""

from __future__ import annotations

import pytest

from tests.simulation.generation import schedule
from tests.simulation.mutations import MUTATIONS
from tests.simulation.run import run

SEEDS = 1000


@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_a_defect_is_found(name: str) -> None:
    with MUTATIONS[name]():
        found = next((seed for seed in range(SEEDS) if run(schedule(seed)).failure is not None), None)
    assert found is not None, f"{SEEDS} schedules do not find: {name}"
    assert run(schedule(found)).failure is None, "the schedule fails without the defect, too"
