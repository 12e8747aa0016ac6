"""Makes a failing schedule smaller: fewer faults, fewer topics, shorter times, as long as it still fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace

from tests.simulation.schedule import Fault, Schedule

Fails = Callable[[Schedule], bool]

_LENGTHS = ("down_ms", "for_ms")
_SHORTEST_MS = 50


def shrink(schedule: Schedule, fails: Fails, max_runs: int = 300) -> Schedule:
    """The smallest schedule that was found to fail within a number of runs (delta debugging)."""
    left = max_runs

    def still_fails(candidate: Schedule) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and fails(candidate)

    while True:
        before = schedule
        for candidates in (_without_faults, _simpler, _without_topics):
            schedule = _smallest(schedule, candidates, still_fails)
        if schedule == before or left <= 0:
            return schedule


def _smallest(
    schedule: Schedule, candidates: Callable[[Schedule], Iterator[Schedule]], fails: Fails
) -> Schedule:
    """Take the first candidate that fails, and go on from there until none does."""
    while True:
        smaller = next((each for each in candidates(schedule) if fails(each)), None)
        if smaller is None:
            return schedule
        schedule = smaller


def _without_faults(schedule: Schedule) -> Iterator[Schedule]:
    """Without a run of faults: halves first, single faults last."""
    faults = schedule.faults
    size = len(faults)
    while size:
        for start in range(0, len(faults), size):
            yield replace(schedule, faults=faults[:start] + faults[start + size :])
        size //= 2


def _simpler(schedule: Schedule) -> Iterator[Schedule]:
    if schedule.loss:
        yield replace(schedule, loss=0.0)
    last_ms = max((each.at_ms for each in schedule.faults), default=0)
    for chaos_ms in (last_ms + 100, (last_ms + schedule.chaos_ms) // 2):
        if chaos_ms < schedule.chaos_ms - 100:
            yield replace(schedule, chaos_ms=chaos_ms)
    for number, fault in enumerate(schedule.faults):
        for shorter in _shorter(fault):
            faults = (*schedule.faults[:number], shorter, *schedule.faults[number + 1 :])
            yield replace(schedule, faults=faults)


def _shorter(fault: Fault) -> Iterator[Fault]:
    for field in fields(fault):
        if field.name in _LENGTHS:
            length_ms = getattr(fault, field.name) // 2
            if length_ms >= _SHORTEST_MS:
                yield replace(fault, **{field.name: length_ms})


def _without_topics(schedule: Schedule) -> Iterator[Schedule]:
    for number in range(len(schedule.topics)):
        yield replace(schedule, topics=schedule.topics[:number] + schedule.topics[number + 1 :])
        name, replicas, config = schedule.topics[number]
        if len(replicas) > 1:
            fewer = (name, replicas[:1], config)
            yield replace(schedule, topics=(*schedule.topics[:number], fewer, *schedule.topics[number + 1 :]))
