"""Checks the rows of the embedded store's file when it is opened.

What another program or a bad disk wrote there must not stop the broker. A row that is no node is left out,
and stays in the file. A node whose parent is missing keeps its place.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final, TypeAlias

from klog.formats.constants import INT32_MAX, INT64_MAX
from klog.metadata.store import NodeStat, missing_parents
from klog.metadata.tree import ROOT, NodeRecord

_log = logging.getLogger(__name__)

_Cell: TypeAlias = str | bytes | int | float | None
Row: TypeAlias = tuple[_Cell, ...]

# Path, data, version, created_zxid, modified_zxid, created_ms, ephemeral_owner, child_changes.
_COLUMNS: Final = 8
_LARGEST: Final = (INT32_MAX, INT64_MAX - 1, INT64_MAX - 1, INT64_MAX, INT64_MAX, INT32_MAX - 1)


def records_of(rows: Iterable[Row], file: str) -> dict[str, NodeRecord]:
    """The nodes of all valid rows by path, with their parents. The errors that are logged name `file`."""
    records: dict[str, NodeRecord] = {}
    for row in rows:
        why = _invalid(row)
        if why is not None:
            _log.error("%s: the row of node %.200r is left out: %s", file, row[0], why)
            continue
        *stat, child_changes = (number for number in row[2:] if isinstance(number, int))
        data = row[1] if isinstance(row[1], bytes) else None
        records[str(row[0])] = NodeRecord(data, NodeStat(*stat), child_changes)
    for path in sorted(records):
        for parent in missing_parents(path):
            if parent not in records:
                _log.error(
                    "%s: node %.200r is missing above %.200r; an empty one stands for it", file, parent, path
                )
                records[parent] = NodeRecord(None, NodeStat(0, 0, 0, 0))
    return records


def last_zxid(stored: Row | None, records: Iterable[NodeRecord], file: str) -> int:
    """The number of the last change: at least that of every node, so that later changes get higher ones."""
    highest = max((max(each.stat.created_zxid, each.stat.modified_zxid) for each in records), default=0)
    number = None if stored is None else stored[0]
    if not isinstance(number, int) or not highest <= number < INT64_MAX:
        _log.error("%s: the number of the last change is %.100r, %d is used instead", file, number, highest)
        return highest
    return number


def _invalid(row: Row) -> str | None:
    """What is wrong with a row, or None."""
    if len(row) != _COLUMNS:
        return f"it has {len(row)} columns, not {_COLUMNS}"
    path, data, *numbers = row
    if not isinstance(path, str) or not _is_path(path):
        return "it has no valid path"
    if data is not None and not isinstance(data, bytes):
        return "its data are no bytes"
    for number, largest in zip(numbers, _LARGEST, strict=True):
        if not isinstance(number, int) or not 0 <= number <= largest:
            return f"{number!r:.100} is no number of a node"
    return None


def _is_path(path: str) -> bool:
    if path == ROOT:
        return True
    return path.startswith(ROOT) and all(path[1:].split("/")) and path.isprintable()
