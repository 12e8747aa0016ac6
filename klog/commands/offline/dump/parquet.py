"""`--format parquet`: writes the selected records or batches as Parquet with zstd, in limited memory.

The columns of records are `topic`, `partition` and those of `klog.kernel.arrow.COLUMNS`; keys and values are
bytes. `--bytes none` leaves out keys, values and headers. `--output FILE` gets everything, in order.
`--output DIRECTORY` (an existing one, or a name that ends in `/`) gets one file per segment, in a directory
with the name of its partition. A file appears when it is complete.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, BinaryIO, Final

from klog.commands.offline.outputs import check_output_directory, check_output_file, output_file
from klog.commands.shared.records.plan import BytesMode, DumpFile, DumpPlan, Rows
from klog.commands.shared.records.problems import Problems
from klog.commands.shared.records.rows import RECORD_KINDS, each_file, reader_of, selected_runs
from klog.commands.shared.terminal import Progress, progress
from klog.export.arrow_memory import system_allocator
from klog.formats.errors import UsageError
from klog.formats.optional import require_pyarrow
from klog.storage.files.files import GZIP_SUFFIX, open_for_reading, size_bytes, storage_errors
from klog.storage.reading.reader import SegmentReader

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

ROW_GROUP_BYTES: Final = 6 << 20
"""Size of the columns of one row group.

One group is read while another is encoded, which takes several times its size. Both together must stay below
150 MiB.
"""

_COUNTING: Final = {
    *("offset", "timestamp", "sequence", "recordSize"),
    *("position", "size", "baseOffset", "lastOffset", "maxTimestamp", "lastSequence"),
}
"""Numbers that are close to the number before: stored as differences they take less time and space."""

_SELDOM_REPEATED: Final = {*_COUNTING, "key", "value", "headers", "checksum"}
"""Columns without a dictionary: pyarrow would build one, then drop it and store plain values."""


def run(plan: DumpPlan, out: BinaryIO) -> int:  # noqa: ARG001 (parquet never goes to stdout)
    """Write the Parquet files; returns 1 if there were problems, else 0. Raises UsageError, StorageError."""
    require_pyarrow("--format parquet")
    if plan.output is None:
        raise UsageError(
            "--format parquet cannot go to stdout", cure="add --output FILE or --output DIRECTORY"
        )
    if plan.bytes_mode not in (BytesMode.AUTO, BytesMode.NONE):
        raise UsageError("parquet keeps bytes as they are", cure="omit --bytes, or use --bytes none")
    files = [file for file in plan.files if file.kind in RECORD_KINDS]
    problems = Problems(strict=plan.strict)
    total_bytes = sum(size_bytes(file.path) for file in files)
    with system_allocator(), progress("writing", total_bytes) as advance:
        left = plan.selection.limit
        for path, sources in _checked_targets(plan, plan.output, files):
            left = _write(plan, path, sources, problems, advance, left)
    return problems.exit_code


def _checked_targets(plan: DumpPlan, output: str, files: list[DumpFile]) -> list[tuple[str, list[DumpFile]]]:
    """The files to write; none is written if one of them may not be. Raises UsageError, StorageError."""
    targets = list(_targets(output, files))
    for path, sources in targets:
        directory = os.path.dirname(path) or "."
        if path != output:
            check_output_directory(directory, ())
            with storage_errors("cannot be created", directory):
                os.makedirs(directory, exist_ok=True)
        check_output_file(path, [file.path for file in files], force=plan.force)
        first = next(other for target, other in targets if target == path)
        if first is not sources:
            raise UsageError(
                f"would be the output of {first[0].path} and of {sources[0].path}",
                file=path,
                cure="dump them one by one",
            )
    return targets


def _targets(output: str, files: list[DumpFile]) -> Iterator[tuple[str, list[DumpFile]]]:
    """Each file to write, with the files that it is made of."""
    if not output.endswith("/") and not os.path.isdir(output):
        yield output, files
        return
    for file in files:
        directory = output if file.topic is None else os.path.join(output, f"{file.topic}-{file.partition}")
        name = os.path.basename(file.path).removesuffix(GZIP_SUFFIX).removesuffix(".log")
        yield os.path.join(directory, f"{name}.parquet"), [file]


class _BackgroundWriter:
    """Encodes one row group in a thread while the next one is read; raises its errors at the next call."""

    def __init__(self, writer: pq.ParquetWriter) -> None:
        self.schema = writer.schema
        self._writer = writer
        self._thread = ThreadPoolExecutor(1)
        self._pending: Future[None] | None = None

    def __enter__(self) -> _BackgroundWriter:
        return self

    def __exit__(self, *_: object) -> None:
        with self._thread:
            self._finish()

    def write(self, rows: pa.RecordBatch) -> None:
        """Write `rows` as one row group, as soon as the group before is written."""
        self._finish()
        self._pending = self._thread.submit(self._writer.write_batch, rows)

    def _finish(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()


def _write(
    plan: DumpPlan,
    path: str,
    files: list[DumpFile],
    problems: Problems,
    advance: Progress,
    left: int | None,
) -> int | None:
    """Write one Parquet file; returns the rest of the limit."""
    from pyarrow import parquet as pq

    with ExitStack() as stack:
        out = stack.enter_context(output_file(path, [file.path for file in files], force=plan.force))
        schema = _schema(plan)
        writer = stack.enter_context(
            pq.ParquetWriter(
                out,
                schema,
                compression="zstd",
                use_dictionary=[name for name in schema.names if name not in _SELDOM_REPEATED],
                column_encoding={name: "DELTA_BINARY_PACKED" for name in schema.names if name in _COUNTING},
            )
        )
        background = stack.enter_context(_BackgroundWriter(writer))

        def write(file: DumpFile, limit: int | None) -> int:
            with open_for_reading(file.path) as opened:
                reader = reader_of(plan, file, opened, problems)
                return _write_file(plan, file, reader, background, advance, limit)

        return each_file(files, left, problems, write)


def _write_file(
    plan: DumpPlan,
    file: DumpFile,
    reader: SegmentReader,
    writer: _BackgroundWriter,
    advance: Progress,
    limit: int | None,
) -> int:
    batches = _batch_groups if plan.rows is Rows.BATCHES else _record_groups
    written = 0
    for group in batches(plan, reader, advance):
        rows = group if limit is None else group.slice(0, limit - written)
        writer.write(_placed(rows, file, writer.schema))
        written += rows.num_rows
        if written == limit:
            break
    return written


def _columns(plan: DumpPlan) -> list[str]:
    from klog.kernel.arrow import COLUMNS

    hidden = {"key", "value", "headers"} if plan.bytes_mode is BytesMode.NONE else set()
    return [name for name in COLUMNS if name not in hidden]


def _schema(plan: DumpPlan) -> pa.Schema:
    import pyarrow as pa

    from klog.kernel import arrow, arrow_batches

    rows = arrow_batches.schema() if plan.rows is Rows.BATCHES else arrow.schema(_columns(plan))
    return pa.schema([pa.field("topic", pa.string()), pa.field("partition", pa.int32()), *rows])


def _placed(rows: pa.RecordBatch, file: DumpFile, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with the columns that say which partition they are of."""
    import pyarrow as pa

    topics = pa.repeat(pa.scalar(file.topic, pa.string()), rows.num_rows)
    partitions = pa.repeat(pa.scalar(file.partition, pa.int32()), rows.num_rows)
    return pa.RecordBatch.from_arrays([topics, partitions, *rows.columns], schema=schema)


def _record_groups(plan: DumpPlan, reader: SegmentReader, advance: Progress) -> Iterator[pa.RecordBatch]:
    from klog.kernel.arrow import ArrowBuilder

    runs = selected_runs(reader, plan.selection)
    decoded = ((payload, reader.batches, reader.records) for payload in runs)
    done_bytes = 0
    for group in ArrowBuilder(_columns(plan)).batches_of(decoded, ROW_GROUP_BYTES):
        yield group
        advance(reader.batches.origin - done_bytes)
        done_bytes = reader.batches.origin
    advance(reader.batches.origin + reader.batches.consumed_bytes - done_bytes)


def _batch_groups(plan: DumpPlan, reader: SegmentReader, advance: Progress) -> Iterator[pa.RecordBatch]:
    from klog.kernel.arrow_batches import to_arrow

    if plan.selection.by_content:
        raise UsageError("--batches in parquet cannot be narrowed by --key or --grep", cure="use --offsets")
    for _ in reader.chunks():
        consumed_bytes = reader.batches.consumed_bytes
        reader.drop_unwanted()
        if len(reader.batches):
            yield to_arrow(reader.batches)
        advance(consumed_bytes)
