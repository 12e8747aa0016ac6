"""Prints a failing schedule: what happened, and a test that plays it again."""

from __future__ import annotations

from tests.simulation.run import Failure
from tests.simulation.schedule import Schedule

_INDENT = "        "


def as_test(schedule: Schedule) -> str:
    """A test of this schedule, to be put into `tests/simulation/test_found.py`."""
    faults = "".join(f"{_INDENT}    {fault!r},\n" for fault in schedule.faults)
    return (
        f"def test_seed_{schedule.seed}() -> None:\n"
        "    schedule = Schedule(\n"
        f"{_INDENT}seed={schedule.seed},\n"
        f"{_INDENT}brokers={schedule.brokers!r},\n"
        f"{_INDENT}topics={schedule.topics!r},\n"
        f"{_INDENT}faults=(\n{faults}{_INDENT}),\n"
        f"{_INDENT}loss={schedule.loss!r},\n"
        f"{_INDENT}chaos_ms={schedule.chaos_ms!r},\n"
        f"{_INDENT}tick_ms={schedule.tick_ms!r},\n"
        f"{_INDENT}log_dirs={schedule.log_dirs!r},\n"
        "    )\n"
        "    assert run(schedule).failure is None\n"
    )


def report(failure: Failure, lines: int = 120) -> str:
    """What happened, why it is wrong, and the test."""
    trace = "\n".join(failure.trace[-lines:])
    return f"{trace}\n\n{failure.traceback}\n{as_test(failure.schedule)}"
