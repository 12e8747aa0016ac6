"""The simulation finds the defects that it is there to find."""

from __future__ import annotations

import pytest

from tests.simulation.generation import schedule
from tests.simulation.mutations import MUTATIONS
from tests.simulation.run import run

SEEDS = 1000
FIRST = {
    "a transaction coordinator that answers before replication": 260,
    "markers of a replaced transaction coordinator": 570,
}
"""The seeds below these do not find the defect, so the search of a test begins here."""


@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_a_defect_is_found(name: str) -> None:
    with MUTATIONS[name]():
        seeds = range(FIRST.get(name, 0), SEEDS)
        found = next((seed for seed in seeds if run(schedule(seed)).failure is not None), None)
    assert found is not None, f"{SEEDS} schedules do not find: {name}"
    assert run(schedule(found)).failure is None, "the schedule fails without the defect, too"
