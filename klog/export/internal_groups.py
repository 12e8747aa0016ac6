"""Rows of `__consumer_offsets`: commits as columns, other records (groups, members, assignments) as JSON.

`klog.formats.consumer_offsets` defines the fields.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final

from klog.formats import consumer_offsets
from klog.formats.consumer_offsets import TYPE_NAMES, GroupRecord
from klog.formats.keyed import KeyValue

DDL: Final = """
    type STRING, deleted BOOLEAN,
    group STRING, topic STRING, partition INT,
    offset BIGINT, leaderEpoch INT, metadata STRING, commitTimestamp TIMESTAMP, expireTimestamp TIMESTAMP,
    details STRING
"""
"""`details` has all fields of the key and value of a record that is no commit, as JSON."""

_COMMIT_TYPES: Final = (0, 1)
_COMMIT: Final = TYPE_NAMES[1]
_MICROS: Final = 1000
_read: Final = GroupRecord.read


def read(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """One record as a row. Raises FormatError."""
    return row_of(_read(key, value))


def row_of(record: KeyValue) -> dict[str, Any]:
    """One parsed record as a row."""
    key, value = record
    kind = key["version"]
    if kind not in _COMMIT_TYPES:
        fields = {**_plain(key), **(_plain(value) if isinstance(value, Mapping) else {})}
        return {
            "type": TYPE_NAMES.get(kind, str(kind)),
            "deleted": value is None,
            "group": consumer_offsets.group_of(key),
            "details": json.dumps(fields, ensure_ascii=False),
        }
    if not isinstance(value, dict):
        return {
            "type": _COMMIT,
            "deleted": value is None,
            "group": key["group"],
            "topic": key["topic"],
            "partition": key["partition"],
        }
    return {
        "type": _COMMIT,
        "deleted": False,
        "group": key["group"],
        "topic": key["topic"],
        "partition": key["partition"],
        "offset": value["offset"],
        "leaderEpoch": value.get("leaderEpoch"),
        "metadata": value["metadata"],
        "commitTimestamp": micros(value["commitTimestamp"]),
        "expireTimestamp": micros(value["expireTimestamp"]) if "expireTimestamp" in value else None,
    }


def micros(time_ms: int) -> int | None:
    """Microseconds; None for Kafka's -1 and for a time that is too large."""
    return time_ms * _MICROS if 0 <= time_ms < 2**63 // _MICROS else None


def _plain(value: Any) -> Any:  # noqa: ANN401 (of any definition)
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items() if name not in ("_io", "version")}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else value
