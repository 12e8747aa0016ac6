"""The keywords that the reading methods of segments and partition directories share, as one value."""

from __future__ import annotations

import os
import sys
import warnings
from dataclasses import dataclass
from typing import Final, Literal, TypedDict

from klog.formats.errors import KlogError, UsageError
from klog.storage.reading.hidden_batches import HiddenBatches
from klog.storage.reading.reader import OnProblem, raise_problem
from klog.storage.reading.select import Bounds

IsolationLevel = Literal["read_uncommitted", "read_committed"]
"""Kafka's `isolation.level`: all records, or only those of committed transactions and of none."""

_LEVELS: Final = ("read_uncommitted", "read_committed")
_PACKAGE: Final = os.path.join(
    os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), ""
)


class DamagedDataWarning(UserWarning):
    """Something in a file could not be read and was skipped; the message says what and where."""


class BatchKeywords(TypedDict, total=False):
    """Keywords of the methods that read batches.

    Batches come if they may hold offsets from `start_offset` (inclusive) to `end_offset` (exclusive), or
    timestamps from `since_ms` (ms since the epoch, inclusive) on. Damaged data is skipped; `on_problem` is
    called with each `KlogError`. With `strict=True` the first one is raised. With neither, problems become
    `DamagedDataWarning`s.
    """

    start_offset: int | None
    end_offset: int | None
    since_ms: int | None
    on_problem: OnProblem | None
    strict: bool


class RecordKeywords(BatchKeywords, total=False):
    """Keywords of the methods that read records: those of `BatchKeywords` and these.

    `until_ms` (exclusive) is the end of the time range. `verify` (the default) checks checksums and the order
    of offsets. `control_records=True` also gives the records that Kafka writes for itself, such as the
    markers that end transactions. `isolation_level="read_committed"` gives what a consumer with that level
    gets: no records of aborted transactions, and none from the first open transaction on. The default is
    "read_uncommitted".
    """

    until_ms: int | None
    verify: bool
    control_records: bool
    isolation_level: IsolationLevel


@dataclass(frozen=True, slots=True)
class ReadBounds:
    """What is read, whether it is verified, which batches are hidden, and what happens with problems.

    With `committed`, `klog.storage.reading.transactions` still has to find the transactions.
    """

    bounds: Bounds
    verify: bool
    on_problem: OnProblem
    hidden: HiddenBatches
    control_records: bool
    committed: bool


def read_bounds(
    *,
    start_offset: int | None = None,
    end_offset: int | None = None,
    since_ms: int | None = None,
    until_ms: int | None = None,
    verify: bool = True,
    on_problem: OnProblem | None = None,
    strict: bool = False,
    control_records: bool = False,
    isolation_level: IsolationLevel = "read_uncommitted",
) -> ReadBounds:
    """The value of the keywords. Raises UsageError for an unknown isolation level."""
    if isolation_level not in _LEVELS:
        raise UsageError(
            f"isolation_level {isolation_level!r} is unknown", cure=f"one of {', '.join(_LEVELS)}"
        )
    last_offset = None if end_offset is None else end_offset - 1
    if strict:
        on_problem = raise_problem
    return ReadBounds(
        Bounds(start_offset, last_offset, since_ms, until_ms),
        verify,
        on_problem or _warn_of_problem,
        HiddenBatches((), show_control=control_records),
        control_records,
        isolation_level == "read_committed",
    )


def _warn_of_problem(problem: KlogError) -> None:
    """Warn at the line of the caller's code that reads: the first frame outside of klog."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(str(problem), DamagedDataWarning, stacklevel=level)
