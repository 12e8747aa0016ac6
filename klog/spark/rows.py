"""Plans and reads rows for Spark: the common part of the readers of batches and of streams.

On the driver, splits are planned and divided into tasks. A task reads its splits to Arrow, in the columns of
the schema that Spark requests. Losses are logged, or raised with `failOnDataLoss`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from klog.export.options import ReadOptions
from klog.export.sources import Source
from klog.formats.errors import KlogError, UsageError
from klog.kernel.kernel import slowness
from klog.replicas.splits import LostRange, Plan, Split
from klog.spark.dividing import divide_splits

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_log = logging.getLogger("klog.spark")


@dataclass(frozen=True)
class TaskSplits(InputPartition):
    """The splits that one task reads."""

    splits: tuple[Split, ...]


@dataclass(frozen=True)
class RowSource:
    """Reads rows of splits in the columns of a schema; `source` is what the options' paths lead to."""

    options: ReadOptions
    schema: StructType
    source: Source

    @classmethod
    def of(cls, options: ReadOptions, schema: StructType) -> RowSource:
        """The source for options and a schema. Raises `UsageError` for a column that klog does not have, and
        for paths that cannot be read together.
        """
        from klog.backup.exporting import source_of
        from klog.export.schema import METADATA_COLUMNS

        names = schema.fieldNames()
        if "headers" in names:
            options = replace(options, include_headers=True)
        wanted = [name for name in names if name in METADATA_COLUMNS and name not in options.metadata_columns]
        options = replace(options, metadata_columns=(*options.metadata_columns, *wanted))
        source = cls(options, schema, source_of(options))
        source._check()
        return source

    def _check(self) -> None:
        from klog.export.schema import arrow_schema

        known = arrow_schema(self.options)
        for field in self.arrow_schema:
            if field.name not in known.names:
                raise UsageError(
                    f"the schema given has a column {field.name}, which klog does not have",
                    cure=f"choose among {', '.join(known.names)}",
                )
            if not _same_type(field.type, known.field(field.name).type):
                raise UsageError(
                    f"the schema given says that column {field.name} is {field.type}",
                    cure=f"it is {known.field(field.name).type}: give this type, and cast in the query",
                )

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The schema that Spark compares with that of each batch."""
        from pyspark.sql.pandas.types import to_arrow_schema

        return to_arrow_schema(self.schema, timezone="UTC")

    def rows(self, task: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task. Logs losses; with `failOnDataLoss` raises the first one as a
        `KlogError`."""
        from klog.export.reader import read_split

        if (slow := slowness()) is not None:
            _log.warning("%s", slow)  # in the executor's log: a task of a source has no other way to tell
        # If there is no partition, Spark makes one itself.
        for split in task.splits if isinstance(task, TaskSplits) else ():
            columns = self.arrow_schema.names
            rows = read_split(
                split,
                self.options,
                columns=columns,
                on_lost=log_lost,
                on_repaired=_log_repaired,
                open_file=self.source.open,
            )
            yield from map(self._cast, rows)

    def _cast(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        schema = self.arrow_schema
        if batch.schema.equals(schema):
            return batch
        arrays = [batch.column(field.name) for field in schema]
        pairs = zip(arrays, schema, strict=True)
        arrays = [
            array if array.type.equals(field.type) else array.cast(field.type) for array, field in pairs
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _same_type(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether two types are the same, except for the names that Arrow gives to elements of lists."""
    from pyarrow import types

    if types.is_list(left) and types.is_list(right):
        return _same_type(left.value_type, right.value_type)
    if types.is_struct(left) and types.is_struct(right):
        names = [field.name for field in left] == [field.name for field in right]
        return names and all(_same_type(one.type, other.type) for one, other in zip(left, right, strict=True))
    return bool(left.equals(right))


def planned_tasks(
    source: RowSource, narrow: Callable[[Sequence[Split]], Sequence[Split]] = lambda splits: splits
) -> Iterator[TaskSplits]:
    """Yield tasks for the current records; `narrow` may leave out splits or parts of them.

    Raises `UsageError` if no partition is found, and with `failOnDataLoss` the first problem or loss.
    """
    options = source.options
    planned = source.source.plan(options)
    check_loss(planned, options)
    for task in divide_splits(narrow(planned.splits), options.target_split_bytes, options.min_partitions):
        yield TaskSplits(task)


def check_loss(planned: Plan, options: ReadOptions) -> None:
    """Log what the planner could not read; with `failOnDataLoss` raise the first of it as a `KlogError`."""
    if options.fail_on_data_loss:
        for problem in planned.problems:
            raise problem
        for lost in planned.lost:
            raise KlogError(described(lost), cure="leave failOnDataLoss out to read what is valid")
    for problem in planned.problems:
        _log.warning("%s", problem)
    for lost in planned.lost:
        log_lost(lost)


@contextmanager
def logged_to_stderr() -> Iterator[None]:
    """Let notes of klog reach stderr in the block, if nobody has set up logging.

    Nobody has in the Python workers that Spark starts. There Python shows only warnings by itself.
    """
    if logging.getLogger().handlers or _log.handlers:
        yield
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("klog: %(message)s"))
    before = _log.level
    _log.addHandler(handler)
    _log.setLevel(logging.INFO)
    try:
        yield
    finally:
        _log.removeHandler(handler)
        _log.setLevel(before)


def log_lost(lost: LostRange) -> None:
    """Log a lost range, in the log of the executor or of the driver's planner."""
    _log.warning("%s", described(lost))


def _log_repaired(damaged: LostRange) -> None:
    """Log a range that was read from another replica: its disk is to be checked."""
    _log.warning("%s; another replica has them, or some", described(damaged))


def described(lost: LostRange) -> str:
    """A lost range as text: file, position, offsets and reason."""
    first, end = (("?" if offset is None else str(offset)) for offset in (lost.first_offset, lost.end_offset))
    position = "" if lost.start_bytes is None else f" at byte {lost.start_bytes}"
    where = f"{lost.topic}-{lost.partition} ({lost.file}{position})"
    return f"{where}: offsets {first} to before {end} are not read: {lost.reason}"
