"""`klog dump-segment`: prints segments, indexes, snapshots and checkpoints, for people and for programs.

Options become a `DumpPlan`; the module of the chosen format does the rest. Kafka's own options are accepted
too, so that a `kafka-dump-log` command line works here if only the name of the program changes.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import BinaryIO, Final

import typer

from klog.commands._terminal import stdout_bytes
from klog.commands.dump import options
from klog.commands.dump.arguments import parse_offsets, parse_pattern, parse_time
from klog.commands.dump.options import DumpFormat
from klog.commands.dump.plan import BytesMode, Decoder, DumpPlan, KafkaFlags, Rows, Selection
from klog.commands.dump.problems import Problems
from klog.formats.compression import DEFAULT_LIMIT_BYTES
from klog.formats.constants import INT32_MAX
from klog.formats.errors import UsageError
from klog.storage.kafka_files import expand

_KAFKA_DEFAULTS: Final = KafkaFlags()


def dump_segment(
    paths: options.Paths = None,
    files: options.Files = None,
    format_: options.Format = None,
    summary: options.Summary = False,
    output: options.Output = None,
    all_files: options.AllFiles = False,
    batches: options.Batches = False,
    bytes_: options.Bytes = BytesMode.AUTO,
    offsets: options.Offsets = None,
    since: options.Since = None,
    until: options.Until = None,
    key: options.Key = None,
    grep: options.Grep = None,
    limit: options.Limit = None,
    verify: options.Verify = False,
    strict: options.Strict = False,
    max_decompressed_bytes: options.MaxDecompressedBytes = DEFAULT_LIMIT_BYTES,
    print_data_log: options.PrintDataLog = False,
    deep_iteration: options.DeepIteration = False,
    skip_record_metadata: options.SkipRecordMetadata = False,
    max_bytes: options.MaxBytes = INT32_MAX,
    max_message_size: options.MaxMessageSize = _KAFKA_DEFAULTS.max_message_size,
    key_decoder_class: options.KeyDecoderClass = None,
    value_decoder_class: options.ValueDecoderClass = None,
    offsets_decoder: options.OffsetsDecoder = False,
    transaction_log_decoder: options.TransactionLogDecoder = False,
    cluster_metadata_decoder: options.ClusterMetadataDecoder = False,
    remote_log_metadata_decoder: options.RemoteLogMetadataDecoder = False,
    index_sanity_check: options.IndexSanityCheck = False,
    verify_index_only: options.VerifyIndexOnly = False,
) -> None:
    """Show the content of segments, indexes, snapshots and checkpoints. Changes nothing.

    Examples:

        klog dump-segment orders-0/00000000000000000000.log

        klog dump-segment --format jsonl --offsets 100..199 orders-0 | jq .value

        klog dump-segment --since 2h --grep 'error|timeout' 'logs/orders-*'

        klog dump-segment --summary orders-0

        klog dump-segment --format parquet --output orders.parquet orders-0

        klog dump-segment --files 00000000000000000000.log --print-data-log
    """
    flags = KafkaFlags(
        print_data_log=print_data_log,
        deep_iteration=deep_iteration,
        skip_record_metadata=skip_record_metadata,
        max_bytes=max_bytes,
        max_message_size=max_message_size,
        key_decoder_class=key_decoder_class,
        value_decoder_class=value_decoder_class,
        decoder=_one_decoder(
            {
                Decoder.OFFSETS: offsets_decoder,
                Decoder.TRANSACTION_LOG: transaction_log_decoder,
                Decoder.CLUSTER_METADATA: cluster_metadata_decoder,
                Decoder.REMOTE_LOG_METADATA: remote_log_metadata_decoder,
            }
        ),
        index_sanity_check=index_sanity_check,
        verify_index_only=verify_index_only,
    )
    kafka_style = bool(files) or flags != _KAFKA_DEFAULTS
    chosen = _chosen_format(format_, kafka_style=kafka_style, summary=summary, output=output)
    first, last = parse_offsets(offsets)
    now = datetime.now(UTC)
    missed = Problems(strict=strict)
    plan = DumpPlan(
        files=tuple(expand(_paths(paths, files), all_kinds=all_files, on_problem=missed)),
        rows=Rows.BATCHES if batches else Rows.RECORDS,
        bytes_mode=bytes_,
        selection=Selection(
            first_offset=first,
            last_offset=last,
            since_ms=parse_time("--since", since, now),
            until_ms=parse_time("--until", until, now),
            key=None if key is None else key.encode("utf-8", "surrogateescape"),
            grep=parse_pattern(grep),
            limit=limit,
        ),
        verify=verify,
        strict=strict,
        kafka=flags,
        output=output,
        max_decompressed_bytes=max_decompressed_bytes,
    )
    if not plan.files and missed.count:
        raise typer.Exit(1)  # there is nothing to show: create no empty output file
    raise typer.Exit(max(missed.exit_code, _run(plan, chosen, summary=summary)))


def _paths(paths: list[str] | None, files: list[str] | None) -> list[str]:
    named = [*(paths or []), *(name for group in files or [] for name in group.split(",") if name)]
    if not named:
        raise UsageError("no file named", cure="klog dump-segment PATH..., or --help")
    return named


def _one_decoder(wanted: dict[Decoder, bool]) -> Decoder | None:
    # If several are given, Kafka's tool takes the first of this order.
    return next((decoder for decoder, given in wanted.items() if given), None)


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


def _run(plan: DumpPlan, chosen: DumpFormat, *, summary: bool) -> int:
    code = _rendered(plan, chosen, summary=summary)
    if not plan.verify or chosen is DumpFormat.KAFKA:
        return code
    from klog.commands.dump import index_problems

    return max(code, index_problems.check(plan))


def _rendered(plan: DumpPlan, chosen: DumpFormat, *, summary: bool) -> int:
    if summary:
        from klog.commands.dump import summary as rendering

        return _written(plan, rendering.run_jsonl if chosen is DumpFormat.JSONL else rendering.run)
    module = importlib.import_module(f"klog.commands.dump.{chosen}")
    if chosen is DumpFormat.PARQUET:
        return int(module.run(plan, stdout_bytes()))
    return _written(plan, module.run)


def _written(plan: DumpPlan, run: Callable[[DumpPlan, BinaryIO], int]) -> int:
    """Write text to stdout, or to the output file, which appears when it is complete."""
    if plan.output is None:
        return run(plan, stdout_bytes())
    from klog.storage.files import atomic_output

    with atomic_output(plan.output) as out:
        return run(plan, out)
