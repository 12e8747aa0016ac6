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


def test_a_log_that_loses_power_again_may_end_below_all_that_is_compared() -> None:
    # The rules of the test missed it: what they compared began above the end of the log that is left.
    schedule = Schedule(
        seed=4050887,
        brokers=(1, 2, 3),
        topics=(
            (
                "a",
                ((3, 1),),
                (
                    ("min.insync.replicas", "1"),
                    ("index.interval.bytes", "100"),
                    ("retention.bytes", "3000"),
                    ("segment.bytes", "1000"),
                ),
            ),
        ),
        faults=(
            Crash(at_ms=163, broker=2, down_ms=2005, power=False),
            Crash(at_ms=247, broker=3, down_ms=1263, power=True),
            Crash(at_ms=278, broker=1, down_ms=574, power=True),
            Crash(at_ms=1827, broker=3, down_ms=68, power=True),
        ),
        loss=0.0,
        chaos_ms=1927,
        tick_ms=250,
        log_dirs=1,
    )
    assert run(schedule).failure is None
