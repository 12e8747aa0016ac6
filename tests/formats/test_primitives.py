"""Kafka's wire types: known encodings, and no allocation for bytes that do not exist."""

from __future__ import annotations

import construct as c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.formats import binary
from klog.formats import primitives as p
from klog.formats import structures as s
from klog.formats.errors import FormatError


@pytest.mark.parametrize(
    ("wire_type", "value", "encoded"),
    [
        (p.VarInt, 0, "00"),
        (p.VarInt, -1, "01"),
        (p.VarInt, 1, "02"),
        (p.VarInt, -64, "7f"),
        (p.VarInt, 64, "8001"),
        (p.VarInt, 2**31 - 1, "feffffff0f"),
        (p.VarInt, -(2**31), "ffffffff0f"),
        (p.VarLong, -(2**63), "ffffffffffffffffff01"),
        (p.VarLong, 2**63 - 1, "feffffffffffffffff01"),
        (p.UVarInt, 300, "ac02"),
        (p.UVarInt, 2**32 - 1, "ffffffff0f"),
        (p.SizedBytes(p.VarInt, null=True), None, "01"),
        (p.SizedBytes(p.VarInt, null=True), b"", "00"),
        (p.SizedBytes(c.Int32sb, null=True), None, "ffffffff"),
        (p.SizedString(c.Int16sb), "é", "0002c3a9"),
        (p.SizedString(p.CompactLength, null=True), None, "00"),
        (p.SizedString(p.CompactLength, null=True), "", "01"),
        (p.SizedArray(p.CompactLength, c.Int32sb), [7], "0200000007"),
        (p.SizedArray(c.Int32sb, c.Int8sb, null=True), None, "ffffffff"),
        (p.UuidField(), "AAAAAAAAAAEAAAAAAAAAAg", "00000000000000010000000000000002"),
        (p.BoolField(), True, "01"),
        (s.NullableStruct(c.Struct("a" / c.Int8sb)), None, "ff"),
    ],
)
def test_known_encodings(wire_type: c.Construct, value: object, encoded: str) -> None:
    assert binary.build(wire_type, value, "it").hex() == encoded
    assert binary.parse_all(wire_type, bytes.fromhex(encoded), "it") == value


@pytest.mark.parametrize(
    ("wire_type", "encoded", "complaint"),
    [
        (p.VarInt, "8000", "needless"),
        (p.VarInt, "ffffffff1f", "32 bits"),
        (p.VarInt, "ffffffffff0f", "32 bits"),
        (p.VarLong, "ffffffffffffffffff03", "64 bits"),
        (p.VarInt, "80", "only 0 are left"),
        (p.SizedBytes(p.VarInt), "01", "length -1"),
        (p.SizedBytes(c.Int32sb, null=True), "fffffffe", "length -2"),
        (p.SizedBytes(c.Int32sb), "7fffffff00", "only 1 are left"),
        (p.SizedArray(c.Int32sb, c.Int64sb), "7fffffff00", "only 1 bytes are left"),
        (s.TaggedFields({}), "ffffffff0f00", "only 1 bytes are left"),
        (s.TaggedFields({}), "0201000000", "tag 0 after tag 1"),
        (s.Sized(c.Int8sb, c.Int8sb), "020000", "left over"),
        (p.BoolField(), "02", "bool of 2"),
        (s.NullableStruct(c.Struct()), "00", "null mark 0"),
    ],
)
def test_encodings_that_kafka_does_not_write_are_refused(
    wire_type: c.Construct, encoded: str, complaint: str
) -> None:
    with pytest.raises(FormatError, match=complaint):
        binary.parse_all(wire_type, bytes.fromhex(encoded), "it")


@given(st.integers(-(2**63), 2**63 - 1))
def test_varlongs_take_as_few_bytes_as_their_bits_need(value: int) -> None:
    encoded = binary.build(p.VarLong, value, "it")
    zigzag = 2 * value if value >= 0 else -2 * value - 1
    assert len(encoded) == max(1, -(-zigzag.bit_length() // 7))
    assert binary.parse_all(p.VarLong, encoded, "it") == value


@given(st.binary(max_size=30))
def test_text_that_is_not_utf8_is_kept(raw: bytes) -> None:
    field = p.SizedString(c.Int16sb)
    data = len(raw).to_bytes(2, "big") + raw
    assert binary.build(field, binary.parse_all(field, data, "it"), "it") == data


def test_an_error_names_the_field_and_the_position_in_the_file() -> None:
    inner = c.Struct("count" / c.Int8sb, "name" / p.SizedString(c.Int16sb) * "documented")
    outer = c.Struct("head" / c.Int32sb, "inner" / s.Sized(c.Int8sb, inner))
    with pytest.raises(FormatError) as caught:
        binary.parse_all(outer, bytes.fromhex("00000000 04 01 0009 61"), "thing", position_bytes=100)
    assert caught.value.position_bytes == 108
    assert caught.value.what == "thing: field inner.name: length of 9 bytes, but only 1 are left"
    assert caught.value.cure


def test_a_value_that_does_not_fit_its_field_is_refused() -> None:
    for wire_type, value in (
        (c.Int8sb, 1000),
        (p.VarInt, 2**31),
        (p.SizedString(c.Int16sb), 5),
        (p.UuidField(), "x"),
    ):
        with pytest.raises(FormatError, match="cannot be written"):
            binary.build(wire_type, value, "it")
    with pytest.raises(FormatError, match="cannot be written"):
        binary.build(c.Struct("a" / c.Int8sb), {}, "it")
