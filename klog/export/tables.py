"""Which table the rows of a split belong to: what is read for it, what is written of it, and where.

Records are one table, below Hive-style directories. Internal topics, where a job wants them decoded, are
tables of their own, in directories that readers of the first pass over (`__consumer_offsets`); their columns
of the name `partition` and `offset` are what the records tell, not where they stand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from klog.export.deserialise import ERROR_COLUMN, Deserialiser
from klog.export.jobs import ExportJob
from klog.export.layout import PartitionBy
from klog.export.splits import Split

if TYPE_CHECKING:
    import pyarrow as pa


class Decode(Protocol):
    """Makes rows of a table of records as they are read."""

    def apply(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        """The rows, and the records that are rejected (None: none are)."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of an output.

    Its files stand below `root` (empty: the output's own) and `levels`. `read_columns` are read of records;
    of what is made of them `columns` are written (None: all), but those that are directories.
    `offset_column` says where a row's record stands.
    """

    read_columns: tuple[str, ...]
    decode: Decode
    levels: tuple[PartitionBy, ...] = ()
    root: str = ""
    columns: tuple[str, ...] | None = None
    offset_column: str = "offset"

    def written(self, names: list[str]) -> list[str]:
        """Those of the columns `names` that are written, in their order."""
        hidden = {str(level) for level in self.levels}
        wanted = names if self.columns is None else [*self.columns, ERROR_COLUMN]
        return [name for name in wanted if name in names and name not in hidden]

    @property
    def has_offsets(self) -> bool:
        """Whether its files tell the offsets of their rows."""
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
    """Those that are written, and what placing and counting rows takes."""
    from klog.export.schema import column_names

    names = column_names(job.options)
    wanted = set(names if job.columns is None else job.columns) - {str(level) for level in job.partition_by}
    needed = {"offset", "timestamp"} if PartitionBy.DAY in job.partition_by else {"offset"}
    return tuple(name for name in names if name in wanted | needed)
