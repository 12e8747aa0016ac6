"""Fetch by hand equals kio's entities in every version; records travel as slices that nothing copies."""

from __future__ import annotations

import datetime
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader

from klog.formats.epochs import EpochEnd
from klog.formats.errors import StorageError
from klog.protocol.apis import SERVED, ApiKey
from klog.protocol.entity_codec import write_entity
from klog.protocol.errors import MalformedMessageError, UnencodableMessageError
from klog.protocol.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    decode_fetch_request,
    encode_fetch_request,
)
from klog.protocol.fetch_response import (
    FetchResponse,
    PartitionFetched,
    TopicFetched,
    decode_fetch_response,
    encode_fetch_response,
)
from klog.protocol.file_slice import FileSlice, LazyBytes
from klog.protocol.leader_hints import LeaderHint
from tests.protocol.entities import TEXT, entities
from tests.protocol.kio_classes import kio_request, kio_response
from tests.protocol.test_produce import HINTS, INT32, INT64, NODES

VERSIONS = range(SERVED[ApiKey.FETCH].min_version, SERVED[ApiKey.FETCH].max_version + 1)
IN_KIO = [version for version in VERSIONS if version >= 4]
INT8 = st.integers(-128, 127)


def _topics(version: int, topic_type: type, partitions: st.SearchStrategy) -> st.SearchStrategy:
    by_id = version >= 13
    name, topic_id = (st.none(), st.uuids()) if by_id else (TEXT, st.none())
    return st.lists(st.builds(topic_type, name, topic_id, st.lists(partitions, max_size=3)), max_size=3)


def _since(version: int, first: int, values: st.SearchStrategy, otherwise: object) -> st.SearchStrategy:
    return values if version >= first else st.just(otherwise)


def requests(version: int) -> st.SearchStrategy:
    partitions = st.builds(
        FetchPartition,
        INT32,
        _since(version, 9, INT32, -1),
        INT64,
        _since(version, 12, INT32, -1),
        _since(version, 5, INT64, -1),
        INT32,
    )
    return st.builds(
        FetchRequest,
        max_wait_ms=INT32,
        min_bytes=INT32,
        max_bytes=_since(version, 3, INT32, 0x7FFFFFFF),
        isolation_level=_since(version, 4, INT8, 0),
        topics=_topics(version, FetchTopic, partitions),
        session_id=_since(version, 7, INT32, 0),
        session_epoch=_since(version, 7, INT32, -1),
        forgotten=_since(version, 7, _topics(version, ForgottenTopic, INT32), []),
        rack_id=_since(version, 11, TEXT, ""),
        replica_id=INT32,
        replica_epoch=_since(version, 15, INT64, -1),
        cluster_id=_since(version, 12, st.none() | TEXT, None),
    )


def responses(version: int) -> st.SearchStrategy:
    partitions = st.builds(
        PartitionFetched,
        partition=INT32,
        error_code=st.sampled_from((0, 1, 6, -1)),
        high_watermark=INT64,
        last_stable_offset=_since(version, 4, INT64, -1),
        log_start_offset=_since(version, 5, INT64, -1),
        aborted_transactions=_since(
            version, 4, st.none() | st.lists(st.tuples(INT64, INT64), max_size=2), None
        ),
        preferred_read_replica=_since(version, 11, INT32, -1),
        records=st.none() | st.binary(max_size=100),
        diverging_epoch=_since(version, 12, st.builds(EpochEnd, INT32, INT64), EpochEnd()),
        current_leader=_since(version, 12, HINTS, LeaderHint()),
    )
    return st.builds(
        FetchResponse,
        topics=_topics(version, TopicFetched, partitions),
        error_code=_since(version, 7, st.sampled_from((0, 70, 71)), 0),
        session_id=_since(version, 7, INT32, 0),
        throttle_time_ms=_since(version, 1, INT32, 0),
        node_endpoints=_since(version, 16, NODES, ()),
    )


@pytest.mark.parametrize("version", IN_KIO)
@settings(max_examples=15)
@given(data=st.data())
def test_a_request_is_written_as_kio_reads_it(version, data):
    request = data.draw(requests(version))
    raw = encode_fetch_request(version, request)
    entity = entity_reader(kio_request("fetch", version))(raw, 0)[0]
    assert write_entity(entity) == raw
    assert entity.max_wait == datetime.timedelta(milliseconds=request.max_wait_ms)
    assert (entity.min_bytes, entity.max_bytes) == (request.min_bytes, request.max_bytes)
    for ours, theirs in zip(request.topics, entity.topics, strict=True):
        if version < 13:
            assert theirs.topic == ours.name
        assert [
            (part.partition, part.fetch_offset, part.partition_max_bytes) for part in theirs.partitions
        ] == [(part.partition, part.fetch_offset, part.max_bytes) for part in ours.partitions]


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=15)
@given(data=st.data())
def test_a_request_round_trips(version, data):
    request = data.draw(requests(version))
    assert decode_fetch_request(version, encode_fetch_request(version, request)) == request


@pytest.mark.parametrize("version", IN_KIO)
@settings(max_examples=15)
@given(data=st.data())
def test_a_request_of_kio_is_read(version, data):
    entity = data.draw(entities(kio_request("fetch", version)))
    request = decode_fetch_request(version, write_entity(entity))
    assert request.isolation_level == entity.isolation_level
    assert getattr(entity, "session_epoch", -1) == request.session_epoch
    assert getattr(entity, "rack_id", "") == request.rack_id
    assert getattr(entity, "cluster_id", None) == request.cluster_id
    replica = entity.replica_state.replica_id if version >= 15 else entity.replica_id
    assert request.replica_id == replica


@pytest.mark.parametrize("version", IN_KIO)
@settings(max_examples=15)
@given(data=st.data())
def test_a_response_is_written_as_kio_reads_it_and_round_trips(version, data):
    response = data.draw(responses(version))
    raw = b"".join(encode_fetch_response(version, response))
    entity, size = entity_reader(kio_response("fetch", version))(raw, 0)
    assert size == len(raw)
    assert write_entity(entity) == raw
    assert decode_fetch_response(version, raw) == response


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=15)
@given(data=st.data())
def test_a_response_round_trips(version, data):
    response = data.draw(responses(version))
    assert decode_fetch_response(version, b"".join(encode_fetch_response(version, response))) == response


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=15)
@given(data=st.data())
def test_a_cut_message_is_malformed(version, data):
    raw = encode_fetch_request(version, data.draw(requests(version)))
    with pytest.raises(MalformedMessageError):
        decode_fetch_request(version, raw[: data.draw(st.integers(0, len(raw) - 1))])
    raw = b"".join(encode_fetch_response(version, data.draw(responses(version))))
    with pytest.raises(MalformedMessageError):
        decode_fetch_response(version, raw[: data.draw(st.integers(0, len(raw) - 1))])


@given(version=st.sampled_from(VERSIONS), raw=st.binary(max_size=80))
def test_random_bytes_are_a_message_or_malformed(version, raw):
    for decode in (decode_fetch_request, decode_fetch_response):
        with suppress(MalformedMessageError):
            decode(version, raw)


@pytest.mark.parametrize("version", VERSIONS)
def test_file_slices_stand_where_their_bytes_would(version, tmp_path):
    path = tmp_path / "segment"
    path.write_bytes(b"0123456789")
    with path.open("rb") as file:
        slices = [FileSlice(file, 2, 3), FileSlice(file, 7, 1)]
        response = _one_partition(slices)
        parts = encode_fetch_response(version, response)
        assert [part for part in parts if isinstance(part, FileSlice)] == slices
        flat = b"".join(_content(part) for part in parts)
    assert flat == b"".join(encode_fetch_response(version, _one_partition(b"2347")))
    assert decode_fetch_response(version, flat).topics[0].partitions[0].records == b"2347"


def test_bytes_that_are_made_while_they_are_sent_count_from_the_start():
    lazy = LazyBytes(5, iter((b"ab", b"cde")))
    parts = encode_fetch_response(3, _one_partition(lazy))
    assert lazy in parts
    assert parts[0][-4:] == b"\0\0\0\5"
    assert (lazy.take(), len(lazy), lazy.take(), len(lazy)) == (b"ab", 3, b"cde", 0)


@pytest.mark.parametrize("pieces", [(), (b"",), (b"abcdef",)])
def test_bytes_must_be_as_many_as_was_said(pieces):
    with pytest.raises(StorageError):
        LazyBytes(5, iter(pieces)).take()


@pytest.mark.parametrize("version", VERSIONS)
def test_empty_records_leave_no_empty_part(version):
    parts = encode_fetch_response(version, _one_partition([]))
    assert len(parts) == 1
    assert decode_fetch_response(version, parts[0]).topics[0].partitions[0].records == b""


def _one_partition(records):
    return FetchResponse([TopicFetched("t", None, [PartitionFetched(0, 0, 10, records=records)])])


def _content(part):
    if not isinstance(part, FileSlice):
        return bytes(part)
    part.file.seek(part.position_bytes)
    return part.file.read(part.size_bytes)


def test_a_number_that_does_not_fit_is_refused():
    with pytest.raises(UnencodableMessageError):
        encode_fetch_request(17, FetchRequest(1 << 40, 1, 1, 0, []))
    with pytest.raises(UnencodableMessageError):
        encode_fetch_response(17, FetchResponse([], session_id=1 << 40))
