"""The keywords that the reading methods of segments and partition directories share, as one value."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TypedDict

from klog.formats.errors import KlogError
from klog.storage.reader import OnProblem, raise_problem
from klog.storage.select import Bounds


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
    """Keywords of the methods that read records: those of `BatchKeywords`, `until_ms` and `verify`.

    `until_ms` (exclusive) is the end of the time range. `verify` (the default) checks checksums and the order
    of offsets.
    """

    until_ms: int | None
    verify: bool


@dataclass(frozen=True, slots=True)
class ReadBounds:
    """What is read, whether it is verified, and what happens with problems."""

    bounds: Bounds
    verify: bool
    on_problem: OnProblem


def read_bounds(
    *,
    start_offset: int | None = None,
    end_offset: int | None = None,
    since_ms: int | None = None,
    until_ms: int | None = None,
    verify: bool = True,
    on_problem: OnProblem | None = None,
    strict: bool = False,
) -> ReadBounds:
    """The value of the keywords."""
    last_offset = None if end_offset is None else end_offset - 1
    if strict:
        on_problem = raise_problem
    return ReadBounds(
        Bounds(start_offset, last_offset, since_ms, until_ms), verify, on_problem or _warn_of_problem
    )


def _warn_of_problem(problem: KlogError) -> None:
    warnings.warn(str(problem), DamagedDataWarning, stacklevel=3)
