"""Strategies for entities of any class, by the types in kio's annotations and metadata."""

from __future__ import annotations

import datetime
from functools import cache
from typing import Any

from hypothesis import strategies as st

from klog.protocol.entity_fields import EntityField, entity_fields
from klog.protocol.error_codes import ErrorCode

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def _integers(bits: int, *, signed: bool = True) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) if signed else st.integers(0, (1 << bits) - 1)


def _milliseconds(bits: int) -> st.SearchStrategy[datetime.timedelta]:
    return _integers(bits).map(lambda value: datetime.timedelta(milliseconds=value))


TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": _integers(8),
    "int16": _integers(16),
    "int32": _integers(32),
    "int64": _integers(64),
    "uint16": _integers(16, signed=False),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "string": TEXT,
    "bytes": st.binary(max_size=20),
    "records": st.none() | st.binary(max_size=20),
    "uuid": st.none() | st.uuids().filter(lambda value: value.int != 0),
    "error_code": st.sampled_from(ErrorCode),
    "timedelta_i32": _milliseconds(32),
    "timedelta_i64": _milliseconds(40),
    "datetime_i64": st.integers(0, 1 << 42).map(lambda value: EPOCH + datetime.timedelta(milliseconds=value)),
}


def _field_values(field: EntityField) -> st.SearchStrategy[Any]:
    value = entities(field.struct) if field.struct else VALUES[str(field.kafka_type)]
    if field.array:
        value = st.lists(value, max_size=3).map(tuple)
    # A tagged field is never null on the wire, because its absence means null.
    return st.none() | value if field.nullable and field.tag is None else value


@cache
def entities(entity_type: type) -> st.SearchStrategy[Any]:
    """Entities of a class, every field set."""
    fields = {field.name: _field_values(field) for field in entity_fields(entity_type)}
    return st.builds(entity_type, **fields)
