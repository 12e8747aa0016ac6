"""`--summary`: prints statistics of partitions, for people or as one JSON object each (`run_jsonl`).

`klog.storage.reading.statistics` collects them; of large files it decodes only a sample of the records. With
`--verify` it decodes every record. Problems are printed on stderr, as in every dump.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import Any, BinaryIO

from klog.commands.offline.dump import summary_text
from klog.commands.offline.dump.table_writer import TableWriter
from klog.commands.shared.records.plan import DumpFile, DumpPlan
from klog.commands.shared.records.problems import Problems
from klog.commands.shared.records.rows import RECORD_KINDS, reader_of
from klog.commands.shared.terminal import progress
from klog.formats.compression import codec_name
from klog.formats.errors import KlogError, StorageError, UsageError
from klog.storage.files.distributions import Distribution
from klog.storage.files.files import open_for_reading, size_bytes
from klog.storage.reading.statistics import DECODE_ALL_BELOW_BYTES, LogStatistics

_BARS = 48
_TOP_PRODUCERS = 10


def run(plan: DumpPlan, out: BinaryIO) -> int:
    """Write one partition in full, or several as a table; returns 1 if there were problems, else 0."""
    problems = Problems(strict=plan.strict)
    found = _collected(plan, problems)
    with TableWriter(out) as writer:
        first = next(found, None)
        second = None if first is None else next(found, None)
        if first is not None and second is None:
            summary_text.show(writer, *first)
        elif first is not None and second is not None:
            summary_text.show_many(writer, chain((first, second), found))
    return problems.exit_code


def run_jsonl(plan: DumpPlan, out: BinaryIO) -> int:
    """Write one JSON object per partition; returns 1 if there were problems, else 0."""
    problems = Problems(strict=plan.strict)
    for name, numbers in _collected(plan, problems):
        out.write(json.dumps(as_json(name, numbers), ensure_ascii=False).encode() + b"\n")
    return problems.exit_code


def _collected(plan: DumpPlan, problems: Problems) -> Iterator[tuple[str, LogStatistics]]:
    """The statistics of each partition directory among the plan's files, or of a single file."""
    if plan.selection.by_content or plan.selection.limit is not None:
        raise UsageError(
            "--summary counts whole batches: --key, --grep and --limit do not apply",
            cure="use --offsets, --since or --until",
        )
    groups: dict[str, list[DumpFile]] = {}
    for file in plan.files:
        if file.kind in RECORD_KINDS:
            groups.setdefault(os.path.dirname(file.path) or ".", []).append(file)
    total_bytes = sum(_size_bytes(file.path) for files in groups.values() for file in files)
    with progress("reading", total_bytes) as advance:
        for directory, files in groups.items():
            numbers = LogStatistics()
            unreadable = 0
            for file in files:
                try:
                    with open_for_reading(file.path) as opened:
                        reader = reader_of(plan, file, opened, problems, verify=True)
                        everything = plan.verify or size_bytes(file.path) <= DECODE_ALL_BELOW_BYTES
                        for consumed_bytes in numbers.add(reader, decode_all=everything):
                            advance(consumed_bytes)
                except KlogError as error:
                    unreadable += 1
                    problems(error.at(file.path))
            if unreadable < len(files) or numbers.size_bytes:
                yield files[0].path if len(files) == len(groups) == 1 else directory, numbers


def _size_bytes(path: str) -> int:
    """The size of a file; one that cannot be read counts as empty, and reading reports it."""
    with suppress(StorageError):
        return size_bytes(path)
    return 0


def as_json(name: str, numbers: LogStatistics) -> dict[str, Any]:
    """The statistics as JSON, with Kafka's names if there are any."""
    start, width, bars = numbers.histogram.bars(_BARS)
    return {
        "file": name,
        "segments": numbers.segments,
        "size": numbers.size_bytes,
        "batches": numbers.batches,
        "records": numbers.records,
        "firstOffset": numbers.first_offset,
        "lastOffset": numbers.last_offset,
        "gaps": numbers.gaps,
        "missingOffsets": numbers.missing_offsets,
        "minTimestamp": numbers.min_timestamp_ms,
        "maxTimestamp": numbers.max_timestamp_ms,
        "timestampTypes": dict(numbers.timestamp_types),
        "invalidBatches": numbers.invalid_batches,
        "magics": {str(magic): count for magic, count in sorted(numbers.magics.items())},
        "codecs": {
            codec_name(codec): {"batches": share.batches, "size": share.size_bytes, "ratio": share.ratio}
            for codec, share in sorted(numbers.codecs.items())
        },
        "batchSizes": _distribution(numbers.batch_sizes),
        "recordSizes": _distribution(numbers.record_sizes),
        "decodedRecords": numbers.decoded_records,
        "sampled": numbers.sampled,
        "nullKeys": numbers.null_keys,
        "nullValues": numbers.null_values,
        "headers": numbers.headers,
        "producers": len(numbers.producers),
        "topProducers": [
            {"producerId": producer, "records": count}
            for producer, count in numbers.producers.most_common(_TOP_PRODUCERS)
        ],
        "transactions": {
            "batches": numbers.transactional_batches,
            "committed": numbers.transactions.committed,
            "aborted": numbers.transactions.aborted,
            "open": [
                {"producerId": producer, "firstOffset": offset}
                for producer, offset in sorted(numbers.transactions.open.items())
            ],
        },
        "controlRecords": dict(numbers.control_records),
        "deleteHorizonBatches": numbers.delete_horizons,
        "leaderEpochs": [
            {"epoch": epoch, "firstOffset": offset} for epoch, offset in sorted(numbers.leader_epochs.items())
        ],
        "histogram": {"start": start, "width": width, "records": bars},
    }


def _distribution(values: Distribution) -> dict[str, int | None]:
    return {"min": values.smallest, "median": values.median, "max": values.largest}
