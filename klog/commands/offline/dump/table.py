"""`--format table`: prints records, batches and all other kinds of files as tables for people.

A table shows the most useful fields; `--format jsonl` has all of them. Checksums are always checked, so that
damaged batches are marked. Empty columns are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import BinaryIO

from klog.commands.offline.dump import file_tables
from klog.commands.offline.dump.table_writer import TableWriter
from klog.commands.shared.cells import (
    BAD,
    CONTROL,
    NULL,
    human_bytes,
    human_time,
    preview,
    zone,
)
from klog.commands.shared.records.plan import BytesMode, DumpFile, DumpPlan, Rows
from klog.commands.shared.records.problems import Problems
from klog.commands.shared.records.rows import (
    RECORD_KINDS,
    each_file,
    reader_of,
    selected_batches,
    selected_runs,
)
from klog.commands.shared.table_layout import Cell, Column, Row
from klog.formats.checksums import Bytes
from klog.formats.compression import codec_name
from klog.formats.constants import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)
from klog.formats.visible import visible
from klog.formats.wrapping import last_sequence
from klog.kernel import kernel
from klog.kernel.columns import COUNT_UNKNOWN, OFFSET_UNKNOWN, BatchTable
from klog.kernel.markers import control_type_name
from klog.storage.files.files import open_for_reading, size_bytes
from klog.storage.reading.reader import SegmentReader


def run(plan: DumpPlan, out: BinaryIO) -> int:
    """Write the plan's files as tables; returns 1 if there were problems, else 0."""
    problems = Problems(strict=plan.strict)
    with TableWriter(out) as writer:

        def show(file: DumpFile, limit: int | None) -> int:
            return _file(plan, file, writer, problems, limit)

        each_file(plan.files, plan.selection.limit, problems, show)
    return problems.exit_code


def _file(plan: DumpPlan, file: DumpFile, writer: TableWriter, problems: Problems, limit: int | None) -> int:
    writer.section(file.path, human_bytes(size_bytes(file.path)))
    if file.kind not in RECORD_KINDS:
        return file_tables.show(file, writer, limit)
    by_batch = plan.rows is Rows.BATCHES
    columns = _batch_columns() if by_batch else _record_columns()
    with open_for_reading(file.path) as opened:
        reader = reader_of(plan, file, opened, problems, verify=True)
        rows = _batch_rows(plan, reader) if by_batch else _record_rows(plan, reader, writer.wide_width)
        shown = writer.table(columns, islice(rows, limit))
    if not shown:
        writer.line(f"no {plan.rows}", NULL)
    return shown


def _record_columns() -> list[Column]:
    return [
        Column("offset", right=True),
        Column(f"time ({zone()})", rank=1),
        Column("key", preview=True),
        Column("value", preview=True),
        Column("size", right=True, rank=2),
        Column("headers", preview=True, rank=3),
        Column("producer", rank=4),
        Column("epoch", right=True, rank=5),
        Column("notes", folded=True),
    ]


def _record_rows(plan: DumpPlan, reader: SegmentReader, width: int) -> Iterator[Row]:
    batches, records = reader.batches, reader.records
    for payload in selected_runs(reader, plan.selection):
        view = memoryview(payload)
        for row in range(len(records)):
            of = records.batch[row]
            attributes = batches.attributes[of] if batches.magic[of] >= 2 else batches.attributes[of] & 0x0F
            bad = not batches.valid[of] or not records.valid[row]
            key = _span_cell(view, records.key_start[row], records.key_size[row], plan.bytes_mode, width)
            value = _span_cell(
                view, records.value_start[row], records.value_size[row], plan.bytes_mode, width
            )
            if attributes & CONTROL_BIT:
                key, value = _control_cells(view, records.key_start[row], records.key_size[row])
            yield [
                Cell(str(records.offset[row]), BAD if bad else ""),
                Cell(human_time(records.timestamp[row])),
                key,
                value,
                Cell(human_bytes(records.record_size[row]), "dim"),
                Cell(
                    _headers(payload, records.headers_start[row], records.header_count[row], plan.bytes_mode)
                ),
                Cell(_producer(batches, of, records.offset[row]), "dim"),
                Cell(_known(batches.leader_epoch[of]), "dim"),
                _notes(attributes, batches.magic[of], bad=bad),
            ]


def _span_cell(view: memoryview, start: int, size: int, mode: BytesMode, width: int) -> Cell:
    if size < 0:
        return preview(None, 0, mode, width)
    return preview(view[start : start + min(size, width * 4)], size, mode, width)


def _control_cells(view: memoryview, key_start: int, key_size: int) -> tuple[Cell, Cell]:
    key = bytes(view[key_start : key_start + key_size]) if key_size >= 0 else None
    return Cell("control", CONTROL), Cell(control_type_name(key) or "unreadable", CONTROL)


def _headers(payload: Bytes, start: int, count: int, mode: BytesMode) -> str:
    if not count:
        return ""
    parts = []
    for key, value in kernel.headers(payload, start, count):
        text = preview(value, len(value or b""), mode, 40).text
        parts.append(f"{visible(key.decode('utf-8', 'replace'))}={text}")
    return ", ".join(parts)


def _producer(batches: BatchTable, row: int, offset: int) -> str:
    if batches.producer_id[row] < 0:
        return ""
    sequence = last_sequence(batches.base_sequence[row], offset - batches.base_offset[row])
    number = "" if sequence < 0 else f" #{sequence}"
    return f"{batches.producer_id[row]}:{batches.producer_epoch[row]}{number}"


def _known(number: int) -> str:
    return "" if number < 0 else str(number)


def _notes(attributes: int, magic: int, *, bad: bool) -> Cell:
    notes = ["checksum fails"] if bad else []
    if attributes & CONTROL_BIT:
        notes.append("control")
    if attributes & TRANSACTIONAL_BIT:
        notes.append("transactional")
    if attributes & TIMESTAMP_TYPE_BIT:
        notes.append("append time")
    if attributes & DELETE_HORIZON_BIT:
        notes.append("delete horizon")
    if magic != 2:
        notes.append(f"magic {magic}")
    return Cell(", ".join(notes), BAD if bad else CONTROL if attributes & CONTROL_BIT else "dim")


def _batch_columns() -> list[Column]:
    return [
        Column("position", right=True),
        Column("offsets", right=True),
        Column("count", right=True, rank=1),
        Column("size", right=True),
        Column("codec"),
        Column(f"max time ({zone()})", rank=2),
        Column("producer", rank=3),
        Column("epoch", right=True, rank=4),
        Column("notes", folded=True),
    ]


def _batch_rows(plan: DumpPlan, reader: SegmentReader) -> Iterator[Row]:
    for data in reader.chunks():
        for row in selected_batches(plan.selection, reader, data):
            yield _batch_row(reader.batches, row)


def _batch_row(batches: BatchTable, row: int) -> Row:
    magic, attributes = batches.magic[row], batches.attributes[row]
    attributes = attributes if magic >= 2 else attributes & 0x0F
    base, last, count = batches.base_offset[row], batches.last_offset[row], batches.count[row]
    bad = not batches.valid[row]
    codec = codec_name(attributes & CODEC_MASK)
    return [
        Cell(str(batches.position[row]), BAD if bad else ""),
        Cell(f"..{last}" if base == OFFSET_UNKNOWN and magic < 2 else f"{base}..{last}", BAD if bad else ""),
        Cell("" if count == COUNT_UNKNOWN and magic < 2 else str(count)),
        Cell(human_bytes(batches.size[row])),
        Cell(codec, "dim" if codec == "none" else ""),
        Cell(human_time(batches.max_timestamp[row])),
        Cell(_producer(batches, row, base), "dim"),
        Cell(_known(batches.leader_epoch[row]), "dim"),
        _notes(attributes, magic, bad=bad),
    ]
