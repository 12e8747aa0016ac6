"""`klog export`: exports segments to Parquet, ORC or JSON Lines on this machine, without a broker or
a JVM.

Options become an `ExportJob`; `klog.export.run_export` runs it in a pool of processes. Progress and report go
to stderr.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

import typer

from klog.commands.offline.exporting import options
from klog.commands.offline.exporting.lines import ProgressLines
from klog.commands.offline.exporting.options import (
    DecodeOptions,
    InternalTopicsChoice,
    RunningOptions,
    SourceOptions,
    WriteOptions,
    spark_options,
)
from klog.commands.offline.outputs import check_output_directory, check_output_file
from klog.commands.shared.arguments import parse_time
from klog.commands.shared.key_options import KeyOptions
from klog.commands.shared.messages import print_lines, print_report
from klog.commands.shared.terminal import Progress, count_of, note_slowness, progress
from klog.export.decoders.decoding import Encoding, RequestedDecoding
from klog.export.layout import parse_partition_by
from klog.export.writers import compression_of
from klog.formats.optional import require_pyarrow
from klog.jobs.cores import available_cores
from klog.replicas.files import is_remote, local_path

if TYPE_CHECKING:
    from klog.export.run_export import RunOptions, Watcher
    from klog.export.split_export import ExportJob
    from klog.replicas.splits import Plan
    from klog.replicas.stages import Runner


StartRunner = Callable[["ExportJob"], AbstractContextManager["Runner"]]
"""Starts a runner of tasks other than the pool of processes; it stops at the end of the block: Spark, for
`klog.commands.segment_export`."""


def export(
    context: typer.Context,
    paths: options.Paths,
    output: options.Output,
    write: WriteOptions,
    decode: DecodeOptions,
    source: SourceOptions,
    keys: KeyOptions,
    run: RunningOptions,
) -> None:
    """Export records of segments to Parquet, ORC or JSON Lines: no broker, no JVM. Changes no
    segment.

    A path may also be a backup repository; --at names a moment of it. The columns are those of
    Spark's Kafka source. If a job was killed, run it again with --resume: it continues and ends
    with the same files. Damaged data is listed and makes the exit code 1.

    Examples:

        klog export /var/lib/kafka --output tables
        klog export /mnt/disk1 /mnt/disk2 --subscribe orders,payments --partition-by topic,day -o tables
        klog export /mnt/disk1 --subscribe orders --value json --include-headers -o orders
        klog export s3://backup/logs --isolation read_committed --resume --verify -o s3://lake/kafka
        klog export s3://backups/cluster --at 2026-11-24T10:00:00Z --subscribe orders -o orders
    """
    if run.print_spark_submit:
        from klog.commands.offline.exporting.spark_submit import spark_submit_line

        typer.echo(spark_submit_line(context))
        return
    require_pyarrow("klog export")
    job = _job(
        spark_options(write, source, run) | _moment(source, keys),
        paths,
        output,
        write.columns,
        format=write.format_,
        compression=compression_of(write.format_, write.compression),
        partition_by=parse_partition_by(write.partition_by),
        key=_requested_decoding(decode.key, decode.key_schema, decode.key_message, decode.schema_dir),
        value=_requested_decoding(decode.value, decode.value_schema, decode.value_message, decode.schema_dir),
        bad_records=decode.bad_records,
        internal_tables=decode.internal_topics is InternalTopicsChoice.TABLES,
        target_file_bytes=_file_bytes(write.target_file_bytes),
    )
    if run.dry_run:
        _show_plan(job)
        return
    from klog.commands.offline.exporting.report_text import is_report
    from klog.export.run_export import RunOptions

    if run.report is not None:
        check_output_file(run.report, _local_paths(job), force=run.force, may_replace=is_report)
    how = RunOptions(run.jobs or available_cores(), resume=run.resume, verify=run.verify)
    _run(job, how, report=run.report, quiet=run.quiet, start_runner=context.obj)


def _moment(source: SourceOptions, keys: KeyOptions) -> dict[str, str]:
    """The options for a repository, as they mean the same in every process."""
    found = {}
    if source.at is not None:
        found["at"] = str(parse_time("--at", source.at, datetime.now(UTC)))
    if keys.encryption_key_file is not None:
        found["encryptionKeyFile"] = os.path.abspath(keys.encryption_key_file)
    return found


def _local_paths(job: ExportJob) -> list[str]:
    return [path for path in job.options.paths if not is_remote(path)]


def _job(raw: dict[str, str], paths: list[str], output: str, columns: str | None, **how: Any) -> ExportJob:  # noqa: ANN401 (fields of ExportJob)
    """The job that the options describe. Raises `UsageError`, and `StorageError` for a mistyped URI."""
    from klog.backup.exporting import source_of
    from klog.export.open_output import check_place
    from klog.export.options_parsing import read_options
    from klog.export.schema import check_columns, column_names
    from klog.export.split_export import ExportJob

    check_place(output)
    # Paths are absolute: a job may be resumed from another directory, and Spark's tasks run in their own.
    *absolute, output = (_absolute(path) for path in (*paths, output))
    read = read_options(raw, absolute)
    chosen = None if columns is None else tuple(filter(None, (name.strip() for name in columns.split(","))))
    check_columns(chosen or (), column_names(read))
    if not is_remote(output):
        check_output_directory(output, [path for path in absolute if not is_remote(path)])
    return ExportJob(read, output, columns=chosen, source=source_of(read), **how)


def _file_bytes(text: str | None) -> int | None:
    from klog.export.options_parsing import parse_size_bytes

    return None if text is None else parse_size_bytes("targetFileBytes", text)


def _requested_decoding(
    encoding: Encoding, schema: str, message: str, schema_directory: str
) -> RequestedDecoding:
    """How a column is to be decoded; the directory of schemas applies to encodings that have schemas."""
    in_wire_format = encoding in (Encoding.JSON, Encoding.AVRO, Encoding.PROTOBUF)
    directory = _absolute(schema_directory) if schema_directory and in_wire_format else ""
    return RequestedDecoding(encoding, schema, message, directory)


def _absolute(path: str) -> str:
    return path if is_remote(path) else os.path.abspath(local_path(path))


def _run(
    job: ExportJob, run: RunOptions, *, report: str | None, quiet: bool, start_runner: StartRunner | None
) -> None:
    from klog.commands.offline.exporting.report_text import report_text, write_report
    from klog.export.run_export import run_export

    with ExitStack() as stack:
        runner = None if start_runner is None else stack.enter_context(start_runner(job))
        bars = runner is None or sys.stderr.isatty()
        watcher: Watcher = (
            stack.enter_context(_ProgressBars(quiet)) if bars else stack.enter_context(ProgressLines(quiet))
        )
        result = run_export(job, run, watcher, runner)
    if report is not None:
        write_report(report, result, _local_paths(job))
    if not quiet:
        print_report(report_text(result))
    if not result.clean:
        raise typer.Exit(1)


def _show_plan(job: ExportJob) -> None:
    from klog.commands.offline.exporting.report_text import plan_lines

    planned = job.source.plan(job.options)
    print_lines(plan_lines(planned))
    if planned.lost or planned.problems:
        raise typer.Exit(1)


class _ProgressBars:
    """A progress bar for each stage of a job, on a terminal."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._stack = ExitStack()
        self._advance: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def planned(self, plan: Plan, pending_bytes: int, what: str) -> None:
        """A stage of the job begins."""

        if self._advance is None:
            note_slowness(pending_bytes, quiet=self._quiet)
        self._stack.close()
        title = f"{what} {count_of(len(plan.partitions), 'partition')}"
        self._advance = self._stack.enter_context(progress(title, pending_bytes, quiet=self._quiet))

    def advanced(self, size_bytes: int) -> None:
        """That many bytes more of the stage are done."""
        if self._advance is not None:
            self._advance(size_bytes)
