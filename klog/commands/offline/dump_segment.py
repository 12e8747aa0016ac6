"""`klog dump-segment`: prints segments, indexes, snapshots and checkpoints, for people and for programs.

Options become a `DumpPlan`; the module of the chosen format does the rest. Kafka's own options are accepted
too, so that a `kafka-dump-log` command line works here if only the name of the program changes.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, BinaryIO

import typer

from klog.commands.kafka_tools.dump_log.options import DEFAULT_FLAGS, KafkaOptions
from klog.commands.offline.dump.options import CheckOptions, DumpFormat, DumpOptions, PartOptions
from klog.commands.offline.moments import RepositoryOptions, files_of
from klog.commands.offline.outputs import check_descriptor, output_file
from klog.commands.shared.decoding.options import DecodingOptions
from klog.commands.shared.key_options import KeyOptions
from klog.commands.shared.records.plan import BytesMode, DumpPlan, Rows
from klog.commands.shared.records.problems import Problems
from klog.commands.shared.records.selection_options import SelectionOptions
from klog.commands.shared.terminal import note_slowness, stdout_bytes
from klog.commands.shared.visible_output import visible_output
from klog.formats.errors import StorageError, UsageError
from klog.storage.files.kafka_files import expand

if TYPE_CHECKING:
    from klog.commands.shared.decoding.fields import RecordDecoder


def dump_segment(
    options: DumpOptions,
    selection: SelectionOptions,
    checks: CheckOptions,
    decoding: DecodingOptions,
    kafka: KafkaOptions,
    moments: RepositoryOptions,
    parts: PartOptions,
    keys: KeyOptions,
) -> None:
    """Show the content of segments, indexes, snapshots and checkpoints. Changes nothing.

    A path may also be a backup repository; --at names a moment of it. What is selected of it is copied into
    the directory for temporary files first.

    Examples:

        klog dump-segment orders-0/00000000000000000000.log
        klog dump-segment --format jsonl --offsets 100..199 orders-0 | jq .value
        klog dump-segment --since 2h --grep 'error|timeout' 'logs/orders-*'
        klog dump-segment --summary orders-0
        klog dump-segment --format parquet --output orders.parquet orders-0
        klog dump-segment --files 00000000000000000000.log --print-data-log

        klog dump-segment backups/cluster --at 1h --topic orders
    """
    flags = kafka.flags()
    kafka_style = bool(options.files) or flags != DEFAULT_FLAGS
    format_: DumpFormat | None = DumpFormat.JSONL if options.format is DumpFormat.JSON else options.format
    decoder = decoding.decoder()
    if decoder is not None:
        shows_records = not (options.summary or kafka_style or options.batches)
        format_ = _decoded_format(format_, options.bytes, shows_records=shows_records)
    chosen = _chosen_format(format_, kafka_style=kafka_style, summary=options.summary, output=options.output)
    plan = DumpPlan(
        files=(),
        rows=Rows.BATCHES if options.batches else Rows.RECORDS,
        bytes_mode=options.bytes if decoder is None else BytesMode.BASE64,
        selection=selection.selection(datetime.now(UTC)),
        verify=checks.verify,
        strict=checks.strict,
        kafka=flags,
        output=options.output,
        force=options.force,
        max_decompressed_bytes=checks.max_decompressed_bytes,
    )
    with files_of(options.named(), moments, keys, parts.wants_topic, parts.wants) as paths:
        missed = Problems(strict=checks.strict)
        files = tuple(expand(paths, all_kinds=options.all_files, on_problem=missed))
        if not files and missed.count:
            raise typer.Exit(1)  # there is nothing to show: create no empty output file
        if not files:
            named = ", ".join(options.named())
            raise StorageError(f"{named}: no segments to show", cure="--all-files shows other files")
        code = _run(replace(plan, files=files), chosen, summary=options.summary, decoder=decoder)
    raise typer.Exit(max(missed.exit_code, code))


def _decoded_format(wanted: DumpFormat | None, bytes_: BytesMode, *, shows_records: bool) -> DumpFormat:
    """The format of decoded records. Raises UsageError for what shows no keys and values as JSON."""
    if wanted not in (None, DumpFormat.JSONL) or not shows_records:
        raise UsageError("decoded keys and values are JSON", cure="--format jsonl, or klog export")
    if bytes_ is not BytesMode.AUTO:
        raise UsageError("--bytes says how bytes are shown, which are decoded here")
    return DumpFormat.JSONL


def _chosen_format(
    wanted: DumpFormat | None, *, kafka_style: bool, summary: bool, output: str | None
) -> DumpFormat:
    if summary and wanted in (DumpFormat.KAFKA, DumpFormat.PARQUET):
        raise UsageError(f"--summary has no {wanted} form", cure="omit --format, or use --format jsonl")
    if wanted is DumpFormat.PARQUET and output is None:
        raise UsageError(
            "--format parquet cannot go to stdout", cure="add --output FILE or --output DIRECTORY"
        )
    if wanted is not None:
        return wanted
    if summary:
        return DumpFormat.TABLE
    if kafka_style:
        return DumpFormat.KAFKA
    return DumpFormat.TABLE if output is None and sys.stdout.isatty() else DumpFormat.JSONL


def _run(plan: DumpPlan, chosen: DumpFormat, *, summary: bool, decoder: RecordDecoder | None) -> int:
    note_slowness(_size_bytes(plan))
    if decoder is None:
        code = _rendered(plan, chosen, summary=summary)
    else:
        from klog.commands.offline.dump.decoded import decoded_lines

        code = _written(plan, _plainly(decoded_lines(decoder)))
    if not plan.verify or chosen is DumpFormat.KAFKA:
        return code
    from klog.commands.offline.dump import index_problems

    return max(code, index_problems.check(plan))


def _size_bytes(plan: DumpPlan) -> int:
    """The size of all files; one that is gone by now counts as empty, and reading reports it."""
    from klog.storage.files.files import size_bytes

    total = 0
    for file in plan.files:
        with suppress(StorageError):
            total += size_bytes(file.path)
    return total


def _rendered(plan: DumpPlan, chosen: DumpFormat, *, summary: bool) -> int:
    if summary:
        from klog.commands.offline.dump import summary as rendering

        return _written(plan, _plainly(rendering.run_jsonl) if chosen is DumpFormat.JSONL else rendering.run)
    module = importlib.import_module(_module_of(chosen))
    if chosen is DumpFormat.PARQUET:
        return int(module.run(plan, stdout_bytes()))
    return _written(plan, module.run if chosen is DumpFormat.TABLE else _plainly(module.run))


def _module_of(chosen: DumpFormat) -> str:
    """The name of the module that prints in this format."""
    if chosen is DumpFormat.KAFKA:
        return "klog.commands.kafka_tools.dump_log.printing"
    return f"klog.commands.offline.dump.{chosen}"


def _plainly(run: Callable[[DumpPlan, BinaryIO], int]) -> Callable[[DumpPlan, BinaryIO], int]:
    """The rendering without control characters on a terminal. Tables have colours, and do it themselves."""
    return lambda plan, out: run(plan, visible_output(out))


def _written(plan: DumpPlan, run: Callable[[DumpPlan, BinaryIO], int]) -> int:
    """Write text to stdout, or to the output file, which appears when it is complete."""
    inputs = [file.path for file in plan.files]
    if plan.output is None:
        check_descriptor(1, inputs)
        return run(plan, stdout_bytes())
    with output_file(plan.output, inputs, force=plan.force) as out:
        return run(plan, out)
