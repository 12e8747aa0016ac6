"""JSON values become typed columns: the fast way for a whole column and the slow one for a value agree."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.export.decoders.decoder import DecodeError, decode_each
from klog.export.decoders.json import JsonDecoder
from klog.export.decoders.json_schemas import from_json_schema, infer
from klog.export.decoders.types_ddl import parse_type, type_text
from klog.formats.errors import UsageError

SIMPLE = "id BIGINT, name STRING"


def decode(ddl: str, *values: bytes | None) -> tuple[list[Any], dict[int, str]]:
    decoder = JsonDecoder(parse_type(ddl))
    found = decoder.decode(pa.array(values, pa.binary()))
    found.values.validate(full=True)
    assert found.values.type == decoder.kind
    return found.values.to_pylist(), found.errors


def test_fields_are_taken_by_name_and_what_is_not_there_is_null() -> None:
    rows, errors = decode(
        SIMPLE, b'{"name":"a","id":1,"other":[1]}', None, b"{}", b" null\n", b'{\n"id" :\t2}'
    )
    assert rows == [
        {"id": 1, "name": "a"},
        None,
        {"id": None, "name": None},
        None,
        {"id": 2, "name": None},
    ]
    assert errors == {}


NOT_ONE_VALUE = [
    b"",
    b" ",
    b'{"id":1',
    b'"id":1}',
    b'{"id":1}{"id":2}',
    b'{"id":1},{"id":2}',
    b'{"id":1}]} {"v":[{"id":2}',
    b"]",
    b'{"id":1}\n{"id":2}',
    b"nul",
    b"\xff\xfe",
    b'{"name":"\xff"}',
    b'{"name":"a',
    b"[" * 100_000,
]


@pytest.mark.parametrize("bad", NOT_ONE_VALUE, ids=lambda value: repr(value[:20]))
def test_anything_but_one_json_value_is_bad_and_affects_no_other_value(bad: bytes) -> None:
    good = b'{"id":7,"name":"g"}'
    rows, errors = decode(SIMPLE, good, bad, good, *[good] * 3000, bad)
    assert set(errors) == {1, 3003}
    assert rows[1] is rows[3003] is None
    assert [row for row in rows if row is not None] == [{"id": 7, "name": "g"}] * 3002


@pytest.mark.parametrize(
    ("ddl", "value", "why"),
    [
        (SIMPLE, b"[1]", "value is not struct"),
        (SIMPLE, b'{"id":"x"}', 'value.id is not int64 but "x"'),
        (SIMPLE, b'{"id":1.5}', "value.id is not int64 but 1.5"),
        (SIMPLE, b'{"id":true}', "value.id is not int64 but true"),
        ("id BIGINT", b'{"id":9223372036854775808}', "does not fit"),
        ("a ARRAY<STRUCT<b: INT>>", b'{"a":[{"b":1},{"b":[]}]}', r"value.a\[1\].b is not int32"),
        ("d DATE", b'{"d":"2024-13-01"}', "value.d is not date32"),
        ("d DECIMAL(3, 1)", b'{"d":1234.5}', "does not fit|value.d is no"),
        ("t TIMESTAMP", b'{"t":"yesterday"}', "value.t is not timestamp"),
    ],
)
def test_a_value_of_another_type_is_bad_and_the_reason_names_the_place(
    ddl: str, value: bytes, why: str
) -> None:
    rows, errors = decode(ddl, value)
    assert rows == [None]
    with pytest.raises(DecodeError, match=why):
        raise DecodeError(errors[0])


def test_a_value_that_is_no_text_becomes_its_json_text_in_a_string_column() -> None:
    rows, errors = decode("name STRING", b'{"name":5}', b'{"name":{"a":[1,"\xc3\xa4"]}}', b'{"name":"x"}')
    assert [row["name"] for row in rows] == ["5", '{"a": [1, "ä"]}', "x"]
    assert errors == {}


def test_dates_times_decimals_and_maps_are_read() -> None:
    ddl = "d DATE, t TIMESTAMP, n TIMESTAMP_NTZ, x DECIMAL(30, 10), m MAP<STRING, INT>"
    text = b"""{"d":"2024-02-29","t":"2024-01-01T02:00:00.5+02:00","n":"2024-01-01T02:00:00",
        "x":12345678901234567.0123456789,"m":{"a":1,"b":null}}"""
    (row,), errors = decode(ddl, text)
    assert errors == {}
    assert row == {
        "d": datetime.date(2024, 2, 29),
        "t": datetime.datetime(2024, 1, 1, 0, 0, 0, 500_000, tzinfo=datetime.UTC),
        "n": datetime.datetime(2024, 1, 1, 2),
        "x": Decimal("12345678901234567.0123456789"),
        "m": [("a", 1), ("b", None)],
    }


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
)
JSON_VALUES = st.recursive(
    SCALARS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
TYPES = [
    "a BIGINT, b STRING, c DOUBLE",
    "a STRUCT<b: ARRAY<BIGINT>, c: BOOLEAN>, b DECIMAL(20, 4)",
    "ARRAY<STRING>",
]


@given(st.sampled_from(TYPES), st.lists(JSON_VALUES, max_size=40))
def test_the_fast_way_gives_what_decoding_value_by_value_gives(ddl: str, values: list[Any]) -> None:
    decoder = JsonDecoder(parse_type(ddl))
    texts = pa.array([json.dumps(value).encode() for value in values], pa.binary())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("klog.export.decoders.json._SINGLY", 3)
        found = decoder.decode(texts)
    singly = decode_each(texts, decoder.kind, decoder._one)
    assert found.values.equals(singly.values)
    assert found.errors.keys() == singly.errors.keys()


@given(st.lists(JSON_VALUES, min_size=1, max_size=20))
def test_every_sample_fits_the_type_that_is_inferred_of_them_all(values: list[Any]) -> None:
    samples = [json.dumps(value).encode() for value in values]
    kind = infer(samples)
    assert parse_type(type_text(kind)) == kind
    found = JsonDecoder(kind).decode(pa.array(samples, pa.binary()))
    assert found.errors == {}


@pytest.mark.parametrize(
    ("samples", "ddl"),
    [
        ([b'{"b":1,"a":"x"}', b'{"c":null}'], "a STRING, b BIGINT, c STRING"),
        ([b'{"a":1}', b'{"a":1.5}'], "a DOUBLE"),
        ([b'{"a":1}', b'{"a":99999999999999999999}'], "a DECIMAL(38, 0)"),
        ([b'{"a":1}', b'{"a":"x"}'], "a STRING"),
        ([b'{"a":{"b":1}}', b'{"a":{"c":[{"d":true}, {"e":2}]}}'], None),
        ([b'{"a":{}}', b'{"a":[]}'], "a STRING"),
        ([b'{"a":[]}'], "a ARRAY<STRING>"),
        ([b"1", b"2"], "BIGINT"),
        ([b"no json", b'{"a":true}'], "a BOOLEAN"),
        ([b'{"odd name":1, "`":2}'], "```` BIGINT, `odd name` BIGINT"),
    ],
)
def test_types_are_inferred_as_spark_infers_them(samples: list[bytes], ddl: str | None) -> None:
    nested = "a STRUCT<b: BIGINT, c: ARRAY<STRUCT<d: BOOLEAN, e: BIGINT>>>"
    assert type_text(infer(samples)) == (ddl or nested)


def test_an_object_with_data_for_keys_stays_text() -> None:
    samples = [json.dumps({"by_user": {f"u{number}": 1}}).encode() for number in range(1001)]
    assert type_text(infer(samples)) == "by_user STRING"


def test_nothing_can_be_inferred_of_no_json() -> None:
    with pytest.raises(UsageError, match="no record is JSON"):
        infer([b"x", b""])


@pytest.mark.parametrize(
    ("ddl", "kind"),
    [
        ("a int not null comment 'x', b: array < string >", "a INT, b ARRAY<STRING>"),
        ("STRUCT<a: SHORT, b: BYTE>", "a SMALLINT, b TINYINT"),
        ("map<string, decimal>", "MAP<STRING, DECIMAL(10, 0)>"),
        ("a varchar(10), b char(3), c long, d real", "a STRING, b STRING, c BIGINT, d FLOAT"),
        ("`a b` STRUCT<`x`: DATE>", "`a b` STRUCT<x: DATE>"),
    ],
)
def test_types_are_read_as_spark_reads_them(ddl: str, kind: str) -> None:
    assert type_text(parse_type(ddl)) == kind


@pytest.mark.parametrize(
    "ddl",
    [
        "",
        "a",
        "a INT b INT",
        "a NOTYPE",
        "ARRAY<INT",
        "a INT,",
        "a INT, a STRING",
        "DECIMAL(50)",
        "ARRAY<" * 99,
    ],
)
def test_an_invalid_schema_is_an_error(ddl: str) -> None:
    with pytest.raises(UsageError, match=r"schema|DECIMAL"):
        parse_type(ddl)


def test_a_json_schema_gives_the_type() -> None:
    schema = {
        "$defs": {"money": {"type": "number"}},
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "price": {"$ref": "#/$defs/money"},
            "note": {"type": ["null", "string"]},
            "when": {"type": "string", "format": "date-time"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "extra": {"type": "object", "additionalProperties": {"type": "boolean"}},
            "any": {},
            "maybe": {
                "oneOf": [{"type": "null"}, {"type": "object", "properties": {"x": {"type": "integer"}}}]
            },
            "mixed": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        },
    }
    assert type_text(from_json_schema(json.dumps(schema))) == (
        "id BIGINT, price DOUBLE, note STRING, when TIMESTAMP, tags ARRAY<STRING>, "
        "extra MAP<STRING, BOOLEAN>, any STRING, maybe STRUCT<x: BIGINT>, mixed STRING"
    )


@pytest.mark.parametrize(
    "schema",
    [
        '{"$ref":"#/a","a":{"properties":{"x":{"$ref":"#/a"}}}}',
        '{"properties":{"x":{"$ref":"#/b"}}}',
        '{"properties":{"x":{"$ref":"other.json#/b"}}}',
        "{",
    ],
)
def test_a_json_schema_that_cannot_be_followed_is_an_error(schema: str) -> None:
    with pytest.raises(UsageError, match="JSON Schema"):
        from_json_schema(schema)
