"""Avro values become typed columns as Spark types them; a value that is cut or not of the schema is bad."""

from __future__ import annotations

import datetime
import io
import json
import uuid
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from klog.export.decoders.avro import AvroDecoder
from klog.formats.errors import UsageError

INNER = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]}
EVERYTHING = {
    "type": "record",
    "name": "Everything",
    "namespace": "n",
    "fields": [
        {"name": "boolean", "type": "boolean"},
        {"name": "long", "type": "long"},
        {"name": "float", "type": "float"},
        {"name": "bytes", "type": "bytes"},
        {"name": "maybe", "type": ["null", "string"]},
        {"name": "enum", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "fixed", "type": {"type": "fixed", "name": "F", "size": 2}},
        {"name": "list", "type": {"type": "array", "items": INNER}},
        {"name": "map", "type": {"type": "map", "values": ["null", "Inner"]}},
        {"name": "number", "type": ["int", "long"]},
        {"name": "either", "type": ["null", "string", "Inner"]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "time", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    ],
}
VALUE = {
    "boolean": True,
    "long": -(2**63),
    "float": 1.5,
    "bytes": b"\xff\x00",
    "maybe": None,
    "enum": "B",
    "fixed": b"ab",
    "list": [{"x": 1}, {"x": 2}],
    "map": {"k": {"x": 3}, "none": None},
    "number": 2**40,
    "either": {"x": 9},
    "day": datetime.date(1969, 12, 31),
    "time": datetime.datetime(2024, 1, 1, 0, 0, 0, 5000, tzinfo=datetime.UTC),
    "local": datetime.datetime(2024, 1, 1, 0, 0, 0, 5),
    "id": uuid.UUID(int=7),
    "price": Decimal("-12.34"),
}


def encoded(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def decode(schema: Any, *values: bytes | None) -> tuple[list[Any], dict[int, str]]:
    decoder = AvroDecoder(json.dumps(schema))
    found = decoder.decode(pa.array(values, pa.binary()))
    found.values.validate(full=True)
    assert found.values.type == decoder.kind
    return found.values.to_pylist(), found.errors


def test_values_of_every_type_come_out_as_spark_types_them() -> None:
    (row, nothing), errors = decode(EVERYTHING, encoded(EVERYTHING, VALUE), None)
    assert errors == {}
    assert nothing is None
    assert row == VALUE | {
        "map": [("k", {"x": 3}), ("none", None)],
        "either": {"member0": None, "member1": {"x": 9}},
        "id": str(uuid.UUID(int=7)),
    }


def test_a_schema_need_not_be_a_record() -> None:
    assert decode("string", encoded("string", "a")) == (["a"], {})
    assert decode(["null", "long"], encoded(["null", "long"], None)) == ([None], {})


def test_a_value_that_is_not_of_the_schema_is_bad() -> None:
    good = encoded(EVERYTHING, VALUE)
    bad = [good[:-1], good + b"x", b"", b"\xff" * 40, good[: len(good) // 2], b"\x01\x00" + b"\x7f" * 30]
    rows, errors = decode(EVERYTHING, good, *bad, good)
    assert set(errors) == set(range(1, 7))
    assert [row is None for row in rows] == [False, *[True] * 6, False]
    assert "1 bytes are left over" in errors[2]


@pytest.mark.parametrize(
    "schema",
    [
        "{",
        '"nothing"',
        '{"type":"record","name":"R"}',
        '{"type":"record","name":"R","fields":[]}',
        '{"type":"record","name":"R","fields":[{"name":"next","type":["null","R"]}]}',
    ],
)
def test_a_schema_that_is_invalid_or_contains_itself_is_an_error(schema: str) -> None:
    with pytest.raises(UsageError, match="Avro schema"):
        AvroDecoder(schema)
