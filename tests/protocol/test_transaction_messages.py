"""The hand-written messages of transactions are read and written as entities are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.formats.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode, error_code
from klog.protocol.errors import MalformedMessageError
from klog.protocol.messages import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    request_class,
    response_class,
)
from klog.protocol.transaction_messages import (
    AddPartitions,
    EndTxn,
    MarkerErrorCodes,
    TxnMarker,
    read_add_partitions,
    read_end_txn,
    read_markers,
    read_written_markers,
    write_added_partitions,
    write_error,
    write_markers,
    write_written_markers,
)
from tests.protocol.entities import entities

ADD_VERSIONS = (0, 1, 2, 3)
END_VERSIONS = (0, 1, 2, 3, 4)
MARKER_VERSIONS = (0, 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
PARTITIONS = st.builds(TopicPartition, st.sampled_from(["a", "b", "ü"]), st.integers(0, 3))
ERRORS = st.dictionaries(PARTITIONS, st.sampled_from(ErrorCode))


def unique(topics: Any, numbers: str) -> list[TopicPartition]:
    return list(
        dict.fromkeys(
            TopicPartition(topic.name, number) for topic in topics for number in getattr(topic, numbers)
        )
    )


def general_add(version: int, body: bytes) -> Any:
    asked = decode_request(ApiKey.ADD_PARTITIONS_TO_TXN, version, body)
    return (
        asked.v3_and_below_transactional_id,
        asked.v3_and_below_producer_id,
        asked.v3_and_below_producer_epoch,
        unique(asked.v3_and_below_topics, "partitions"),
    )


def general_end(version: int, body: bytes) -> Any:
    asked = decode_request(ApiKey.END_TXN, version, body)
    return asked.transactional_id, asked.producer_id, asked.producer_epoch, asked.committed


def general_markers(version: int, body: bytes) -> Any:
    return [
        (
            marker.producer_id,
            marker.producer_epoch,
            marker.transaction_result,
            unique(marker.topics, "partition_indexes"),
            marker.coordinator_epoch,
        )
        for marker in decode_request(ApiKey.WRITE_TXN_MARKERS, version, body).markers
    ]


def general_written(version: int, body: bytes) -> Any:
    return {
        (marker.producer_id, topic.name, each.partition_index): each.error_code
        for marker in decode_response(ApiKey.WRITE_TXN_MARKERS, version, body).markers
        for topic in marker.topics
        for each in topic.partitions
    }


def listed(found: AddPartitions | EndTxn) -> Any:
    return tuple(list(value) if isinstance(value, type({}.keys())) else value for value in found)


def fast_add(version: int, body: bytes) -> Any:
    return listed(read_add_partitions(version, memoryview(body)))


def fast_end(version: int, body: bytes) -> Any:
    return listed(read_end_txn(version, memoryview(body)))


def fast_markers(version: int, body: bytes) -> Any:
    return [
        (each.producer_id, each.producer_epoch, each.committed, list(each.partitions), each.coordinator_epoch)
        for each in read_markers(version, memoryview(body))
    ]


def fast_written(version: int, body: bytes) -> Any:
    """Numbers that are no errors, which damaged bytes have, are given as they are; an entity has none."""
    return {
        (producer_id, topic, number): int(error_code(error))
        for producer_id, errors in read_written_markers(version, memoryview(body)).items()
        for (topic, number), error in errors.items()
    }


Read = Callable[[int, bytes], Any]
# How messages are read by hand and in general, their versions, and how one of them is made.
REQUESTS = [
    (fast_add, general_add, ApiKey.ADD_PARTITIONS_TO_TXN, ADD_VERSIONS),
    (fast_end, general_end, ApiKey.END_TXN, END_VERSIONS),
    (fast_markers, general_markers, ApiKey.WRITE_TXN_MARKERS, MARKER_VERSIONS),
]
READERS = [
    *(
        pytest.param(
            fast, general, version, request_class(key, version), encode_request, id=f"{key}-{version}"
        )
        for fast, general, key, versions in REQUESTS
        for version in versions
    ),
    *(
        pytest.param(
            fast_written,
            general_written,
            version,
            response_class(ApiKey.WRITE_TXN_MARKERS, version),
            encode_response,
            id=f"answer-{version}",
        )
        for version in MARKER_VERSIONS
    ),
]


def outcome(read: Read, version: int, body: bytes) -> Any:
    try:
        return read(version, body)
    except MalformedMessageError:
        return "malformed"


@pytest.mark.parametrize(("fast", "general", "version", "entity_type", "encode"), READERS)
@given(data=st.data())
def test_what_is_read_is_what_the_reader_of_entities_finds(
    fast: Read,
    general: Read,
    version: int,
    entity_type: type,
    encode: Callable[[Any], bytes],
    data: st.DataObject,
) -> None:
    body = encode(data.draw(entities(entity_type)))
    assert fast(version, body) == general(version, body)
    damaged = bytearray(body)
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    damaged = damaged[: data.draw(st.integers(0, len(damaged)))] + data.draw(st.binary(max_size=3))
    assert outcome(fast, version, bytes(damaged)) == outcome(general, version, bytes(damaged))


@pytest.mark.parametrize(("fast", "general", "version", "entity_type", "encode"), READERS)
@given(body=st.binary(max_size=60))
def test_any_bytes_are_refused_as_by_the_reader_of_entities(
    fast: Read,
    general: Read,
    version: int,
    entity_type: type,
    encode: Callable[[Any], bytes],
    body: bytes,
) -> None:
    assert outcome(fast, version, body) == outcome(general, version, body)


@given(st.sampled_from(ADD_VERSIONS), ERRORS)
def test_errors_of_added_partitions_are_written_as_an_entity(
    version: int, errors: dict[TopicPartition, ErrorCode]
) -> None:
    written = write_added_partitions(version, errors)
    entity = decode_response(ApiKey.ADD_PARTITIONS_TO_TXN, version, written)
    assert encode_response(entity) == written
    assert {
        TopicPartition(topic.name, each.partition_index): each.partition_error_code
        for topic in entity.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    } == errors


@pytest.mark.parametrize("api_key", [ApiKey.END_TXN, ApiKey.ADD_OFFSETS_TO_TXN])
@given(version=st.sampled_from(END_VERSIONS), error=st.sampled_from(ErrorCode))
def test_an_error_is_written_as_an_entity(api_key: ApiKey, version: int, error: ErrorCode) -> None:
    written = write_error(version, error)
    entity = decode_response(api_key, version, written)
    assert encode_response(entity) == written
    assert entity.error_code == error


@given(
    st.sampled_from(MARKER_VERSIONS),
    st.lists(
        st.builds(
            TxnMarker,
            INT64,
            st.integers(-1, (1 << 15) - 1),
            st.booleans(),
            st.frozensets(PARTITIONS),
            st.integers(-1, (1 << 31) - 1),
        )
    ),
)
def test_markers_are_written_as_an_entity(version: int, markers: list[TxnMarker]) -> None:
    written = write_markers(version, markers)
    assert encode_request(decode_request(ApiKey.WRITE_TXN_MARKERS, version, written)) == written
    found = read_markers(version, written)
    assert [marker._replace(partitions=frozenset(marker.partitions)) for marker in found] == markers
    assert all(list(marker.partitions) == sorted(marker.partitions) for marker in found)


@given(st.sampled_from(MARKER_VERSIONS), st.dictionaries(INT64, ERRORS))
def test_errors_of_markers_are_written_as_an_entity(
    version: int, errors: dict[int, dict[TopicPartition, ErrorCode]]
) -> None:
    written = write_written_markers(version, errors)
    assert encode_response(decode_response(ApiKey.WRITE_TXN_MARKERS, version, written)) == written
    expected: MarkerErrorCodes = {producer_id: dict(each) for producer_id, each in errors.items()}
    assert read_written_markers(version, written) == expected


def test_an_error_that_only_later_versions_know_is_an_unknown_server_error() -> None:
    partition = TopicPartition("a", 0)
    written = write_written_markers(0, {7: {partition: ErrorCode.NONE}})[:-2] + (9999).to_bytes(2, "big")
    found = read_written_markers(0, written)
    assert found == {7: {partition: ErrorCode.UNKNOWN_SERVER_ERROR}}
    assert isinstance(found[7][partition], ErrorCode)
