"""Samples keys or values of a plan, to infer a schema: the same ones every time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

from klog.export.options import ReadOptions
from klog.export.reader import read_split
from klog.replicas.splits import Plan, Split

_MAX_SPLITS: Final = 20
_MAX_VALUES_OF_A_SPLIT: Final = 1000


def sample(plan: Plan, options: ReadOptions, column: str) -> Iterator[bytes]:
    """Yield up to 1000 values (not null) of "key" or "value" from each of up to 20 splits of the plan.

    Data that cannot be read is skipped: the job itself reports it.
    """
    options = replace(options, fail_on_data_loss=False)
    splits = sorted(plan.splits, key=lambda split: split.number)
    step = max(len(splits) / _MAX_SPLITS, 1)
    for number in range(min(len(splits), _MAX_SPLITS)):
        yield from islice(_values(splits[int(number * step)], options, column), _MAX_VALUES_OF_A_SPLIT)


def _values(split: Split, options: ReadOptions, column: str) -> Iterator[bytes]:
    for batch in read_split(split, options, columns=[column], on_lost=lambda _: None):
        for value in batch.column(0):
            if value.is_valid:
                yield value.as_py()
