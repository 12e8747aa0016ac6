"""Decodes keys and values of consumed records before they are printed as text."""

from __future__ import annotations

from array import array
from typing import Protocol

from klog.admin.consuming import Run
from klog.commands.shared.decoding.failures import Failures
from klog.commands.shared.decoding.fields import FieldDecoder, RecordDecoder
from klog.kernel.columns import RecordTable


class Rendering(Protocol):
    """A way to print records."""

    def write(self, run: Run, count: int) -> None:
        """Write the first `count` records of a run."""


class DecodedRuns:
    """A rendering that gives another one records whose keys and values are JSON texts."""

    def __init__(self, rendering: Rendering, decoder: RecordDecoder, failures: Failures) -> None:
        self._rendering = rendering
        self._decoder = decoder
        self._failures = failures

    def write(self, run: Run, count: int) -> None:
        """Write the first `count` records of a run."""
        records = RecordTable()
        for name in RecordTable.COLUMNS:
            setattr(records, name, getattr(run.records, name))
        payload = bytearray(run.payload)
        for name, decoder in (("key", self._decoder.key), ("value", self._decoder.value)):
            if decoder is not None:
                self._replace(run, count, name, decoder, records, payload)
        self._rendering.write(run._replace(records=records, payload=payload), count)

    def _replace(
        self,
        run: Run,
        count: int,
        name: str,
        decoder: FieldDecoder,
        records: RecordTable,
        payload: bytearray,
    ) -> None:
        """Put the decoded texts of a column behind the payload, and let its spans point there."""
        starts = array("q", getattr(records, f"{name}_start"))
        sizes = array("q", getattr(records, f"{name}_size"))
        with memoryview(run.payload) as view:
            values = [
                None if sizes[row] < 0 else bytes(view[starts[row] : starts[row] + sizes[row]])
                for row in range(count)
            ]
        decoded = decoder.decode(values)
        for row, text in decoded.texts.items():
            data = text.encode("utf-8", "surrogatepass")
            starts[row], sizes[row] = len(payload), len(data)
            payload += data
        for row, why in decoded.errors.items():
            topic, partition = run.partition
            self._failures.add(f"{topic}-{partition} offset {run.records.offset[row]}", f"{name}: {why}")
        setattr(records, f"{name}_start", starts)
        setattr(records, f"{name}_size", sizes)
