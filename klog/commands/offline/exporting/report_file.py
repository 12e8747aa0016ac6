"""The final report of an export as a JSON file (`klog export --report`)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from klog.commands.offline.outputs import output_file
from klog.export.report import Report, report_json

_KEYS: Final = frozenset({"records", "splits", "bytesRead", "lost", "partitions"})
"""Keys of every report, by which an earlier one is known."""


def is_report(path: str) -> bool:
    """Whether a file is the report of an earlier export, which a new one may replace."""
    try:
        found = json.loads(Path(path).read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.keys() >= _KEYS


def write_report(path: str, report: Report, inputs: Iterable[str]) -> None:
    """Write the report. The caller has checked the path before the export. Raises StorageError."""
    data = (json.dumps(report_json(report), indent=1) + "\n").encode("ascii")
    with output_file(path, inputs, force=True) as out:
        out.write(data)
