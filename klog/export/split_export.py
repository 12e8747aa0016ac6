"""Exports one split: reads, decodes, writes and commits it, in any process and in any order.

A process of `klog export` and a task on Spark both run `export_split`. The files appear when they are
complete, and the split's result in the job state (`klog.export.job_state`) appears last: it commits the
split. A split that was not committed is exported again, under the same names and with the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from klog.export.arrow_memory import system_allocator
from klog.export.deserialise import ERROR_COLUMN
from klog.export.job_state import commit_split
from klog.export.jobs import ExportJob, SplitResult
from klog.export.open_output import open_output
from klog.export.outputs import Output
from klog.export.table_files import RejectFile, TableFiles
from klog.export.tables import table_of
from klog.jobs.progress import FileProgress
from klog.replicas.splits import LostRange, Split

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ExportJob", "SplitResult", "export_split"]


def export_split(
    split: Split, job: ExportJob, *, on_progress: Callable[[int], None] = lambda _: None
) -> SplitResult:
    """Export one split and commit it.

    `on_progress` receives the bytes of the segment that are done. The result lists ranges that cannot be
    read; with `fail_on_data_loss` the first one is raised. Raises `StorageError` if the output cannot be
    written.
    """
    output = open_output(job.output)
    with system_allocator():
        result = _written(split, job, output, on_progress)
    commit_split(output, result)
    return result


def _written(split: Split, job: ExportJob, output: Output, on_progress: Callable[[int], None]) -> SplitResult:
    from klog.export.reader import read_split

    lost: list[LostRange] = []
    repaired: list[LostRange] = []
    rows_with_error = 0
    progress = FileProgress(on_progress, split.length_bytes, split.start_bytes)
    table = table_of(split, job)
    tables = TableFiles(output, split, table, job.format, job.compression, job.target_file_bytes)
    with tables, RejectFile(output, split) as rejects:
        rows = read_split(
            split,
            job.options,
            columns=table.read_columns,
            on_lost=lost.append,
            on_repaired=repaired.append,
            on_position=progress.reached,
            open_file=job.source.open,
        )
        for batch in rows:
            good, bad = table.decode.apply(batch)
            if good.num_rows:
                tables.write(good)
                rows_with_error += _rows_with_error(good)
            if bad is not None and bad.num_rows:
                rejects.write(bad)
        result = SplitResult(
            split, tables.commit(), rejects.commit(), tuple(lost), rows_with_error, tuple(repaired)
        )
    progress.finish()
    return result


def _rows_with_error(rows: pa.RecordBatch) -> int:
    """The number of rows that do not fit their schema, by their error column."""
    at = rows.schema.get_field_index(ERROR_COLUMN)
    return 0 if at < 0 else rows.num_rows - int(rows.column(at).null_count)
