"""Produce by hand equals kio's entities, in every version that kio has, and the versions before them."""

from __future__ import annotations

import datetime
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_reader

from klog.protocol.apis import SERVED, ApiKey
from klog.protocol.entity_codec import read_entity, write_entity
from klog.protocol.errors import MalformedMessageError, UnencodableMessageError
from klog.protocol.leader_hints import LeaderHint, NodeEndpoint
from klog.protocol.produce_request import (
    ProduceRequest,
    decode_produce_request,
    encode_produce_request,
)
from klog.protocol.produce_response import (
    PartitionProduced,
    ProduceResponse,
    decode_produce_response,
    encode_produce_response,
)
from tests.protocol.entities import TEXT, entities
from tests.protocol.kio_classes import kio_request, kio_response

VERSIONS = range(SERVED[ApiKey.PRODUCE].min_version, SERVED[ApiKey.PRODUCE].max_version + 1)
KIO_VERSIONS = [version for version in VERSIONS if version in schema_name_map["produce"]]

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)

REQUESTS = st.builds(
    ProduceRequest,
    transactional_id=st.none() | TEXT,
    acks=st.sampled_from((-1, 0, 1)),
    timeout_ms=INT32,
    topics=st.lists(
        st.tuples(TEXT, st.lists(st.tuples(INT32, st.none() | st.binary(max_size=200)), max_size=3)),
        max_size=3,
    ),
)
HINTS = st.builds(LeaderHint, INT32, INT32)
NODES = st.lists(st.builds(NodeEndpoint, INT32, TEXT, INT32, st.none() | TEXT), max_size=2).map(tuple)
PARTITIONS = st.builds(
    PartitionProduced,
    partition=INT32,
    error_code=st.sampled_from([int(code) for code in ErrorCode]),
    base_offset=INT64,
    log_append_time_ms=st.just(-1) | st.integers(0, 1 << 42),
    log_start_offset=INT64,
    record_errors=st.lists(st.tuples(INT32, st.none() | TEXT), max_size=2).map(tuple),
    error_message=st.none() | TEXT,
    current_leader=HINTS,
)
RESPONSES = st.builds(
    ProduceResponse,
    topics=st.lists(st.tuples(TEXT, st.lists(PARTITIONS, max_size=3)), max_size=3),
    throttle_time_ms=INT32,
    node_endpoints=NODES,
)


def comparable(request):
    topics = [
        (name, [(index, _bytes(records)) for index, records in parts]) for name, parts in request.topics
    ]
    return request._replace(topics=topics)


def _bytes(records):
    return None if records is None else bytes(records)


@pytest.mark.parametrize("version", KIO_VERSIONS)
@settings(max_examples=20)
@given(data=st.data())
def test_a_request_is_read_as_kio_reads_it(version, data):
    raw = write_entity(data.draw(entities(kio_request("produce", version))))
    entity = entity_reader(kio_request("produce", version))(raw, 0)[0]
    request = decode_produce_request(version, memoryview(raw))
    assert (request.transactional_id, request.acks) == (entity.transactional_id, entity.acks)
    assert request.timeout_ms == entity.timeout / datetime.timedelta(milliseconds=1)
    expected = [
        (topic.name, [(part.index, part.records) for part in topic.partition_data])
        for topic in entity.topic_data
    ]
    assert comparable(request).topics == expected


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=20)
@given(request=REQUESTS)
def test_a_request_round_trips(version, request):
    raw = b"".join(encode_produce_request(version, request))
    expected = request if version >= 3 else request._replace(transactional_id=None)
    assert comparable(decode_produce_request(version, memoryview(raw))) == expected


@pytest.mark.parametrize("version", KIO_VERSIONS)
@settings(max_examples=20)
@given(response=RESPONSES)
def test_a_response_is_written_as_kio_reads_it(version, response):
    raw = encode_produce_response(version, response)
    entity, size = entity_reader(kio_response("produce", version))(raw, 0)
    assert size == len(raw)
    assert write_entity(entity) == raw
    for (name, partitions), topic in zip(response.topics, entity.responses, strict=True):
        assert name == topic.name
        for ours, theirs in zip(partitions, topic.partition_responses, strict=True):
            assert (ours.partition, ours.error_code, ours.base_offset) == (
                theirs.index,
                theirs.error_code,
                theirs.base_offset,
            )


@pytest.mark.parametrize("version", KIO_VERSIONS)
@settings(max_examples=20)
@given(data=st.data())
def test_a_response_of_kio_is_read_and_written_back_the_same(version, data):
    raw = write_entity(data.draw(entities(kio_response("produce", version))))
    assert encode_produce_response(version, decode_produce_response(version, raw)) == raw


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=20)
@given(response=RESPONSES)
def test_a_response_keeps_what_its_version_carries(version, response):
    read = decode_produce_response(version, encode_produce_response(version, response))
    for (name, partitions), (read_name, read_partitions) in zip(response.topics, read.topics, strict=True):
        assert name == read_name
        for ours, theirs in zip(partitions, read_partitions, strict=True):
            assert theirs == ours._replace(
                log_append_time_ms=ours.log_append_time_ms if version >= 2 else -1,
                log_start_offset=ours.log_start_offset if version >= 5 else -1,
                record_errors=ours.record_errors if version >= 8 else (),
                error_message=ours.error_message if version >= 8 else None,
                current_leader=ours.current_leader if version >= 10 else LeaderHint(),
            )
    assert read.throttle_time_ms == (response.throttle_time_ms if version >= 1 else 0)
    assert read.node_endpoints == (response.node_endpoints if version >= 10 else ())


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name_size", [0, 1, 126, 127, 128, 249])
@pytest.mark.parametrize("records_size", [None, 0, 1, 126, 127, 128, 16_383, 16_384])
def test_a_request_for_one_partition_round_trips_at_every_size_of_its_parts(version, name_size, records_size):
    records = None if records_size is None else bytes(records_size)
    request = ProduceRequest(None, -1, 30_000, [("n" * name_size, [(-7, records)])])
    raw = b"".join(encode_produce_request(version, request))
    assert comparable(decode_produce_request(version, memoryview(raw))) == request
    for end in (len(raw) - 1, len(raw) // 2, 9, 8, 1, 0):
        with pytest.raises(MalformedMessageError):
            decode_produce_request(version, memoryview(raw)[:end])


@pytest.mark.parametrize("version", [9, 10, 11])
def test_tags_after_the_records_of_one_partition_are_passed_over(version):
    request = ProduceRequest(None, 1, 9, [("t", [(0, b"records")])])
    raw = b"".join(encode_produce_request(version, request))
    tagged = raw[:-3] + b"\x01\x05\x02ab" + b"\x00" + b"\x01\x07\x00"
    assert comparable(decode_produce_request(version, memoryview(tagged))) == request


@pytest.mark.parametrize("version", KIO_VERSIONS)
def test_answers_that_say_nothing_but_numbers_are_written_as_kio_reads_them(version):
    for name, number in (("t", 1), ("t", 2**62), ("other", 3), ("t", -1)):
        partition = PartitionProduced(number % 1000, 0, number, -1, number - 1)
        raw = encode_produce_response(version, ProduceResponse([(name, [partition])]))
        entity, size = entity_reader(kio_response("produce", version))(raw, 0)
        assert size == len(raw)
        assert write_entity(entity) == raw
        found = decode_produce_response(version, raw).topics
        expected = partition if version >= 5 else partition._replace(log_start_offset=-1)
        assert found == [(name, [expected])]


@pytest.mark.parametrize("version", VERSIONS)
def test_records_are_views_of_the_frame_that_can_be_written_to(version):
    records = memoryview(bytearray(b"0123456789"))
    request = ProduceRequest(None, 1, 9, [("t", [(0, records)])])
    raw = bytearray(b"".join(encode_produce_request(version, request)))
    decoded = decode_produce_request(version, memoryview(raw)).topics[0][1][0][1]
    decoded[:3] = b"abc"
    assert b"abc3456789" in raw


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=20)
@given(request=REQUESTS, data=st.data())
def test_a_cut_request_is_malformed(version, request, data):
    raw = b"".join(encode_produce_request(version, request))
    cut = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(MalformedMessageError):
        decode_produce_request(version, memoryview(raw)[:cut])


@given(version=st.sampled_from(VERSIONS), raw=st.binary(max_size=80))
def test_random_bytes_are_a_request_or_malformed(version, raw):
    with suppress(MalformedMessageError):
        request = decode_produce_request(version, memoryview(raw))
        again = memoryview(b"".join(encode_produce_request(version, request)))
        assert comparable(decode_produce_request(version, again)) == comparable(request)


@given(version=st.sampled_from(VERSIONS), raw=st.binary(max_size=80))
def test_random_bytes_are_a_response_or_malformed(version, raw):
    with suppress(MalformedMessageError):
        response = decode_produce_response(version, raw)
        assert decode_produce_response(version, encode_produce_response(version, response)) == response


def test_records_of_negative_length_are_null():
    raw = b"".join(encode_produce_request(7, ProduceRequest(None, 1, 9, [("t", [(0, memoryview(b""))])])))
    request = decode_produce_request(7, memoryview(raw[:-4] + b"\xff\xff\xff\xfb"))
    assert request.topics == [("t", [(0, None)])]


def test_a_number_that_does_not_fit_is_refused():
    with pytest.raises(UnencodableMessageError):
        encode_produce_response(11, ProduceResponse([("t", [PartitionProduced(1 << 33)])]))
    with pytest.raises(UnencodableMessageError):
        encode_produce_request(11, ProduceRequest(None, 1 << 20, 0, []))


def test_kio_reads_its_own_as_klog_does():
    request = ProduceRequest("tx", -1, 1500, [("t", [(3, memoryview(b"abc"))])])
    raw = b"".join(encode_produce_request(11, request))
    entity = read_entity(kio_request("produce", 11), raw)
    assert entity.topic_data[0].partition_data[0].records == b"abc"
