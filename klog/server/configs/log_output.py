"""Writes the broker's log to stderr, as lines for people or as JSON objects for programs."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Final, TextIO

from klog.formats.visible import visible
from klog.security.authorization.audit import LOGGER as AUDIT_LOGGER

_LEVEL_COLOURS: Final = {
    logging.WARNING: "\x1b[33m",
    logging.ERROR: "\x1b[31m",
    logging.CRITICAL: "\x1b[1;31m",
}
_RESET: Final = "\x1b[0m"


class _LineFormatter(logging.Formatter):
    """Formats a record as `12:34:56.789 WARN server.network text`.

    What clients send (names, ids) may be in the text, so control characters are shown as escapes.
    """

    def __init__(self, *, coloured: bool) -> None:
        super().__init__()
        self._coloured = coloured

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        name = record.name.removeprefix("klog.")
        level = {"WARNING": "WARN", "CRITICAL": "FATAL"}.get(record.levelname, record.levelname)
        text = f"{clock}.{int(record.msecs):03d} {level:<5} {name}  {visible(record.getMessage())}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        colour = _LEVEL_COLOURS.get(record.levelno) if self._coloured else None
        return f"{colour}{text}{_RESET}" if colour else text


class _JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object: `time` (ms since the epoch),
    `level`, `logger`, `message`, maybe `trace`.
    """

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": int(record.created * 1000),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["trace"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def configure_logging(*, as_json: bool, quiet: bool, stream: TextIO | None = None) -> None:
    """Write the log of klog, and the warnings of libraries, to `stream` (stderr by default)."""
    out = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(out)
    handler.setFormatter(_JsonFormatter() if as_json else _LineFormatter(coloured=out.isatty()))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in ("klog", AUDIT_LOGGER):
        logging.getLogger(name).setLevel(logging.WARNING if quiet else logging.INFO)
