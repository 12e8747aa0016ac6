"""Rows of `__consumer_offsets`: commits as columns, other records (groups, members, assignments) as JSON.

`klog.formats.consumer_offsets` defines the fields. Commits with value versions 0 to 3, which brokers before
4.1 write, are decoded here, which is many times faster; tests check that both decodings are equal.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping
from typing import Any, Final

from klog.formats import consumer_offsets, fixed_fields
from klog.formats.constants import COMMIT_GROUP_POSITION
from klog.formats.consumer_offsets import TYPE_NAMES
from klog.formats.errors import FormatError
from klog.formats.keyed import KeyValue
from klog.formats.packed import INT16, INT32

DDL: Final = """
    type STRING, deleted BOOLEAN,
    group STRING, topic STRING, partition INT,
    offset BIGINT, leaderEpoch INT, metadata STRING, commitTimestamp TIMESTAMP, expireTimestamp TIMESTAMP,
    details STRING
"""
"""`details` has all fields of the key and value of a record that is no commit, as JSON."""

_COMMIT_TYPES: Final = (0, 1)
# The fields before and after the metadata, in each version of a commit's value.
_RUNS: Final = {version: fixed_fields.runs(f"OffsetCommitValue.{version}") for version in range(4)}
_MICROS: Final = 1000


def read(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """One record as a row. Raises FormatError."""
    row = None if key is None else _quick_commit(key, value)
    return row if row is not None else row_of(consumer_offsets.parse(key, value))


def row_of(record: KeyValue) -> dict[str, Any]:
    """One parsed record as a row."""
    key, value = record
    kind = int(key["version"])
    row: dict[str, Any] = {
        "type": TYPE_NAMES.get(kind, str(kind)),
        "deleted": value is None,
        "group": consumer_offsets.group_of(key),
    }
    if kind not in _COMMIT_TYPES:
        fields = {**_plain(key), **(_plain(value) if isinstance(value, Mapping) else {})}
        return row | {"details": json.dumps(fields, ensure_ascii=False)}
    row |= {"topic": key["topic"], "partition": key["partition"]}
    if not isinstance(value, Mapping):
        return row
    return row | {
        "offset": value["offset"],
        "leaderEpoch": value.get("leaderEpoch"),
        "metadata": value["metadata"],
        "commitTimestamp": micros(value["commitTimestamp"]),
        "expireTimestamp": micros(value.get("expireTimestamp", -1)),
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


def _quick_commit(key: bytes, value: bytes | None) -> dict[str, Any] | None:
    """The row of a commit in a known layout, None for any other record."""
    try:
        if INT16.unpack_from(key)[0] not in _COMMIT_TYPES:
            return None
        group, at = _string(key, COMMIT_GROUP_POSITION)
        topic, at = _string(key, at)
        (partition,) = INT32.unpack_from(key, at)
        if at + INT32.size != len(key):
            return None
        row: dict[str, Any] = {
            "type": TYPE_NAMES[1],
            "deleted": value is None,
            "group": group,
            "topic": topic,
            "partition": partition,
        }
        if value is not None:
            (version,) = INT16.unpack_from(value)
            before, after = _RUNS[version]
            _, offset, *leader_epoch, _ = before.struct.unpack_from(value)
            metadata, at = _string(value, before.at("metadata"))
            times = after.struct.unpack_from(value, at)
            if at + after.size_bytes != len(value):
                return None
            row["offset"] = offset
            row["leaderEpoch"] = leader_epoch[0] if leader_epoch else None
            row["metadata"] = metadata
            row["commitTimestamp"] = micros(times[0])
            row["expireTimestamp"] = micros(times[1]) if version == 1 else None
    except (struct.error, KeyError, UnicodeDecodeError, FormatError):
        return None
    return row


def _string(data: bytes, at: int) -> tuple[str, int]:
    (size,) = INT16.unpack_from(data, at)
    end = at + 2 + size
    if size < 0 or end > len(data):
        raise FormatError("a string does not fit")
    return data[at + 2 : end].decode("utf-8"), end
