"""Keys and values are decoded, and no record is lost by it: bad ones have the reason."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pytest

from klog.export.decoders.choose import resolve_decoding
from klog.export.decoders.decoding import RAW, Decoding, Encoding, RequestedDecoding
from klog.export.decoders.registered import message_path
from klog.export.deserialise import BadRecords, Deserialiser
from klog.formats.errors import KlogError, UsageError
from tests.export.decoders.test_avro import encoded
from tests.export.decoders.test_protobuf import DESCRIPTORS, message

STRING = Decoding(Encoding.STRING)
JSON = Decoding(Encoding.JSON, "id BIGINT")


def batch_of(*pairs: tuple[bytes | None, bytes | None]) -> pa.RecordBatch:
    keys, values = zip(*pairs, strict=True)
    columns = {"key": keys, "value": values, "offset": range(len(pairs))}
    types = {"key": pa.binary(), "value": pa.binary(), "offset": pa.int64()}
    return pa.record_batch({name: pa.array(columns[name], kind) for name, kind in types.items()})


MIXED = batch_of((b"a", b'{"id":1}'), (b"\xff", b'{"id":2}'), (b"c", b"no"), (None, None), (b"\xfe", b"["))


def test_bad_records_stay_with_their_bytes_in_the_error_column() -> None:
    stage = Deserialiser(STRING, JSON)
    good, rejected = stage.apply(MIXED)
    assert rejected is None
    assert good.schema == stage.schema(MIXED.schema)
    rows = good.to_pylist()
    assert [(row["key"], row["value"], row["offset"]) for row in rows] == [
        ("a", {"id": 1}, 0),
        (None, {"id": 2}, 1),
        ("c", None, 2),
        (None, None, 3),
        (None, None, 4),
    ]
    errors = [row["_error"] for row in rows]
    assert errors[0] is errors[3] is None
    assert [(error["key"], error["value"]) for error in (errors[1], errors[2], errors[4])] == [
        (b"\xff", None),
        (None, b"no"),
        (b"\xfe", b"["),
    ]
    assert errors[1]["reason"] == "key: not UTF-8: invalid start byte at byte 0"
    assert errors[4]["reason"].startswith("key: not UTF-8")
    assert "; value: not JSON" in errors[4]["reason"]


def test_rejected_records_are_as_they_were_read_with_the_reason() -> None:
    stage = Deserialiser(STRING, JSON, BadRecords.REJECT)
    good, rejected = stage.apply(MIXED)
    assert rejected is not None
    assert good.schema == stage.schema(MIXED.schema)
    assert rejected.schema == stage.rejects_schema(MIXED.schema)
    assert good.column("offset").to_pylist() == [0, 3]
    assert rejected.select(["key", "value", "offset"]).to_pylist() == MIXED.take([1, 2, 4]).to_pylist()
    assert all(rejected.column("_error").to_pylist())


def test_a_good_batch_has_no_rejects_and_no_errors() -> None:
    sound = batch_of((b"a", b'{"id":1}'), (None, None))
    for bad_records in BadRecords:
        good, rejected = Deserialiser(STRING, JSON, bad_records).apply(sound)
        assert rejected is None
        assert good.num_rows == 2
    assert Deserialiser(STRING, JSON).apply(sound)[0].column("_error").null_count == 2


def test_raw_columns_pass_through_untouched() -> None:
    stage = Deserialiser()
    assert stage.decodes_nothing
    assert stage.schema(MIXED.schema) == MIXED.schema
    assert stage.apply(MIXED) == (MIXED, None)


def test_a_column_that_is_not_read_is_not_decoded() -> None:
    offsets = MIXED.select(["offset"])
    good, _ = Deserialiser(STRING, JSON, BadRecords.REJECT).apply(offsets)
    assert good == offsets


# What a user asks for


def no_samples() -> list[bytes]:
    raise AssertionError("samples are not needed for this")


def test_nothing_is_read_for_what_needs_no_schema() -> None:
    assert resolve_decoding(RequestedDecoding(), no_samples) == RAW
    assert resolve_decoding(RequestedDecoding(Encoding.STRING), no_samples) == STRING


def test_a_json_schema_is_inferred_given_or_read_of_a_file(tmp_path: Path) -> None:
    assert resolve_decoding(RequestedDecoding(Encoding.JSON), lambda: [b'{"id":1}']) == JSON
    assert resolve_decoding(RequestedDecoding(Encoding.JSON, "id BIGINT"), no_samples) == JSON
    (tmp_path / "a.ddl").write_text("id BIGINT")
    assert resolve_decoding(RequestedDecoding(Encoding.JSON, str(tmp_path / "a.ddl")), no_samples) == JSON
    schema = '{"properties":{"id":{"type":"integer"}}}'
    assert resolve_decoding(RequestedDecoding(Encoding.JSON, schema), no_samples) == JSON


def test_an_empty_topic_is_no_reason_to_fail() -> None:
    assert resolve_decoding(RequestedDecoding(Encoding.JSON), list).schema == "STRING"


@pytest.mark.parametrize(
    ("requested", "why"),
    [
        (RequestedDecoding(Encoding.STRING, "a INT"), "string takes no schema"),
        (RequestedDecoding(Encoding.AVRO), "avro takes a schema"),
        (RequestedDecoding(Encoding.PROTOBUF), "protobuf takes a schema"),
        (RequestedDecoding(Encoding.JSON, "a NOTYPE"), "schema"),
        (RequestedDecoding(Encoding.AVRO, '"notype"'), "Avro schema"),
        (RequestedDecoding(Encoding.AVRO, "/nowhere/a.avsc"), "nowhere"),
        (RequestedDecoding(Encoding.JSON, "a INT", "Message"), "only protobuf has messages"),
    ],
)
def test_an_invalid_request_is_an_error_before_anything_runs(requested: RequestedDecoding, why: str) -> None:
    with pytest.raises(KlogError, match=why):
        resolve_decoding(requested, no_samples)


def test_a_decoding_is_plain_text_to_be_handed_to_other_processes(tmp_path: Path) -> None:
    (tmp_path / "7.avsc").write_text('"long"')
    decoding = resolve_decoding(
        RequestedDecoding(Encoding.AVRO, schema_directory=str(tmp_path)), lambda: [b"\0\0\0\0\x07\x02"]
    )
    assert json.loads(json.dumps(asdict(decoding)))["registered"] == [
        {"schema_id": 7, "kind": "AVRO", "text": '"long"'}
    ]


# Confluent's wire format


def framed(schema_id: int, data: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + data


V1 = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
V2 = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
}
OTHER = {"type": "record", "name": "S", "fields": [{"name": "x", "type": "string"}]}


def values_of(decoding: Decoding, *values: bytes | None) -> tuple[list[object], list[str | None]]:
    batch, _ = Deserialiser(value=decoding).apply(batch_of(*((None, value) for value in values)))
    errors = [error and error["reason"] for error in batch.column("_error").to_pylist()]
    return batch.column("value").to_pylist(), errors


@pytest.fixture
def avro_directory(tmp_path: Path) -> str:
    (tmp_path / "1.avsc").write_text(json.dumps(V1))
    (tmp_path / "20.json").write_text(json.dumps({"schema": json.dumps(V2)}))
    (tmp_path / "300.avsc").write_text(json.dumps(OTHER))
    (tmp_path / "readme.txt").write_text("not a schema")
    return str(tmp_path)


def test_avro_of_old_schemas_is_resolved_to_the_newest_in_use(avro_directory: str) -> None:
    old, new = framed(1, encoded(V1, {"id": 5})), framed(20, encoded(V2, {"id": 2**40, "note": "n"}))
    decoding = resolve_decoding(
        RequestedDecoding(Encoding.AVRO, schema_directory=avro_directory), lambda: [new, old]
    )
    rows, errors = values_of(decoding, old, new, None)
    assert rows == [{"id": 5, "note": None}, {"id": 2**40, "note": "n"}, None]
    assert errors == [None] * 3


def test_what_the_directory_cannot_explain_is_bad(avro_directory: str) -> None:
    good = framed(20, encoded(V2, {"id": 1, "note": None}))
    decoding = resolve_decoding(
        RequestedDecoding(Encoding.AVRO, schema_directory=avro_directory), lambda: [good]
    )
    bad = [b"", b"\0\0", b"\x01" + good[1:], framed(9, b"x"), framed(300, encoded(OTHER, {"x": "y"}))]
    rows, errors = values_of(decoding, good, *bad)
    assert rows[1:] == [None] * 5
    assert [error is None for error in errors] == [True, *[False] * 5]
    assert "names schema 9, which is not in the directory" in str(errors[4])
    assert "does not resolve" in str(errors[5])


def test_a_directory_without_the_schemas_in_use_is_an_error(avro_directory: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="name the schemas 5, 6, none of them is in"):
        resolve_decoding(
            RequestedDecoding(Encoding.AVRO, schema_directory=avro_directory),
            lambda: [framed(6, b""), framed(5, b"")],
        )
    with pytest.raises(UsageError, match="no PROTOBUF schema"):
        resolve_decoding(RequestedDecoding(Encoding.PROTOBUF, schema_directory=avro_directory), no_samples)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no schema in"):
        resolve_decoding(
            RequestedDecoding(Encoding.AVRO, schema_directory=str(tmp_path / "empty")), no_samples
        )


def test_json_after_a_header_is_read_by_its_json_schema(tmp_path: Path) -> None:
    (tmp_path / "3.json").write_text('{"type":"object","properties":{"id":{"type":"integer"}}}')
    value = framed(3, b'{"id":1}')
    decoding = resolve_decoding(
        RequestedDecoding(Encoding.JSON, schema_directory=str(tmp_path)), lambda: [value]
    )
    rows, errors = values_of(decoding, value, None, b'{"id":1}', framed(3, b"x"), *[b"\0\0\0"] * 20)
    assert rows == [{"id": 1}, *[None] * 23]
    assert [error is None for error in errors] == [True, True, *[False] * 22]
    assert "it does not start with a zero byte and a schema id" in str(errors[2])
    assert "not JSON" in str(errors[3])


def test_protobuf_after_a_header_must_be_the_requested_message(tmp_path: Path) -> None:
    (tmp_path / "4.desc").write_bytes(base64.b64decode(DESCRIPTORS))
    event = message("shop.Other")(y=6).SerializeToString()
    other = framed(4, b"\x02\x02" + event)  # a path of one step, to message 1
    decoding = resolve_decoding(
        RequestedDecoding(Encoding.PROTOBUF, message="shop.Other", schema_directory=str(tmp_path)),
        lambda: [other],
    )
    rows, errors = values_of(
        decoding, other, framed(4, b"\0" + event), framed(4, b"\x02\x32"), framed(8, b"\0")
    )
    assert rows == [{"y": 6}, None, None, None]
    assert errors[0] is None
    assert "is a shop.Event, not a shop.Other" in str(errors[1])
    assert "has no message there" in str(errors[2])
    assert "names schema 8" in str(errors[3])


@pytest.mark.parametrize(
    ("data", "path", "start"), [(b"\0rest", [0], 1), (b"\x02\x00", [0], 2), (b"\x04\x02\x06rest", [1, 3], 3)]
)
def test_a_message_path_is_a_count_and_steps(data: bytes, path: list[int], start: int) -> None:
    assert message_path(data) == (path, start)


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("5.json", '{"schema":"x","schemaType":"PROTOBUF"}', "is protobuf source.*protoc"),
        ("5.json", '{"schema":"x","references":[{"name":"y"}]}', "refers to others"),
        ("5.avsc", "{", "is not JSON"),
    ],
)
def test_an_invalid_schema_file_is_an_error(tmp_path: Path, name: str, content: str, why: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UsageError, match=why):
        resolve_decoding(RequestedDecoding(Encoding.AVRO, schema_directory=str(tmp_path)), no_samples)
