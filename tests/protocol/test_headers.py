"""Request and response headers."""

from __future__ import annotations

import io
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as HeaderV1
from kio.schema.request_header.v2.header import RequestHeader as HeaderV2
from kio.serial import entity_writer

from klog.protocol.apis import SERVED, ApiKey
from klog.protocol.errors import MalformedMessageError, UnsupportedApiError
from klog.protocol.messages import (
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from tests.protocol.entities import TEXT

SERVED_VERSIONS = [
    (api.key, version) for api in SERVED.values() for version in range(api.min_version, api.max_version + 1)
]


@given(
    case=st.sampled_from(SERVED_VERSIONS),
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    client_id=st.none() | TEXT,
)
def test_a_request_header_is_that_of_its_version(case, correlation_id, client_id):
    api_key, version = case
    header_type = HeaderV2 if SERVED[api_key].flexible(version) else HeaderV1
    out = io.BytesIO()
    entity_writer(header_type)(
        out,
        header_type(
            request_api_key=api_key,
            request_api_version=version,
            correlation_id=correlation_id,
            client_id=client_id,
        ),
    )
    assert encode_request_header(api_key, version, correlation_id, client_id) == out.getvalue()
    header = decode_request_header(out.getvalue() + b"body")
    assert header == (api_key, version, correlation_id, client_id, len(out.getvalue()))


@given(case=st.sampled_from(SERVED_VERSIONS), correlation_id=st.integers(-(2**31), 2**31 - 1))
def test_a_response_header_round_trips(case, correlation_id):
    raw = encode_response_header(*case, correlation_id)
    assert decode_response_header(*case, raw) == (correlation_id, len(raw))


def test_only_the_response_header_of_api_versions_is_never_flexible():
    assert len(encode_response_header(ApiKey.API_VERSIONS, 4, 1)) == 4
    assert len(encode_response_header(ApiKey.METADATA, 12, 1)) == 5
    assert len(encode_response_header(ApiKey.METADATA, 8, 1)) == 4


def test_the_client_id_stays_a_classic_string_in_flexible_headers():
    raw = encode_request_header(ApiKey.METADATA, 12, 5, "me")
    assert raw == b"\x00\x03\x00\x0c\x00\x00\x00\x05" + b"\x00\x02me" + b"\x00"


def test_tagged_fields_of_a_header_are_skipped():
    raw = b"\x00\x03\x00\x0c\x00\x00\x00\x05" + b"\xff\xff" + b"\x01\x09\x02zz" + b"body"
    assert decode_request_header(raw).body_position_bytes == len(raw) - 4


@pytest.mark.parametrize(
    ("api_key", "version"), [(99, 0), (4, 3), (1, 18), (0, 12), (8, 10), (52, 0), (-1, 0), (3, -1)]
)
def test_an_api_that_is_not_announced_is_refused(api_key, version):
    raw = struct.pack(">hhih", api_key, version, 1, -1)
    with pytest.raises(UnsupportedApiError):
        decode_request_header(raw)


def test_api_versions_of_any_version_has_a_readable_header():
    raw = b"\x00\x12\x00\x63\x00\x00\x00\x07" + b"\x00\x02me" + b"\x00"
    assert decode_request_header(raw)[:4] == (18, 99, 7, "me")


@given(raw=st.binary(max_size=40))
def test_random_bytes_are_a_header_or_refused(raw):
    with suppress(MalformedMessageError, UnsupportedApiError):
        assert decode_request_header(raw).body_position_bytes <= len(raw)
