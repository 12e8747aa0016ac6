"""`--format jsonl`: prints records and batches as JSON Lines, and all other kinds of files entry by entry.

Each line is an object with the same fields in the same order; their names are Kafka's. The text kernel prints
whole runs of records; only a selection by content needs single records. Checksums are always checked. With
`--batches` a damaged batch has `"valid":false` and its `error`. Otherwise there is one message on stderr, the
records that decode are printed, and reading goes on with the next batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import BinaryIO, Final

from klog.commands.offline.dump import file_entries
from klog.commands.shared.records.output_buffer import TEXT_MODES, OutputBuffer
from klog.commands.shared.records.plan import DumpFile, DumpPlan, Rows, Selection
from klog.commands.shared.records.problems import Problems
from klog.commands.shared.records.rows import (
    RECORD_KINDS,
    each_file,
    reader_of,
    selected_batches,
    selected_runs,
)
from klog.formats.checksums import Bytes
from klog.formats.compression import decompress
from klog.formats.constants import CODEC_MASK
from klog.formats.errors import CorruptRecordError, KlogError
from klog.kernel import jsontext, kernel
from klog.kernel.columns import BatchTable, RecordTable
from klog.storage.files.files import open_for_reading
from klog.storage.reading.reader import SegmentReader

_PIECE_BYTES: Final = 4 << 20
_PIECE_RECORDS: Final = 1 << 15


def run(plan: DumpPlan, out: BinaryIO) -> int:
    """Write the plan's files as JSON Lines; returns 1 if there were problems, else 0."""
    problems = Problems(strict=plan.strict)
    buffer = OutputBuffer(out)

    def show(file: DumpFile, limit: int | None) -> int:
        return _file(plan, file, buffer, problems, limit)

    try:
        each_file(plan.files, plan.selection.limit, problems, show)
    finally:
        buffer.flush()
    return problems.exit_code


def _file(plan: DumpPlan, file: DumpFile, buffer: OutputBuffer, problems: Problems, limit: int | None) -> int:
    if file.kind not in RECORD_KINDS:
        return file_entries.show(file, buffer, limit)
    with open_for_reading(file.path) as opened:
        reader = reader_of(plan, file, opened, problems, verify=True)
        if plan.rows is Rows.BATCHES:
            return _batches(plan, file, reader, buffer, problems, limit)
        return _records(plan, file, reader, buffer, limit)


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _records(
    plan: DumpPlan, file: DumpFile, reader: SegmentReader, buffer: OutputBuffer, limit: int | None
) -> int:
    place = f'{{"file":{_text(file.path)},"topic":{_text(file.topic)},"partition":{_text(file.partition)}'
    prefix = place.encode("utf-8", "replace")
    mode = TEXT_MODES[plan.bytes_mode]
    shown = 0
    for payload in selected_runs(reader, plan.selection):
        for first, last in _pieces(reader.records, payload):
            stop = last if limit is None else min(last, first + limit - shown)
            buffer.used = jsontext.jsonl_records(
                reader.batches, reader.records, first, stop, payload, prefix, mode, buffer.data, buffer.used
            )
            buffer.flush_if_full()
            shown += stop - first
            if shown == limit:
                return shown
    return shown


def _pieces(records: RecordTable, payload: Bytes) -> Iterator[tuple[int, int]]:
    """Ranges of rows, none of which makes much more text than the buffer holds."""
    rows = len(records)
    step = max(1, min(_PIECE_RECORDS, rows * _PIECE_BYTES // max(len(payload), 1)))
    for first in range(0, rows, step):
        yield first, min(first + step, rows)


def _batches(
    plan: DumpPlan,
    file: DumpFile,
    reader: SegmentReader,
    buffer: OutputBuffer,
    problems: Problems,
    limit: int | None,
) -> int:
    prefix = f'{{"file":{_text(file.path)}'.encode("utf-8", "replace")
    shown = 0
    for data in reader.chunks():
        _find_base_offsets(plan, file, reader.batches, data, problems)
        for first, last in _selected_batches(plan.selection, reader, data):
            stop = last if limit is None else min(last, first + limit - shown)
            buffer.used = jsontext.jsonl_batches(
                reader.batches, first, stop, prefix, buffer.data, buffer.used
            )
            shown += stop - first
            if shown == limit:
                return shown
        buffer.flush_if_full()
    return shown


def _selected_batches(selection: Selection, reader: SegmentReader, data: Bytes) -> Iterator[tuple[int, int]]:
    """Ranges of rows of the chunk's batches that may hold a selected record."""
    if not selection.by_place and not selection.by_content:
        yield 0, len(reader.batches)
        return
    for row in selected_batches(selection, reader, data):
        yield row, row + 1


def _find_base_offsets(
    plan: DumpPlan, file: DumpFile, batches: BatchTable, data: Bytes, problems: Problems
) -> None:
    """Find the base offsets of compressed batches of magic 0 and 1: they are in the first message inside."""
    if not len(batches) or min(batches.magic) >= 2:
        return
    records = RecordTable()
    for row in range(len(batches)):
        codec = batches.attributes[row] & CODEC_MASK
        start, size = kernel.payload_span(data, batches, row)
        if batches.magic[row] >= 2 or not codec or size < 0:
            continue
        records.clear()
        block = memoryview(data)[start : start + size]
        try:
            payload = decompress(
                codec, block, magic=batches.magic[row], limit_bytes=plan.max_decompressed_bytes
            )
        except KlogError as error:
            problems(error.at(file.path, batches.position[row]))
            continue
        if not kernel.decode_payload(payload, batches, row, records):
            what = records.problem or "batch does not decode"
            problems(CorruptRecordError(what, file=file.path, position_bytes=batches.position[row]))
