"""Hypothesis strategies of what peers send and store: control requests and znodes of any content."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from klog.protocol.entity_fields import EntityField, entity_fields
from klog.protocol.interbroker.leader_and_isr import LeaderAndIsrRequest
from klog.protocol.interbroker.stop_replica import StopReplicaRequest
from klog.protocol.interbroker.update_metadata import UpdateMetadataRequest
from klog.protocol.messages import encode_request

KNOWN_TOPIC = "orders"
KNOWN_ID = UUID(int=7)
_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_NAMES = (
    *(KNOWN_TOPIC,) * 4,
    "another",
    "",
    ".",
    "..",
    "../../outside",
    "/outside",
    "a/b",
    "nul\0",
    "x" * 249,
    "x" * 250,
    "é" * 20_000,
)


def _numbers(kafka_type: str) -> st.SearchStrategy[int]:
    edge = 2 ** (_BITS[kafka_type] - 1)
    usual = st.sampled_from((0, 1, 2, 3, -1, -2))
    return usual | usual | st.sampled_from((edge - 1, -edge, edge - 2, min(99, edge - 1)))


def _values(field: EntityField) -> st.SearchStrategy[Any]:
    if field.struct is not None:
        one: st.SearchStrategy[Any] = entities(field.struct)
    elif field.kafka_type in _BITS:
        one = _numbers(field.kafka_type)
    elif field.kafka_type == "bool":
        one = st.booleans()
    elif field.kafka_type == "uuid":
        one = st.sampled_from((KNOWN_ID, KNOWN_ID, UUID(int=8), None))
    elif field.kafka_type == "string":
        one = st.sampled_from(_NAMES)
    else:
        raise AssertionError(f"no values of {field.kafka_type}")
    if field.array:
        one = st.lists(one, max_size=3).map(tuple)
    return st.none() | one if field.nullable else one


def entities(entity_type: type) -> st.SearchStrategy[Any]:
    """Entities of a class, each field at the edges of its type or usual."""
    return st.builds(entity_type, **{field.name: _values(field) for field in entity_fields(entity_type)})


@st.composite
def control_frames(draw: st.DrawFn) -> tuple[Any, bytes]:
    """A request of a controller and its bytes, which may be cut, extended or changed."""
    kind = draw(st.sampled_from((LeaderAndIsrRequest, UpdateMetadataRequest, StopReplicaRequest)))
    entity = draw(entities(kind))
    data = bytearray(encode_request(entity))
    for _ in range(draw(st.sampled_from((0, 0, 0, 1, 3)))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        if data:
            data[at] = draw(st.sampled_from((0, 1, 0x7F, 0x80, 0xFF)))
    cut = draw(st.sampled_from((None, None, None, -1, len(data) // 2)))
    return entity, bytes(data[:cut])


_TEXTS = st.sampled_from(
    ("", "x", "-1", "1" * 5000, "é", "\ud800", "\0", "²", "--1", "x" * 40_000, "PLAINTEXT")
)
_INTEGERS = st.sampled_from((0, 1, -1, 2**31 - 1, 2**31, -(2**31) - 1, 2**63 - 1, 2**63, 10**400))
_SCALARS = st.none() | st.booleans() | st.sampled_from((0.5, float("nan"), float("inf"))) | _INTEGERS | _TEXTS
_JSON = st.recursive(
    _SCALARS,
    lambda each: st.lists(each, max_size=2) | st.dictionaries(_TEXTS, each, max_size=2),
    max_leaves=4,
)
_NOT_JSON = st.sampled_from(
    (
        b"",
        b"null",
        b"\xff\xfe",
        b'{"version":1,"x":"\xed\xa0\x80"}',
        b"{",
        b"[" * 3000,
        b'{"a":' * 100_000,
        b"9" * 10_000,
        b"\xef\xbb\xbf{}",
        b"\0" * 100,
    )
)


@st.composite
def damaged_znodes(draw: st.DrawFn, valid: bytes) -> bytes:
    """Data that may be in a znode instead of valid data."""
    try:
        value = json.loads(valid)
    except ValueError:
        value = None
    kind = draw(st.integers(0, 4))
    if kind == 0 or value is None:
        return draw(_NOT_JSON | st.binary(max_size=20) | _INTEGERS.map(lambda each: str(each).encode()))
    if kind == 1:
        return _encoded(draw(_JSON))
    return _encoded(draw(_changed(value)))


@st.composite
def _changed(draw: st.DrawFn, value: Any) -> Any:
    """A JSON value of which one part is something else, or missing."""
    if isinstance(value, Mapping) and value and draw(st.integers(0, 4)):
        name = draw(st.sampled_from(sorted(value)))
        action = draw(st.integers(0, 5))
        if action == 0:
            return {key: each for key, each in value.items() if key != name}
        if action == 1:
            return {**value, draw(_TEXTS): value[name]}
        return {**value, name: draw(_changed(value[name]))}
    if isinstance(value, list) and value and draw(st.booleans()):
        at = draw(st.integers(0, len(value) - 1))
        return [*value[:at], draw(_changed(value[at])), *value[at + 1 :]]
    return draw(_JSON)


def _encoded(value: Any) -> bytes:
    return json.dumps(value).encode()
