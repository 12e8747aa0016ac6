"""Splits to tasks of even size: many small segments share a task, a large split has one to itself.

A task is a run of neighbouring splits (topic, partition, offset), so that the rows of a job that collects
tasks in order come in order. What leaves nothing to share is the planner's: a split is never cut here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from klog.export.splits import Split

OPENING_BYTES: Final = 1 << 20
"""What opening one more file counts for: a task of thousands of tiny segments would not be even."""


def group_splits(
    splits: Iterable[Split], target_bytes: int, min_groups: int | None = None
) -> list[tuple[Split, ...]]:
    """The splits in order of their numbers, cut into runs of about `target_bytes` (one split is never cut).

    There are at least `min_groups` runs where there are so many splits.
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
    """What a split counts for beside others."""
    return split.length_bytes + OPENING_BYTES


def _runs(ordered: Sequence[Split], size_bytes: int) -> list[Sequence[Split]]:
    groups: list[Sequence[Split]] = []
    run: list[Split] = []
    filled_bytes = 0
    for split in ordered:
        # A split goes where more than half of it fits: runs differ from the wanted size by half a split.
        if run and filled_bytes + cost_bytes(split) // 2 > size_bytes:
            groups.append(run)
            run, filled_bytes = [], 0
        run.append(split)
        filled_bytes += cost_bytes(split)
    if run:
        groups.append(run)
    return groups


def _halved(groups: Sequence[Sequence[Split]]) -> list[Sequence[Split]]:
    """The same groups with the dearest of those that hold several splits cut in two."""
    dearest = max(
        (index for index, group in enumerate(groups) if len(group) > 1),
        key=lambda index: sum(map(cost_bytes, groups[index])),
    )
    group = groups[dearest]
    middle = len(group) // 2
    return [*groups[:dearest], group[:middle], group[middle:], *groups[dearest + 1 :]]
