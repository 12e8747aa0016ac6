"""The throttle time gets into every response that has the field, and changes nothing else of it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from klog.protocol.apis import SERVED, ApiKey
from klog.protocol.entity_fields import entity_fields
from klog.protocol.fetch_response import (
    FetchResponse,
    PartitionFetched,
    TopicFetched,
    decode_fetch_response,
    encode_fetch_response,
)
from klog.protocol.file_slice import FileSlice
from klog.protocol.leader_hints import NodeEndpoint
from klog.protocol.messages import build, encode_response, response_class
from klog.protocol.produce_response import (
    PartitionProduced,
    ProduceResponse,
    decode_produce_response,
    encode_produce_response,
)
from klog.protocol.throttle_time import throttle_time_field, with_throttle_time

BY_HAND = (ApiKey.PRODUCE, ApiKey.FETCH)
ENTITIES = [
    (api.key, version)
    for api in SERVED.values()
    for version in range(api.min_version, api.max_version + 1)
    if api.key not in BY_HAND
]
THROTTLE_MS = 1234


def response_of(api_key: int, version: int, **values):
    """A response with the defaults of all fields but some."""
    kind = response_class(api_key, version)
    defaults = {field.name: field.default for field in entity_fields(kind)}
    return build(kind, **(defaults | values))


@pytest.mark.parametrize(("api_key", "version"), ENTITIES)
def test_a_response_that_has_the_field_gets_it(api_key: ApiKey, version: int) -> None:
    before = response_of(api_key, version)
    body = encode_response(before)
    (after,) = with_throttle_time(api_key, version, [body], THROTTLE_MS)
    if hasattr(before, "throttle_time"):
        expected = response_of(api_key, version, throttle_time=timedelta(milliseconds=THROTTLE_MS))
        assert bytes(after) == encode_response(expected)
    else:
        assert after == body


def test_most_versions_have_the_field() -> None:
    with_field = [each for each in ENTITIES if throttle_time_field(*each) is not None]
    assert len(with_field) > len(ENTITIES) / 2


@pytest.mark.parametrize("version", range(12))
def test_an_answer_to_produce_gets_it(version: int) -> None:
    nodes = (NodeEndpoint(1, "host", 9092, None),) if version >= 10 else ()
    before = ProduceResponse([("t", [PartitionProduced(3, 0, 5)])], 0, nodes)
    body = [encode_produce_response(version, before)]
    after = with_throttle_time(ApiKey.PRODUCE, version, body, THROTTLE_MS)
    expected = decode_produce_response(version, body[0])
    if version:
        expected = expected._replace(throttle_time_ms=THROTTLE_MS)
    assert decode_produce_response(version, after[0]) == expected


@pytest.mark.parametrize("version", range(4, 18))
def test_an_answer_to_fetch_gets_it_and_keeps_its_slices(version: int, tmp_path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"records")
    with path.open("rb") as file:
        part = FileSlice(file, 0, 7)
        partition = PartitionFetched(3, 0, 9, 9, 0, records=part)
        topic = TopicFetched("t" if version < 13 else None, None, [partition])
        body = encode_fetch_response(version, FetchResponse([topic]))
        after = with_throttle_time(ApiKey.FETCH, version, body, THROTTLE_MS)
    assert after[1:] == body[1:]
    assert part in after

    def whole(parts) -> bytes:
        return b"".join(b"records" if each is part else bytes(each) for each in parts)

    expected = decode_fetch_response(version, whole(body))._replace(throttle_time_ms=THROTTLE_MS)
    assert decode_fetch_response(version, whole(after)) == expected


def test_versions_that_are_not_served_are_left_alone() -> None:
    assert with_throttle_time(ApiKey.API_VERSIONS, 99, [b"\0#\0\0\0\0"], THROTTLE_MS) == [b"\0#\0\0\0\0"]
    assert with_throttle_time(999, 0, [b"body"], THROTTLE_MS) == [b"body"]


def test_an_answer_without_a_body_stays_so() -> None:
    assert with_throttle_time(ApiKey.METADATA, 9, [], THROTTLE_MS) == []
