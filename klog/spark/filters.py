"""Applies a query's filters on topic, partition, offset and timestamp as bounds of what is read.

Spark hands the filters over if `spark.sql.python.filterPushdown.enabled` is set (PySpark 4.1 or newer) and
the option `pushFilters` is true. Spark still applies each filter that cannot be applied exactly here: bounds
that are too wide are correct, bounds that are too narrow would lose rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from klog.export.options import ReadOptions
from klog.replicas.splits import Split
from klog.spark.batch_reader import KlogReader
from klog.spark.rows import logged_to_stderr, planned_tasks

_log = logging.getLogger("klog.spark")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER_NULL = frozenset({"topic", "partition", "offset", "timestampType"})
"""Not the timestamp: it is null if it is too far from 1970 for Spark's type."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Whole numbers from `first` (None: any) to before `end` (None: any)."""

    first: int | None = None
    end: int | None = None

    def intersect(self, other: Bounds) -> Bounds:
        """The range that both allow."""
        firsts = [bound for bound in (self.first, other.first) if bound is not None]
        ends = [bound for bound in (self.end, other.end) if bound is not None]
        return Bounds(max(firsts, default=None), min(ends, default=None))


@dataclass(frozen=True, slots=True)
class PushedFilters:
    """The filters that klog applies.

    Those on `topic` and `partition` are tested once for each split; those on offsets and timestamps (in ms)
    are bounds.
    """

    topic: tuple[Filter, ...] = ()
    partition: tuple[Filter, ...] = ()
    offset: Bounds = Bounds()
    timestamp_ms: Bounds = Bounds()

    def options(self, options: ReadOptions) -> ReadOptions:
        """The options with the bounds of time, which the reader applies to each record."""
        bounds = self.timestamp_ms.intersect(Bounds(options.since_ms, options.until_ms))
        return replace(options, since_ms=bounds.first, until_ms=bounds.end)

    def splits(self, splits: Iterable[Split]) -> list[Split]:
        """The splits with records within the bounds, narrowed to these offsets."""
        return [narrowed for split in splits if (narrowed := self._narrowed(split)) is not None]

    def _narrowed(self, split: Split) -> Split | None:
        wanted = all(_holds(each, split.topic) for each in self.topic)
        wanted = wanted and all(_holds(each, split.partition) for each in self.partition)
        bounds = self.offset.intersect(Bounds(split.first_offset, split.end_offset))
        if not wanted or bounds.first is None or bounds.end is None or bounds.first >= bounds.end:
            return None
        return replace(split, first_offset=bounds.first, end_offset=bounds.end)


class FilteringReader(KlogReader):
    """A batch read that applies filters of the query."""

    _pushed = PushedFilters()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        """Take over the filters that can be applied exactly; return the others to Spark."""
        self._pushed, rest = push(filters)
        with logged_to_stderr():
            _log.info("%s", _described(filters, rest))
        self._source = replace(self._source, options=self._pushed.options(self._source.options))
        return rest

    def partitions(self) -> list[InputPartition]:
        """The tasks, without splits that the filters exclude."""
        return list(planned_tasks(self._source, self._pushed.splits))


def _described(filters: Sequence[Filter], rest: Sequence[Filter]) -> str:
    """Which filters klog applies and which Spark, as Spark names them in its plans."""
    applied = [each for each in filters if each not in rest]
    texts = (", ".join(map(_name, some)) or "none" for some in (applied, rest))
    return "filters that klog applies: {}; that Spark applies: {}".format(*texts)


def _name(each: Filter) -> str:
    if isinstance(each, Not):
        return f"Not({_name(each.child)})"
    column, value = ".".join(getattr(each, "attribute", ())), getattr(each, "value", None)
    return f"{type(each).__name__}({column}" + ("" if value is None else f", {value!r}") + ")"


def push(filters: Iterable[Filter]) -> tuple[PushedFilters, list[Filter]]:
    """The filters that klog applies, and those that Spark still has to apply. All of them must hold."""
    pushed = PushedFilters()
    rest: list[Filter] = []
    for each in filters:
        column = _column(each)
        if isinstance(each, IsNotNull) and column in _NEVER_NULL:
            continue
        if column == "topic" and _is_answerable(each, str):
            pushed = replace(pushed, topic=(*pushed.topic, each))
        elif column == "partition" and _is_answerable(each, int):
            pushed = replace(pushed, partition=(*pushed.partition, each))
        elif column == "offset" and (bounds := _offset_bounds(each)) is not None:
            pushed = replace(pushed, offset=pushed.offset.intersect(bounds))
        elif column == "timestamp" and (bounds := _time_bounds(each)) is not None:
            pushed = replace(pushed, timestamp_ms=pushed.timestamp_ms.intersect(bounds))
        else:
            rest.append(each)
            pushed = _approximate(pushed, each, column)
    return pushed, rest


def _column(each: Filter) -> str | None:
    inner = each.child if isinstance(each, Not) else each
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    return path[0] if len(path) == 1 else None


def _is_answerable(each: Filter, kind: type) -> bool:
    """Whether `_holds` gives the result of SQL: the comparison is with values of this type, and not with
    null."""
    if isinstance(each, Not):
        return _is_answerable(each.child, kind)
    if isinstance(each, (IsNull, IsNotNull)):
        return True
    if isinstance(each, In):
        return all(_is_of(value, kind) for value in each.value)
    return _is_of(getattr(each, "value", None), kind)


def _is_of(value: object, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _holds(each: Filter, actual: str | int) -> bool:
    match each:
        case Not(child):
            return not _holds(child, actual)
        case EqualTo(_, value) | EqualNullSafe(_, value):
            return bool(actual == value)
        case In(_, values):
            return actual in values
        case GreaterThan(_, value):
            return bool(actual > value)
        case GreaterThanOrEqual(_, value):
            return bool(actual >= value)
        case LessThan(_, value):
            return bool(actual < value)
        case LessThanOrEqual(_, value):
            return bool(actual <= value)
        case StringStartsWith(_, value):
            return str(actual).startswith(value)
        case StringEndsWith(_, value):
            return str(actual).endswith(value)
        case StringContains(_, value):
            return value in str(actual)
        case _:
            return isinstance(each, IsNotNull)


def _offset_bounds(each: Filter) -> Bounds | None:
    """The offsets for which a comparison holds, None if they are not one range."""
    value = getattr(each, "value", None)
    return _range(each, value, value) if isinstance(value, int) and not isinstance(value, bool) else None


def _time_bounds(each: Filter) -> Bounds | None:
    """The timestamps in ms for which a comparison holds. Records have whole ms, SQL has µs."""
    value = getattr(each, "value", None)
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    floor_ms, rest_us = divmod((value - _EPOCH) // timedelta(microseconds=1), 1000)
    return _range(each, floor_ms, floor_ms + (rest_us > 0))


def _range(each: Filter, floor: int, ceiling: int) -> Bounds | None:
    """The whole numbers for which a comparison holds with a value between `floor` and `ceiling`."""
    match each:
        case EqualTo() | EqualNullSafe():
            return Bounds(ceiling, floor + 1)
        case GreaterThan():
            return Bounds(first=floor + 1)
        case GreaterThanOrEqual():
            return Bounds(first=ceiling)
        case LessThan():
            return Bounds(end=ceiling)
        case LessThanOrEqual():
            return Bounds(end=floor + 1)
        case _:
            return None


def _approximate(pushed: PushedFilters, each: Filter, column: str | None) -> PushedFilters:
    """Narrow a list of offsets to the range from the least to the greatest; Spark applies the list itself."""
    if isinstance(each, In) and column == "offset" and each.value and _is_answerable(each, int):
        return replace(pushed, offset=pushed.offset.intersect(Bounds(min(each.value), max(each.value) + 1)))
    return pushed
