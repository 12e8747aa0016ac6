"""Schedules that have found defects, as the simulation has shrunk them."""

from __future__ import annotations

from tests.simulation.run import run
from tests.simulation.schedule import Crash, Pause, Schedule, ShutDown


def test_a_follower_that_was_truncated_learns_the_high_watermark() -> None:
    # The leader's fetch session counted the high watermark beside a diverging epoch as sent.
    schedule = Schedule(
        seed=655,
        brokers=(1, 2, 3),
        topics=(("a", ((2, 3),), (("min.insync.replicas", "1"),)),),
        faults=(
            ShutDown(at_ms=3174, broker=2, down_ms=612),
            Pause(at_ms=4637, broker=2, for_ms=131),
            Crash(at_ms=4754, broker=3, down_ms=27, power=False),
        ),
        loss=0.0,
        chaos_ms=4804,
    )
    assert run(schedule).failure is None
