"""Foretells what a conversion of partitions needs: space and time, from some of their batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from klog.convert.partition_plan import PartitionPlan
from klog.convert.sampling import Estimate, estimate

_SAMPLED_MAX: Final = 16
"""So many partitions are sampled, each in one segment."""


class Forecast(NamedTuple):
    """Bytes that are converted, that the new segments will have about, and seconds of one core.

    New segments are written beside the old ones, so this much space is needed at most.
    """

    size_bytes: int
    converted_bytes: int
    seconds: float


def forecast(plans: Sequence[PartitionPlan], clock_s: Callable[[], float]) -> Forecast:
    """What the conversion of all plans needs. Raises `KlogError` if a sampled batch is damaged."""
    total = sum(each.convertible_bytes for each in plans)
    found = Estimate()
    begin_s = clock_s()
    with_tasks = [each for each in plans if each.tasks]
    for each in with_tasks[:: max(1, -(-len(with_tasks) // _SAMPLED_MAX))]:
        first = each.tasks[0]
        largest = max(first.sources, key=lambda source: source.size_bytes)
        found += estimate(replace(each, tasks=(replace(first, sources=(largest,)),)))
    spent_s = clock_s() - begin_s
    seconds = spent_s * total / found.sampled_bytes if found.sampled_bytes else 0.0
    return Forecast(total, found.of(total), seconds)
