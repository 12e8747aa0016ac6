"""DeleteRecords: the log starts later, on every live replica before the answer comes."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest

from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.server.handlers.data.delete_records import DeleteRecordsHandler
from klog.server.handlers.topics.topic_metadata import INTERNAL_TOPICS
from tests.server.handlers.parts import (
    BROKER,
    OTHER_BROKER,
    TOPIC,
    Broker,
    FakeRequest,
    answer_of,
    part_of,
    request_of,
)

API = ApiKey.DELETE_RECORDS


def send(
    broker: Broker, offsets: dict[int, int] | list[tuple[int, int]], *, topic=TOPIC, version=2, timeout_ms=500
) -> FakeRequest:
    partitions = tuple(
        part_of(API, version, "DeleteRecordsPartition", partition_index=partition, offset=offset)
        for partition, offset in (offsets.items() if isinstance(offsets, dict) else offsets)
    )
    asked = part_of(API, version, "DeleteRecordsTopic", name=topic, partitions=partitions)
    request = request_of(API, version, topics=(asked,), timeout=timedelta(milliseconds=timeout_ms))
    DeleteRecordsHandler(broker.lookup, broker.delete_purgatory, broker.clock).handle(request)
    return request


def results(request: FakeRequest) -> list[tuple[int, ErrorCode, int]]:
    return [
        (each.partition_index, each.error_code, each.low_watermark)
        for topic in answer_of(request).topics
        for each in topic.partitions
    ]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_log_starts_at_the_offset_from_then_on(broker: Broker, version: int) -> None:
    log = broker.lead().log
    broker.append(5)
    assert results(send(broker, {0: 3}, version=version)) == [(0, ErrorCode.NONE, 3)]
    assert log.log_start_offset == 3


def test_minus_1_is_the_high_watermark(broker: Broker) -> None:
    broker.lead()
    broker.append(5)
    assert results(send(broker, {0: -1})) == [(0, ErrorCode.NONE, 5)]


def test_of_a_partition_that_is_named_twice_the_last_offset_counts(broker: Broker) -> None:
    log = broker.lead().log
    broker.append(5)
    assert results(send(broker, [(0, 3), (0, 1)])) == [(0, ErrorCode.NONE, 1)]
    assert log.log_start_offset == 1


def test_the_start_never_goes_back(broker: Broker) -> None:
    broker.lead()
    broker.append(5)
    send(broker, {0: 4})
    assert results(send(broker, {0: 2})) == [(0, ErrorCode.NONE, 4)]


@pytest.mark.parametrize("offset", [-2, 6])
def test_offsets_outside_of_what_is_replicated_are_out_of_range(broker: Broker, offset: int) -> None:
    log = broker.lead().log
    broker.append(5)
    assert results(send(broker, {0: offset})) == [(0, ErrorCode.OFFSET_OUT_OF_RANGE, -1)]
    assert log.log_start_offset == 0


def test_a_compacted_topic_keeps_its_records(tmp_path) -> None:
    policies = {"compact": ErrorCode.POLICY_VIOLATION, "compact,delete": ErrorCode.NONE}
    for policy, expected in policies.items():
        root = tmp_path / policy
        root.mkdir()
        broker = Broker(root, {TOPIC: {"cleanup.policy": policy}})
        broker.lead()
        broker.append(2)
        assert [error for _, error, _ in results(send(broker, {0: 1}))] == [expected]


@pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS))
def test_internal_topics_are_not_touched(broker: Broker, topic: str) -> None:
    broker.lead(topic, topic_id=None)
    request = send(broker, {0: 0}, topic=topic)
    assert results(request) == [(0, ErrorCode.INVALID_TOPIC_EXCEPTION, -1)]


def test_who_cannot_delete_says_why(broker: Broker) -> None:
    broker.tell(partition=0, leader=OTHER_BROKER)
    broker.lead(partition=1, leader=OTHER_BROKER, replicas=(BROKER, OTHER_BROKER))
    failed = broker.lead(partition=2)
    broker.replicas.directory_failed([failed.topic_partition])
    assert results(send(broker, dict.fromkeys(range(4), 0))) == [
        (0, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
        (1, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
        (2, ErrorCode.KAFKA_STORAGE_ERROR, -1),
        (3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]


def test_a_disk_that_fails_is_an_error_of_its_partition(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.lead()
    broker.append(5)

    def fails(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "replace", fails)  # of the epochs, which begin later now
    assert results(send(broker, {0: 5})) == [(0, ErrorCode.KAFKA_STORAGE_ERROR, -1)]


class TestFollowers:
    @pytest.fixture
    def partition(self, broker):
        partition = broker.lead(replicas=(BROKER, OTHER_BROKER))
        broker.append(5)
        broker.follow(5)
        return partition

    def test_the_answer_waits_for_live_followers(self, broker, partition) -> None:
        request = send(broker, {0: 3})
        assert (request.answered, partition.log.log_start_offset) == (False, 3)
        broker.follow(5, start_offset=3)
        assert results(request) == [(0, ErrorCode.NONE, 3)]

    def test_time_over_is_a_timeout_with_the_low_watermark_of_the_request(self, broker, partition) -> None:
        request = send(broker, {0: 3, 7: 0}, timeout_ms=500)
        broker.pass_time(500)
        assert results(request) == [
            (0, ErrorCode.REQUEST_TIMED_OUT, 0),
            (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        ]

    def test_losing_leadership_ends_the_waiting(self, broker, partition) -> None:
        request = send(broker, {0: 3})
        broker.lead(epoch=1, leader=OTHER_BROKER, replicas=(BROKER, OTHER_BROKER))
        assert results(request) == [(0, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
        assert broker.delete_purgatory.waiting == 0
