"""What a Produce request may not carry, and how much of the request is refused for it."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from klog.formats.checksums import crc32c
from klog.formats.compression import GZIP, ZSTD
from klog.protocol.error_codes import ErrorCode
from klog.protocol.produce_request import ProduceRequest, encode_produce_request
from klog.protocol.produce_response import PartitionProduced, decode_produce_response
from klog.server.handlers.data.produce import ProduceHandler
from klog.server.handlers.data.produce_screening import (
    RefusedRequestError,
    Screened,
    is_usual,
    screen,
    usual_transaction,
)
from tests.server.handlers.parts import TOPIC, Broker, FakeRequest, batch

LATEST = 11
OTHER_TOPIC = "other"
OF_A_PRODUCER = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}


@pytest.fixture
def handler(broker: Broker) -> ProduceHandler:
    return broker.produce_handler()


@pytest.fixture
def log(broker: Broker):
    return broker.lead().log


def request(*topics, version=LATEST, acks=1, transactional_id=None) -> FakeRequest:
    views = [
        (topic, [(index, None if data is None else memoryview(data)) for index, data in partitions])
        for topic, partitions in topics
    ]
    body = b"".join(encode_produce_request(version, ProduceRequest(transactional_id, acks, 1000, views)))
    return FakeRequest(0, version, memoryview(bytearray(body)))


def ask(handler: ProduceHandler, *topics, **options) -> dict[str, list[PartitionProduced]]:
    sent = request(*topics, **options)
    handler.handle(sent)
    answer = decode_produce_response(sent.api_version, sent.answer)
    return {topic: list(partitions) for topic, partitions in answer.topics}


def errors(handler: ProduceHandler, *topics, **options) -> list[tuple[str, int, int, int]]:
    return [
        (topic, each.partition, each.error_code, each.log_start_offset)
        for topic, partitions in ask(handler, *topics, **options).items()
        for each in partitions
    ]


def with_magic(magic: int) -> bytearray:
    data = batch()
    data[16] = magic
    return data


def sized(size: int) -> bytearray:
    data = batch()
    data[8:12] = size.to_bytes(4, "big", signed=True)
    return data


@pytest.mark.parametrize("version", [3, 6, 7, 9, 11])
@pytest.mark.parametrize(
    ("records", "error"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (batch()[:11], ErrorCode.INVALID_RECORD),
        (batch()[:-1], ErrorCode.INVALID_RECORD),
        (with_magic(1), ErrorCode.INVALID_RECORD),
        (batch() + batch(), ErrorCode.INVALID_RECORD),
        (batch() + with_magic(0), ErrorCode.INVALID_RECORD),
        (batch() + sized(13), ErrorCode.CORRUPT_MESSAGE),
        (batch() + with_magic(3), ErrorCode.CORRUPT_MESSAGE),
        (with_magic(1) + sized(13), ErrorCode.INVALID_RECORD),
    ],
)
def test_one_whole_batch_is_needed_from_version_3(handler, log, version, records, error) -> None:
    assert errors(handler, (TOPIC, [(0, records)]), version=version) == [(TOPIC, 0, error, -1)]
    assert log.log_end_offset == 0


@pytest.mark.parametrize("version", [3, 9])
@pytest.mark.parametrize("tail", [b"abc", bytes(batch()[:-1]), bytes(batch()[:17])])
def test_part_of_a_batch_may_follow_and_is_left_out(handler, log, version, tail) -> None:
    ((_, _, error, _),) = errors(handler, (TOPIC, [(0, batch() + tail)]), version=version)
    assert (error, log.log_end_offset, log.size_bytes) == (ErrorCode.NONE, 1, len(batch()))


@pytest.mark.parametrize("version", [0, 2, 3, 9])
@pytest.mark.parametrize("records", [sized(13), sized(-1), with_magic(3), with_magic(255)])
def test_what_begins_as_no_batch_can_refuses_the_whole_request(handler, log, version, records) -> None:
    assert errors(handler, (TOPIC, [(0, batch())]), (OTHER_TOPIC, [(1, records)]), version=version) == [
        (TOPIC, 0, ErrorCode.CORRUPT_MESSAGE, -1),
        (OTHER_TOPIC, 1, ErrorCode.CORRUPT_MESSAGE, -1),
    ]
    assert log.log_end_offset == 0


def test_a_whole_request_that_is_refused_ends_the_connection_where_no_answer_is_wanted(handler, log) -> None:
    sent = request((TOPIC, [(0, batch())]), (OTHER_TOPIC, [(1, sized(13))]), acks=0)
    handler.handle(sent)
    assert (sent.closed, log.log_end_offset) == (True, 0)


def test_transactional_records_without_a_transactional_id_refuse_the_whole_request(handler, log) -> None:
    topics = (TOPIC, [(0, batch())]), (OTHER_TOPIC, [(1, batch(**OF_A_PRODUCER))])
    assert errors(handler, *topics) == [
        (TOPIC, 0, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1),
        (OTHER_TOPIC, 1, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1),
    ]
    assert log.log_end_offset == 0


def test_a_transaction_that_nobody_coordinates_is_refused_before_acks_are_looked_at(handler, log) -> None:
    topics = (TOPIC, [(0, batch(**OF_A_PRODUCER))])
    assert errors(handler, topics, transactional_id="payments", acks=7) == [
        (TOPIC, 0, ErrorCode.NOT_ENOUGH_REPLICAS, -1)
    ]


@pytest.mark.parametrize(("codec", "error"), [(GZIP, 0), (ZSTD, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)])
def test_zstd_is_for_version_7_and_later(handler, log, codec, error) -> None:
    for version in (3, 6):
        ((_, _, found, _),) = errors(handler, (TOPIC, [(0, batch(codec=codec))]), version=version)
        assert found == error
    assert errors(handler, (TOPIC, [(0, batch(codec=codec))]), version=7)[0][2] == ErrorCode.NONE


def test_of_a_partition_that_is_named_twice_the_last_records_count(handler, log) -> None:
    topics = (TOPIC, [(0, batch(records=3)), (0, batch(records=2))]), (TOPIC, [(0, batch())])
    assert errors(handler, *topics) == [(TOPIC, 0, ErrorCode.NONE, 0)]
    assert log.log_end_offset == 1


def test_a_topic_without_partitions_is_not_answered(handler, log) -> None:
    assert ask(handler, (OTHER_TOPIC, [])) == {}
    assert errors(handler, (OTHER_TOPIC, []), (TOPIC, [(0, batch())])) == [(TOPIC, 0, ErrorCode.NONE, 0)]


def test_nothing_is_said_of_records_for_a_partition_that_nobody_knows(handler, log) -> None:
    topics = (TOPIC, [(8, batch() + batch())]), ("__consumer_offsets", [(0, batch())])
    assert errors(handler, *topics, acks=7) == [
        (TOPIC, 8, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        ("__consumer_offsets", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]


@pytest.mark.parametrize(("version", "end"), [(3, 0), (6, 0), (7, 1), (11, 1)])
def test_a_codec_that_there_is_not_refuses_the_whole_request_before_version_7(
    broker, handler, log, version, end
) -> None:
    broker.lead(partition=1)
    odd = batch()
    odd[22] |= 5
    odd[17:21] = crc32c(memoryview(odd)[21:]).to_bytes(4, "big")
    told = errors(handler, (TOPIC, [(0, batch()), (1, odd)]), version=version)
    assert log.log_end_offset == end
    assert [each[2] for each in told] == [-1 if not end else ErrorCode.NONE, -1]


@pytest.mark.parametrize(("size", "error"), [(50, -1), (51, ErrorCode.CORRUPT_MESSAGE)])
@pytest.mark.parametrize("version", [2, 9])
def test_a_batch_that_ends_before_its_producers_id_refuses_the_whole_request(
    broker, handler, log, version, size, error
) -> None:
    broker.lead(partition=1)
    told = errors(handler, (TOPIC, [(0, batch()), (1, sized(size - 12)[:size])]), version=version)
    assert [each[2] for each in told] == [-1 if size < 51 else ErrorCode.NONE, error]
    assert log.log_end_offset == (size >= 51)


RECORDS = st.one_of(
    st.builds(
        batch,
        producer_id=st.sampled_from((-1, 8, 9)),
        producer_epoch=st.sampled_from((0, 1)),
        base_sequence=st.integers(0, 3),
        is_transactional=st.booleans(),
    ),
    st.just(bytes(batch(**OF_A_PRODUCER))),
    st.sampled_from((None, b"", bytes(with_magic(1)), bytes(sized(13)), bytes(batch() + batch()))),
)
TOPICS = st.lists(
    st.tuples(
        st.sampled_from((TOPIC, OTHER_TOPIC)), st.lists(st.tuples(st.integers(0, 2), RECORDS), max_size=3)
    ),
    max_size=3,
    unique_by=lambda topic: topic[0],
)
USUAL = [(TOPIC, [(0, bytes(batch(**OF_A_PRODUCER))), (1, bytes(batch(**OF_A_PRODUCER)))])]


@given(TOPICS, st.sampled_from((3, 7, LATEST)), st.sampled_from((None, "payments")))
@example(USUAL, LATEST, "payments")
def test_what_is_usual_is_screened_to_the_same(topics, version: int, transactional_id: str | None) -> None:
    views = [
        (topic, [(index, None if data is None else memoryview(data)) for index, data in partitions])
        for topic, partitions in topics
    ]
    asked = ProduceRequest(transactional_id, -1, 1000, views)
    usual, transaction = is_usual(version, views), usual_transaction(version, asked)
    assert transaction is not None or topics is not USUAL
    assert not (usual and transaction)
    if usual or transaction is not None:
        try:
            found: object = screen(version, asked, lambda _: True)
        except RefusedRequestError as refused:
            found = refused
        assert found == Screened(views, {}, transaction)
