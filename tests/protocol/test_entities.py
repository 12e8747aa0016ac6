"""Entities are read and written as in kio, and as the protocol requires if kio differs."""

from __future__ import annotations

import dataclasses
import io
from contextlib import suppress
from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader as kio_reader
from kio.serial import entity_writer as kio_writer

from klog.protocol.apis import SERVED, ApiKey
from klog.protocol.entity_codec import read_entity, write_entity
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import MalformedMessageError, UnencodableMessageError
from klog.protocol.interbroker.update_metadata import UpdateMetadataRequest
from klog.protocol.messages import build, error_codes, request_class, response_class, struct_of
from klog.protocol.primitives import read_bytes, read_string, read_tags, read_uvarint, write_string
from tests.entity_structs import request_struct, response_struct
from tests.protocol.entities import entities

EMPTY_UPDATE = UpdateMetadataRequest(controller_id=1, controller_epoch=2, topic_states=(), live_brokers=())

ENTITY_APIS = [
    (api.key, version)
    for api in SERVED.values()
    if api.package is not None
    for version in range(api.min_version, api.max_version + 1)
]


@pytest.mark.parametrize(("api_key", "version"), ENTITY_APIS)
@settings(max_examples=10)
@given(data=st.data())
def test_every_served_message_is_written_and_read_like_kio(api_key, version, data):
    for entity_type in (request_class(api_key, version), response_class(api_key, version)):
        entity = data.draw(entities(entity_type))
        written = io.BytesIO()
        kio_writer(entity_type)(written, entity)
        assert write_entity(entity) == written.getvalue()
        assert read_entity(entity_type, written.getvalue()) == entity
        assert kio_reader(entity_type)(written.getvalue(), 0)[0] == entity


@pytest.mark.parametrize(("api_key", "version"), ENTITY_APIS)
@settings(max_examples=10)
@given(data=st.data())
def test_a_truncated_message_is_always_malformed(api_key, version, data):
    entity_type = request_class(api_key, version)
    raw = write_entity(data.draw(entities(entity_type)))
    cut = raw[: data.draw(st.integers(0, max(0, len(raw) - 1)))]
    if cut != raw:
        with pytest.raises(MalformedMessageError):
            read_entity(entity_type, cut)


@settings(max_examples=300)
@given(case=st.sampled_from(ENTITY_APIS), raw=st.binary(max_size=60))
def test_random_bytes_are_an_entity_or_malformed(case, raw):
    entity_type = request_class(*case)
    with suppress(MalformedMessageError):
        entity = read_entity(entity_type, raw)
        assert read_entity(entity_type, write_entity(entity)) == entity


@pytest.mark.parametrize("version", [1, 12])
def test_an_array_length_beyond_the_message_allocates_nothing(version):
    huge = b"\x7f\xff\xff\xff" if version < 9 else b"\xff\xff\xff\xff\x07"
    with pytest.raises(MalformedMessageError, match="an array of"):
        read_entity(request_class(ApiKey.METADATA, version), huge)


def test_unknown_tagged_fields_are_skipped():
    raw = b"\x06alice\x041.0" + b"\x02\x07\x03abc\x63\x00"
    request = read_entity(request_class(ApiKey.API_VERSIONS, 3), raw)
    assert (request.client_software_name, request.client_software_version) == ("alice", "1.0")


def test_tagged_fields_may_have_any_order_and_the_last_of_duplicates_wins():
    raw = b"\x06alice\x041.0" + b"\x02\x07\x00\x03\x00"
    assert read_entity(request_class(ApiKey.API_VERSIONS, 3), raw).client_software_name == "alice"
    assert read_tags(b"\x03\x07\x01a\x03\x00\x07\x01b", 0) == ({7: 8, 3: 6}, 9)


def test_every_negative_length_is_null():
    assert read_string(b"\xff\xfe", 0, False) == (None, 2)
    assert read_bytes(b"\xff\xff\xff\xfe", 0, False) == (None, 4)
    assert read_entity(request_class(ApiKey.METADATA, 1), b"\xff\xff\xff\xfe").topics is None
    with pytest.raises(MalformedMessageError, match="null where an array must be"):
        read_entity(request_class(ApiKey.METADATA, 0), b"\xff\xff\xff\xfe")


def test_a_string_may_be_as_long_in_its_compact_form_as_in_its_classic_one():
    largest = "x" * (2**15 - 1)
    for compact in (False, True):
        assert read_string(write_string(largest, compact), 0, compact)[0] == largest
    with pytest.raises(MalformedMessageError):
        read_string(write_string(largest + "x", True), 0, True)


def test_a_tagged_field_at_its_default_is_not_written():
    assert write_entity(EMPTY_UPDATE)[-1:] == b"\x00"
    assert write_entity(dataclasses.replace(EMPTY_UPDATE, request_type=2))[-4:] == b"\x01\x00\x01\x02"


def test_an_error_code_of_a_later_kafka_is_still_an_error():
    response = read_entity(response_class(ApiKey.UPDATE_METADATA, 8), b"\x7f\xff\x00")
    assert response.error_code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_text_that_is_not_utf8_is_read_as_java_reads_it():
    request = read_entity(request_class(ApiKey.API_VERSIONS, 3), b"\x03\xffa\x01\x00")
    assert request.client_software_name == "\ufffda"


def test_a_number_of_more_than_32_bits_is_malformed():
    with pytest.raises(MalformedMessageError, match="more than 32 bits"):
        read_uvarint(b"\xff\xff\xff\xff\x1f", 0)


@pytest.mark.parametrize(
    ("milliseconds", "expected"), [(2**63 - 1, timedelta.max), (-(2**63), timedelta.min)]
)
def test_a_duration_that_is_too_long_is_read_as_the_longest(milliseconds, expected):
    group, generation, member, topics = b"\0\1g", b"\xff" * 4, b"\0\0", b"\0" * 4
    retention = milliseconds.to_bytes(8, "big", signed=True)
    raw = group + generation + member + retention + topics
    assert read_entity(request_class(ApiKey.OFFSET_COMMIT, 2), raw).retention_time == expected


def test_a_value_that_its_type_cannot_hold_is_refused():
    with pytest.raises(UnencodableMessageError, match="UpdateMetadataRequest"):
        write_entity(dataclasses.replace(EMPTY_UPDATE, controller_id=1 << 40))


def test_null_in_a_field_that_is_not_nullable_is_refused():
    with pytest.raises(UnencodableMessageError):
        write_entity(dataclasses.replace(EMPTY_UPDATE, topic_states=None))


def test_an_entity_is_built_from_the_values_that_its_version_has():
    topic_id = UUID(int=7)
    for version, expected in ((9, None), (12, topic_id)):
        topic = response_struct(ApiKey.METADATA, version, "MetadataResponseTopic")
        values = {"name": "t", "topic_id": topic_id, "is_internal": False, "error_code": ErrorCode.NONE}
        built = build(topic, **values, partitions=(), topic_authorized_operations=0)
        assert getattr(built, "topic_id", None) == expected


def test_the_class_of_a_struct_is_found_by_its_field():
    topics = struct_of(response_class(ApiKey.METADATA, 12), "topics")
    assert topics is response_struct(ApiKey.METADATA, 12, "MetadataResponseTopic")
    with pytest.raises(TypeError, match="is no struct"):
        struct_of(response_class(ApiKey.METADATA, 12), "controller_id")


def test_structs_of_a_request_are_built_of_mappings():
    topic = request_struct(ApiKey.ELECT_LEADERS, 2, "TopicPartitions")
    values = {
        "election_type": 1,
        "topic_partitions": ({"topic": "t", "partitions": [0, 2], "unknown": 1},),
        "timeout": 1_500,
    }
    assert build(request_class(ApiKey.ELECT_LEADERS, 2), **values) == build(
        request_class(ApiKey.ELECT_LEADERS, 2),
        election_type=1,
        topic_partitions=(build(topic, topic="t", partitions=(0, 2)),),
        timeout=timedelta(milliseconds=1_500),
    )
    whole = build(request_class(ApiKey.ELECT_LEADERS, 2), **values | {"topic_partitions": None})
    assert whole.topic_partitions is None


def test_the_error_codes_of_an_answer_are_those_of_all_its_parts():
    kind = response_class(ApiKey.ELECT_LEADERS, 2)
    parts = [{"partition_id": number, "error_code": number + 40, "error_message": None} for number in (1, 2)]
    answer = build(
        kind,
        throttle_time=0,
        error_code=7,
        replica_election_results=[{"topic": "t", "partition_result": parts}],
    )
    assert error_codes(kind, answer) == {7, 41, 42}
