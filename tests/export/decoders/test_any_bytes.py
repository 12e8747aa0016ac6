"""No bytes stop a decoder: each value is decoded or reported as bad, and rows keep their order."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.export.decoders.choose import decoder_of
from klog.export.decoders.decoding import Decoding, Encoding
from klog.export.decoders.wire import RegisteredSchema
from tests.export.decoders.test_avro import EVERYTHING, VALUE, encoded
from tests.export.decoders.test_protobuf import DESCRIPTORS, message

AVRO = json.dumps(EVERYTHING)
JSON = "a STRUCT<b: ARRAY<BIGINT>>, c STRING, t TIMESTAMP, x DECIMAL(10, 2)"
REGISTERED = tuple(
    RegisteredSchema(1, kind, text)
    for kind, text in (("AVRO", AVRO), ("PROTOBUF", DESCRIPTORS), ("JSON", "{}"))
)
DECODINGS = {
    "string": Decoding(Encoding.STRING),
    "json": Decoding(Encoding.JSON, JSON),
    "json with dates": Decoding(Encoding.JSON, f"{JSON}, d DATE, m MAP<STRING, INT>"),
    "avro": Decoding(Encoding.AVRO, AVRO),
    "protobuf": Decoding(Encoding.PROTOBUF, DESCRIPTORS, "shop.Event"),
    "registered json": Decoding(Encoding.JSON, JSON, framed=True),
    "registered avro": Decoding(Encoding.AVRO, AVRO, framed=True, registered=REGISTERED[:1]),
    "registered protobuf": Decoding(Encoding.PROTOBUF, DESCRIPTORS, framed=True, registered=REGISTERED[1:2]),
}
SOUND = [
    encoded(EVERYTHING, VALUE),
    message("shop.Event")(id=5, name="x", big=3).SerializeToString(),
    b'{"a":{"b":[1,2]},"c":"x","d":"2024-01-01","t":"2024-01-01T00:00:00Z","x":1.25,"m":{"k":1}}',
    b"",
]


@st.composite
def values(draw: st.DrawFn) -> bytes | None:
    """Sound data of one encoding or another, with or without a header, whole or changed."""
    data = bytearray(draw(st.sampled_from((b"", b"\0\0\0\0\x01", b"\0\0\0\0\x01\0"))))
    data += draw(st.sampled_from(SOUND))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 5))] = draw(st.binary(max_size=5) | st.just(b'"') | st.just(b"}"))
    return draw(st.sampled_from((bytes(data), bytes(data), bytes(data), None)))


@pytest.mark.parametrize("decoding", DECODINGS.values(), ids=DECODINGS.keys())
@given(st.lists(values(), max_size=40), st.integers(0, 3))
def test_every_value_is_decoded_or_reported_as_bad(
    decoding: Decoding, found: list[bytes | None], sliced: int
) -> None:
    decoder = decoder_of(decoding)
    assert decoder is not None
    column = pa.array([b"before"] * sliced + found, pa.binary()).slice(sliced)
    result = decoder.decode(column)
    result.values.validate(full=True)
    assert result.values.type == decoder.kind
    assert len(result.values) == len(found)
    assert all(result.errors.values())
    for row, value in enumerate(found):
        if value is None or row in result.errors:
            assert not result.values[row].is_valid
            assert value is not None or row not in result.errors
