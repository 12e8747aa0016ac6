"""A failing schedule is made smaller, printed as a test, and plays the same each time."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.simulation import schedule as faults
from tests.simulation.generation import schedule
from tests.simulation.printing import as_test
from tests.simulation.run import run
from tests.simulation.schedule import Crash, Depose, Flush, Pause, Schedule
from tests.simulation.shrinking import shrink

LONG = Schedule(
    7,
    topics=(("a", ((1, 2), (2, 3)), ()), ("b", ((1,),), ())),
    faults=(
        Depose(100),
        Crash(200, 1, 4_000),
        Flush(300, 2),
        Pause(400, 2, 6_000),
        Depose(500),
        Crash(600, 3, 80),
    ),
    loss=0.02,
)


def test_only_what_the_failure_needs_is_left() -> None:
    def fails(candidate: Schedule) -> bool:
        kinds = {type(each) for each in candidate.faults}
        return {Crash, Pause} <= kinds and any(name == "a" for name, _, _ in candidate.topics)

    smallest = shrink(LONG, fails)
    assert [type(each) for each in smallest.faults] in ([Crash, Pause], [Pause, Crash])
    assert all(
        getattr(each, "down_ms", 0) < 100 and getattr(each, "for_ms", 0) < 100 for each in smallest.faults
    )
    assert smallest.topics == (("a", ((1, 2),), ()),)
    assert smallest.loss == 0.0
    assert smallest.chaos_ms < LONG.chaos_ms


def test_it_stops_after_a_number_of_runs() -> None:
    runs = 0

    def fails(_candidate: Schedule) -> bool:
        nonlocal runs
        runs += 1
        return runs % 2 == 0

    shrink(LONG, fails, max_runs=9)
    assert runs == 9


def test_a_printed_test_plays_the_same_schedule() -> None:
    played = []
    names = {**vars(faults), "run": lambda each: played.append(each) or run(Schedule(0, chaos_ms=0))}
    exec(as_test(LONG), names)
    names["test_seed_7"]()
    assert played == [LONG]


def test_a_schedule_plays_the_same_in_every_process() -> None:
    code = (
        "from tests.simulation.generation import schedule; from tests.simulation.run import run\n"
        "for seed in range(3):\n"
        "    outcome = run(schedule(seed)); print(outcome.calls, sorted(outcome.counts.items()))"
    )
    expected = []
    for seed in range(3):
        outcome = run(schedule(seed))
        expected.append(f"{outcome.calls} {sorted(outcome.counts.items())}")
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    played = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert played.stdout.splitlines() == expected
