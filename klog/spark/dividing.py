"""Divides splits into tasks of even size: many small splits share a task, and a large one has its own.

A task has consecutive splits (by topic, partition, offset): a job that collects the tasks in order gets its
rows in order. A split is never divided here; the planner does that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from klog.replicas.splits import Split

OPENING_BYTES: Final = 1 << 20
"""The cost of opening a file, as bytes: a task with thousands of tiny segments takes long too."""


def divide_splits(
    splits: Iterable[Split], target_bytes: int, min_tasks: int | None = None
) -> list[tuple[Split, ...]]:
    """The splits in order of their numbers, in tasks of about `target_bytes`.

    There are at least `min_tasks` tasks if there are that many splits.
    """
    ordered = sorted(splits, key=lambda split: split.number)
    wanted = min(min_tasks or 1, len(ordered))
    total_bytes = sum(map(cost_bytes, ordered))
    size_bytes = min(target_bytes + OPENING_BYTES, total_bytes // wanted) if ordered else 0
    tasks = _runs(ordered, size_bytes)
    while len(tasks) < wanted:
        tasks = _halved(tasks)
    return [tuple(task) for task in tasks]


def cost_bytes(split: Split) -> int:
    """The cost of a split, as bytes."""
    return split.length_bytes + OPENING_BYTES


def _runs(ordered: Sequence[Split], size_bytes: int) -> list[Sequence[Split]]:
    tasks: list[Sequence[Split]] = []
    run: list[Split] = []
    filled_bytes = 0
    for split in ordered:
        # A split is added if more than half of it fits: tasks differ from the target by half a split at
        # most.
        if run and filled_bytes + cost_bytes(split) // 2 > size_bytes:
            tasks.append(run)
            run, filled_bytes = [], 0
        run.append(split)
        filled_bytes += cost_bytes(split)
    if run:
        tasks.append(run)
    return tasks


def _halved(tasks: Sequence[Sequence[Split]]) -> list[Sequence[Split]]:
    """The same tasks, with the most expensive one of several splits divided in two."""
    costliest = max(
        (index for index, task in enumerate(tasks) if len(task) > 1),
        key=lambda index: sum(map(cost_bytes, tasks[index])),
    )
    task = tasks[costliest]
    middle = len(task) // 2
    return [*tasks[:costliest], task[:middle], task[middle:], *tasks[costliest + 1 :]]
