"""Prints consumed records as values, as lines in the user's format, or as JSON Lines.

JSON Lines are those of `klog dump-segment`, except for what the wire does not carry: there is no `file`, and
`batchPosition` is -1.
"""

from __future__ import annotations

import json
from array import array
from typing import Final

from klog.admin.consuming import Run
from klog.commands.shared.records.output_buffer import TEXT_MODES, OutputBuffer
from klog.commands.shared.records.plan import BytesMode
from klog.commands.shared.records.template import LineStyle, Row, Template
from klog.formats.names import TopicPartition
from klog.kernel import jsontext
from klog.kernel.columns import BatchTable

_PIECE_RECORDS: Final = 1 << 13


class ValueLines:
    """Prints values, each after its key if a key delimiter is given."""

    def __init__(
        self, buffer: OutputBuffer, style: LineStyle, delimiter: bytes, key_delimiter: bytes | None
    ) -> None:
        self._buffer = buffer
        self._style = style
        self._delimiter = delimiter
        self._key_delimiter = key_delimiter

    def write(self, run: Run, count: int) -> None:
        """Write the first `count` records of a run."""
        view = memoryview(run.payload)
        show, delimiter, key_delimiter = self._style.show, self._delimiter, self._key_delimiter
        parts: list[bytes] = []
        for number in range(count):
            row = Row(run, view, number)
            if key_delimiter is not None:
                parts += (show(row.key()), key_delimiter)
            parts += (show(row.value()), delimiter)
        self._buffer.write_bytes(b"".join(parts))


class FormattedLines:
    """Prints records by a template, with a delimiter after each."""

    def __init__(self, buffer: OutputBuffer, template: Template, delimiter: bytes) -> None:
        self._buffer = buffer
        self._template = template
        self._delimiter = delimiter

    def write(self, run: Run, count: int) -> None:
        """Write the first `count` records of a run."""
        view = memoryview(run.payload)
        render, delimiter = self._template.render, self._delimiter
        lines = [render(Row(run, view, number)) + delimiter for number in range(count)]
        self._buffer.write_bytes(b"".join(lines))


class JsonLines:
    """Prints one JSON object per record."""

    def __init__(self, buffer: OutputBuffer, mode: BytesMode) -> None:
        self._buffer = buffer
        self._mode = TEXT_MODES[mode]
        self._prefixes: dict[TopicPartition, bytes] = {}

    def write(self, run: Run, count: int) -> None:
        """Write the first `count` records of a run."""
        prefix = self._prefixes.get(run.partition)
        if prefix is None:
            topic, partition = run.partition
            prefix = f'{{"topic":{json.dumps(topic, ensure_ascii=False)},"partition":{partition}'.encode()
            self._prefixes[run.partition] = prefix
        batches = _without_positions(run.batches)
        buffer = self._buffer
        for first in range(0, count, _PIECE_RECORDS):
            last = min(first + _PIECE_RECORDS, count)
            buffer.used = jsontext.jsonl_records(
                batches, run.records, first, last, run.payload, prefix, self._mode, buffer.data, buffer.used
            )
            buffer.flush_if_full()


def _without_positions(batches: BatchTable) -> BatchTable:
    """The same batches, which share their columns, with -1 as every position."""
    shown = BatchTable()
    for name in BatchTable.COLUMNS:
        setattr(shown, name, getattr(batches, name))
    shown.position = array("q", (-1,)) * len(batches)
    return shown
