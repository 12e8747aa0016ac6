"""Decides which table the rows of a split belong to: which columns are read and written, and to which
directory.

All records are one table, in Hive-style directories. If a job decodes internal topics, each becomes a
separate table, in a directory that readers of the first table ignore (`__consumer_offsets`). The columns
`partition` and `offset` of those tables are values of the records, not their position.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from klog.export.deserialise import ERROR_COLUMN, Deserialiser
from klog.export.jobs import ExportJob
from klog.export.layout import PartitionBy
from klog.replicas.splits import Split

if TYPE_CHECKING:
    import pyarrow as pa


class Decode(Protocol):
    """Converts records as they are read to the rows of a table."""

    def apply(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        """The rows, and the rejected records (None if there are none)."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of an output.

    Its files are below `root` (empty: the output's root) and `levels`. `read_columns` are the columns of the
    records that are read. `columns` are those of the rows that are written (None: all), except columns that
    are directories. `offset_column` has the offset of a row's record.
    """

    read_columns: tuple[str, ...]
    decode: Decode
    levels: tuple[PartitionBy, ...] = ()
    root: str = ""
    columns: tuple[str, ...] | None = None
    offset_column: str = "offset"

    def written(self, names: list[str]) -> list[str]:
        """The written ones of the columns `names`, in their order."""
        hidden = {str(level) for level in self.levels}
        wanted = names if self.columns is None else [*self.columns, ERROR_COLUMN]
        return [name for name in wanted if name in names and name not in hidden]

    @property
    def has_offsets(self) -> bool:
        """Whether its files have the offsets of their rows."""
        return self.columns is None or self.offset_column in self.columns


def table_of(split: Split, job: ExportJob) -> Table:
    """The table that the split's rows belong to."""
    internal = _internal(split.topic, job) if job.internal_tables else None
    if internal is not None:
        return internal
    decode = Deserialiser(job.decodings.key, job.decodings.value, job.bad_records)
    return Table(_read_columns(job), decode, job.partition_by, columns=job.columns)


def _internal(topic: str, job: ExportJob) -> Table | None:
    from klog.export.internal import POSITION_COLUMNS, READ_COLUMNS, internal_table

    decode = internal_table(topic, job.bad_records)
    if decode is None:
        return None
    return Table(READ_COLUMNS, decode, root=topic, offset_column=POSITION_COLUMNS["offset"])


def _read_columns(job: ExportJob) -> tuple[str, ...]:
    """The written columns, and those that are needed to choose directories and file names."""
    from klog.export.schema import column_names

    names = column_names(job.options)
    wanted = set(names if job.columns is None else job.columns) - {str(level) for level in job.partition_by}
    needed = {"offset", "timestamp"} if PartitionBy.DAY in job.partition_by else {"offset"}
    return tuple(name for name in names if name in wanted | needed)
