"""Puts decoded keys and values into JSON Lines.

The lines are those of `klog dump-segment` and `klog consume` with `--bytes base64`, which lose nothing. What
is decoded becomes JSON; everything else is shown as `--bytes auto` shows it, with the reason in `_error` if
it should have been decoded.
"""

from __future__ import annotations

import io
import json
from base64 import b64decode
from typing import Any, BinaryIO, Final

from klog.commands.shared.decoding.failures import Failures
from klog.commands.shared.decoding.fields import FieldDecoder, RecordDecoder

_MOST_LINES: Final = 1 << 12


class DecodingLines(io.RawIOBase):
    """A stream that decodes the lines written to it and writes them to `out`."""

    def __init__(self, out: BinaryIO, decoder: RecordDecoder, failures: Failures) -> None:
        super().__init__()
        self._out = out
        self._decoder = decoder
        self._failures = failures
        self._rest = bytearray()

    def writable(self) -> bool:
        """True."""
        return True

    def write(self, data: Any, /) -> int:  # noqa: ANN401 (io's own signature)
        """Take lines, or parts of them."""
        piece = bytes(data)
        self._rest += piece
        end = self._rest.rfind(b"\n") + 1
        if end:
            lines = bytes(self._rest[:end]).splitlines()
            del self._rest[:end]
            for first in range(0, len(lines), _MOST_LINES):
                self._show(lines[first : first + _MOST_LINES])
        return len(piece)

    def flush(self) -> None:
        """Flush what is below."""
        self._out.flush()

    def _show(self, lines: list[bytes]) -> None:
        rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
        records = [row for row in rows if "value" in row and "headers" in row]
        for name, decoder in (("key", self._decoder.key), ("value", self._decoder.value)):
            self._decode(records, name, decoder)
        for row in records:
            row["headers"] = [[_text(name), _text(value)] for name, value in row["headers"]]
            if "_error" in row:
                row["_error"] = row.pop("_error")  # behind the other fields
        text = "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)
        self._out.write(text.encode("utf-8", "surrogatepass"))

    def _decode(self, records: list[dict[str, Any]], name: str, decoder: FieldDecoder | None) -> None:
        values = [None if row[name] is None or row["isControl"] else b64decode(row[name]) for row in records]
        texts, errors = ({}, {}) if decoder is None else decoder.decode(values)
        for number, row in enumerate(records):
            if number in texts:
                row[name] = json.loads(texts[number])
                continue
            row[name] = _text(row[name])
            if number in errors:
                self._failed(row, f"{name}: {errors[number]}")

    def _failed(self, row: dict[str, Any], why: str) -> None:
        row["_error"] = f"{row['_error']}; {why}" if "_error" in row else why
        self._failures.add(f"{row['topic']}-{row['partition']} offset {row['offset']}", why)


def _text(encoded: str | None) -> object:
    """Bytes in base64 as `--bytes auto` shows them: UTF-8 text, or base64 that says so."""
    if encoded is None:
        return None
    try:
        return b64decode(encoded).decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": encoded}
