"""One Fetch request to one broker: version, fields, and the records as views of the answer."""

from __future__ import annotations

from uuid import UUID

import pytest

from klog.client.errors import RefusedError
from klog.client.fetcher import fetch, partitions_of, topics_of
from klog.formats.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.protocol.fetch_request import FetchPartition, FetchRequest, ForgottenTopic, decode_fetch_request
from klog.protocol.fetch_response import FetchResponse, PartitionFetched, TopicFetched, encode_fetch_response
from tests.client.fake_broker import FakeConnection

ORDERS = UUID(int=7)
A = FetchPartition(0, 5, 100, 4, 10, 1 << 20)
B = FetchPartition(3, 6, 200, 6, 0, 1 << 20)


def answer(version, **fields):
    return memoryview(bytearray(b"".join(encode_fetch_response(version, FetchResponse(**fields)))))


def connected(version, **fields):
    connection = FakeConnection(answers=[answer(version, **fields)])
    connection.connect()
    return connection


def test_partitions_of_several_topics_go_into_one_request_in_their_order():
    topics = topics_of([("a", A), ("b", A), ("a", B)], {"a": ORDERS})
    assert [(topic.name, topic.topic_id, topic.partitions) for topic in topics] == [
        ("a", ORDERS, [A, B]),
        ("b", None, [A]),
    ]


def test_a_topic_without_an_id_is_asked_for_by_name():
    connection = connected(12, topics=[])
    fetch(connection, FetchRequest(500, 1, 1 << 20, 0, topics_of([("a", A)])), 1_000)
    assert [(api, version) for api, version, *_ in connection.sent] == [(ApiKey.FETCH, 12)]


def test_a_follower_sends_its_epochs_its_session_and_what_it_drops():
    connection = connected(17, topics=[])
    request = FetchRequest(
        500,
        1,
        10 << 20,
        0,
        topics_of([("a", A), ("a", B)], {"a": ORDERS}),
        session_id=9,
        session_epoch=2,
        forgotten=[ForgottenTopic("b", UUID(int=8), [1])],
        replica_id=2,
        replica_epoch=77,
    )
    fetch(connection, request, 1_000)
    ((_, version, body, timeout_ms),) = connection.sent
    sent = decode_fetch_request(version, memoryview(body))
    assert version == 17
    assert sent.topics[0].partitions == [A, B]
    assert (sent.session_id, sent.session_epoch, sent.replica_id, sent.replica_epoch) == (9, 2, 2, 77)
    assert sent.forgotten[0].partitions == [1]
    assert timeout_ms == 1_500


def test_the_records_of_a_partition_are_a_view_of_the_answer():
    records = bytes(range(200))
    fetched = PartitionFetched(3, 0, 200, 200, 0, records=records)
    connection = connected(17, topics=[TopicFetched(None, ORDERS, [fetched])])
    request = FetchRequest(500, 1, 1 << 20, 0, topics_of([("a", B)], {"a": ORDERS}))
    buffer = connection.answers[0]
    response = fetch(connection, request, 1_000)
    ((partition, got),) = partitions_of(response, {ORDERS: "a"})
    assert partition == TopicPartition("a", 3)
    assert isinstance(got.records, memoryview)
    assert got.records.obj is buffer.obj
    assert got.records == records


def test_an_error_of_the_whole_request_is_raised_and_names_the_broker():
    connection = connected(12, topics=[], error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    request = FetchRequest(500, 1, 1 << 20, 0, topics_of([("a", A)]))
    with pytest.raises(RefusedError, match=r"broker:9092.*FETCH_SESSION_ID_NOT_FOUND"):
        fetch(connection, request, 1_000)
