"""Groups splits to tasks of even size: many small splits share a task, and a large one has its own.

A task has consecutive splits (by topic, partition, offset): a job that collects the tasks in order gets its
rows in order. A split is never divided here; the planner does that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from klog.replicas.splits import Split

OPENING_BYTES: Final = 1 << 20
"""The cost of opening a file, as bytes: a task with thousands of tiny segments takes long too."""


def group_splits(
    splits: Iterable[Split], target_bytes: int, min_groups: int | None = None
) -> list[tuple[Split, ...]]:
    """The splits in order of their numbers, in groups of about `target_bytes`.

    There are at least `min_groups` groups if there are that many splits.
    """
    ordered = sorted(splits, key=lambda split: split.number)
    wanted = min(min_groups or 1, len(ordered))
    total_bytes = sum(map(cost_bytes, ordered))
    size_bytes = min(target_bytes + OPENING_BYTES, total_bytes // wanted) if ordered else 0
    groups = _runs(ordered, size_bytes)
    while len(groups) < wanted:
        groups = _halved(groups)
    return [tuple(group) for group in groups]


def cost_bytes(split: Split) -> int:
    """The cost of a split, as bytes."""
    return split.length_bytes + OPENING_BYTES


def _runs(ordered: Sequence[Split], size_bytes: int) -> list[Sequence[Split]]:
    groups: list[Sequence[Split]] = []
    run: list[Split] = []
    filled_bytes = 0
    for split in ordered:
        # A split is added if more than half of it fits: groups differ from the target by half a split at
        # most.
        if run and filled_bytes + cost_bytes(split) // 2 > size_bytes:
            groups.append(run)
            run, filled_bytes = [], 0
        run.append(split)
        filled_bytes += cost_bytes(split)
    if run:
        groups.append(run)
    return groups


def _halved(groups: Sequence[Sequence[Split]]) -> list[Sequence[Split]]:
    """The same groups, with the most expensive group of several splits divided in two."""
    costliest = max(
        (index for index, group in enumerate(groups) if len(group) > 1),
        key=lambda index: sum(map(cost_bytes, groups[index])),
    )
    group = groups[costliest]
    middle = len(group) // 2
    return [*groups[:costliest], group[:middle], group[middle:], *groups[costliest + 1 :]]
