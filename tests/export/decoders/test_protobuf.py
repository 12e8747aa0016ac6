"""Protobuf messages become typed columns; what was not set is null where the format can tell."""

from __future__ import annotations

import base64
import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from klog.export.decoders.protobuf import ProtobufDecoder
from klog.formats.errors import UsageError

FIELD = descriptor_pb2.FieldDescriptorProto


def field(
    name: str, number: int, kind: int, label: int = FIELD.LABEL_OPTIONAL, type_name: str | None = None
) -> Any:
    return FIELD(name=name, number=number, type=kind, label=label, type_name=type_name)


def file_set() -> descriptor_pb2.FileDescriptorSet:
    """What protoc makes of a proto3 file with the messages Event, with a nested Kind and Inner, and Other."""
    file = descriptor_pb2.FileDescriptorProto(
        name="event.proto", package="shop", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    event = file.message_type.add(name="Event")
    inner = event.nested_type.add(name="Inner")
    inner.field.append(field("x", 1, FIELD.TYPE_INT32))
    kind = event.enum_type.add(name="Kind")
    kind.value.add(name="UNKNOWN", number=0)
    kind.value.add(name="SALE", number=1)
    entry = event.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.append(field("key", 1, FIELD.TYPE_STRING))
    entry.field.append(field("value", 2, FIELD.TYPE_MESSAGE, type_name=".shop.Event.Inner"))
    event.field.extend(
        [
            field("id", 1, FIELD.TYPE_INT64),
            field("name", 2, FIELD.TYPE_STRING),
            field("kind", 3, FIELD.TYPE_ENUM, type_name=".shop.Event.Kind"),
            field("inner", 4, FIELD.TYPE_MESSAGE, type_name=".shop.Event.Inner"),
            field("inners", 5, FIELD.TYPE_MESSAGE, FIELD.LABEL_REPEATED, ".shop.Event.Inner"),
            field("counts", 6, FIELD.TYPE_MESSAGE, FIELD.LABEL_REPEATED, ".shop.Event.CountsEntry"),
            field("raw", 7, FIELD.TYPE_BYTES),
            field("big", 8, FIELD.TYPE_UINT64),
            field("medium", 9, FIELD.TYPE_UINT32),
            field("at", 10, FIELD.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp"),
            field("flags", 11, FIELD.TYPE_BOOL, FIELD.LABEL_REPEATED),
            field("ratio", 12, FIELD.TYPE_DOUBLE),
            field("nothing", 13, FIELD.TYPE_MESSAGE, type_name=".shop.Empty"),
        ]
    )
    other = file.message_type.add(name="Other")
    other.field.append(field("y", 1, FIELD.TYPE_INT32))
    file.message_type.add(name="Empty")
    recursive = file.message_type.add(name="Recursive")
    recursive.field.append(field("next", 1, FIELD.TYPE_MESSAGE, type_name=".shop.Recursive"))
    timestamps = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(timestamps)
    return descriptor_pb2.FileDescriptorSet(file=[timestamps, file])


DESCRIPTORS = base64.b64encode(file_set().SerializeToString()).decode()


def message(name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in file_set().file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def decode(name: str, *values: bytes | None) -> tuple[list[Any], dict[int, str]]:
    decoder = ProtobufDecoder(DESCRIPTORS, name)
    found = decoder.decode(pa.array(values, pa.binary()))
    found.values.validate(full=True)
    assert found.values.type == decoder.kind
    return found.values.to_pylist(), found.errors


def test_fields_of_every_type_come_out() -> None:
    event = message("shop.Event")(
        id=-5, name="ä", kind=1, raw=b"\xff", big=2**64 - 1, medium=2**32 - 1, flags=[True, False], ratio=0.5
    )
    event.inner.x = 3
    event.inners.add(x=4)
    event.counts["k"].x = 6
    event.at.FromDatetime(datetime.datetime(2024, 1, 1, 0, 0, 0, 7))
    (row, nothing), errors = decode("shop.Event", event.SerializeToString(), None)
    assert errors == {}
    assert nothing is None
    assert row == {
        "id": -5,
        "name": "ä",
        "kind": "SALE",
        "inner": {"x": 3},
        "inners": [{"x": 4}],
        "counts": [("k", {"x": 6})],
        "raw": b"\xff",
        "big": Decimal(2**64 - 1),
        "medium": 2**32 - 1,
        "at": datetime.datetime(2024, 1, 1, 0, 0, 0, 7, tzinfo=datetime.UTC),
        "flags": [True, False],
        "ratio": 0.5,
    }


def test_a_field_that_was_not_set_is_null_if_it_has_presence_and_else_the_default() -> None:
    (row,), _ = decode("shop.Event", b"")
    assert (row["id"], row["name"], row["kind"], row["inners"]) == (0, "", "UNKNOWN", [])
    assert row["inner"] is row["at"] is None


def test_an_enum_number_without_a_name_keeps_its_number() -> None:
    (row,), _ = decode("shop.Event", b"\x18\x09")
    assert row["kind"] == "9"


def test_an_empty_name_means_the_first_message() -> None:
    assert decode("", b"\x08\x01") == decode("shop.Event", b"\x08\x01")


def test_bytes_that_are_no_message_are_bad() -> None:
    rows, errors = decode("shop.Event", b"\x08\x01", b"\x08", b"\xff\xff", b"\x12\x01\xff")
    assert rows[1:] == [None, None, None]
    assert set(errors) == {1, 2, 3}


@pytest.mark.parametrize(
    ("descriptors", "name", "why"),
    [
        (DESCRIPTORS, "shop.Nothing", "no protobuf message 'shop.Nothing'.*shop.Event"),
        (DESCRIPTORS, "shop.Recursive", "contains itself"),
        (DESCRIPTORS, "shop.Empty", "has no fields"),
        ("no base64", "", "cannot be read"),
        (base64.b64encode(b"\xff\xff").decode(), "", "cannot be read"),
        ("", "", "hold no message"),
    ],
)
def test_invalid_descriptors_are_an_error(descriptors: str, name: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        ProtobufDecoder(descriptors, name)
