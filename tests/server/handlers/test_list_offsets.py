"""ListOffsets: starts, ends, times, and what a client may not see yet."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.protocol.offset_times import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, MAX_TIMESTAMP
from klog.server.handlers.data.list_offsets import ListOffsetsHandler
from tests.server.handlers.parts import (
    BROKER,
    OTHER_BROKER,
    TOPIC,
    Broker,
    answer_of,
    batch,
    part_of,
    request_of,
)

API = ApiKey.LIST_OFFSETS
NEWEST = 9
START_MS = 1_700_000_000_000


@pytest.fixture
def handler(broker: Broker) -> ListOffsetsHandler:
    return ListOffsetsHandler(broker.lookup, broker.clock)


def ask(
    handler, timestamp=LATEST, *, version=NEWEST, epoch=-1, partitions=(0,), replica_id=-1, committed=False
):
    asked = tuple(
        part_of(
            API,
            version,
            "ListOffsetsPartition",
            partition_index=partition,
            timestamp=timestamp,
            current_leader_epoch=epoch,
        )
        for partition in partitions
    )
    topic = part_of(API, version, "ListOffsetsTopic", name=TOPIC, partitions=asked)
    request = request_of(API, version, replica_id=replica_id, isolation_level=int(committed), topics=(topic,))
    handler.handle(request)
    (answered,) = answer_of(request).topics
    assert answered.name == TOPIC
    return answered.partitions


def offset(handler, timestamp=LATEST, **options):
    """(error, timestamp, offset, leader epoch) of partition 0."""
    (found,) = ask(handler, timestamp, **options)
    return found.error_code, found.timestamp, found.offset, getattr(found, "leader_epoch", -1)


@pytest.mark.parametrize("version", range(1, NEWEST + 1))
def test_the_ends_of_a_log(broker: Broker, handler, version: int) -> None:
    partition = broker.lead(epoch=3)
    broker.append(5)
    partition.log.advance_log_start(2)
    epoch = 3 if version >= 4 else -1
    assert offset(handler, EARLIEST, version=version) == (ErrorCode.NONE, -1, 2, epoch)
    assert offset(handler, LATEST, version=version) == (ErrorCode.NONE, -1, 5, epoch)


def append_at(broker: Broker, *times_ms: int) -> None:
    for time_ms in times_ms:
        data = batch(now_ms=time_ms)
        broker.replicas.partitions[TOPIC, 0].append(memoryview(data), -1, broker.clock())


def test_a_time_is_the_first_record_at_or_after_it(broker: Broker, handler) -> None:
    broker.lead()
    append_at(broker, START_MS + 10, START_MS + 30, START_MS + 20)
    found = [offset(handler, START_MS + after)[1:3] for after in (0, 10, 11, 30, 31)]
    assert found == [(START_MS + 10, 0), (START_MS + 10, 0), (START_MS + 30, 1), (START_MS + 30, 1), (-1, -1)]


def test_the_largest_timestamp(broker: Broker, handler) -> None:
    broker.lead()
    assert offset(handler, MAX_TIMESTAMP) == (ErrorCode.NONE, -1, -1, -1)
    append_at(broker, START_MS + 10, START_MS + 30, START_MS + 20)
    assert offset(handler, MAX_TIMESTAMP) == (ErrorCode.NONE, START_MS + 30, 1, 0)


def test_nothing_is_tiered(broker: Broker, handler) -> None:
    broker.lead()
    broker.append()
    assert offset(handler, EARLIEST_LOCAL) == (ErrorCode.NONE, -1, 0, 0)
    assert offset(handler, LATEST_TIERED) == (ErrorCode.NONE, -1, -1, -1)


@pytest.mark.parametrize(
    ("timestamp", "since"), [(MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (-6, 100)]
)
def test_special_times_are_unknown_to_older_versions(broker: Broker, handler, timestamp, since) -> None:
    broker.lead()
    for version in range(1, NEWEST + 1):
        expected = ErrorCode.NONE if version >= since else ErrorCode.UNSUPPORTED_VERSION
        assert offset(handler, timestamp, version=version)[0] == expected


class TestWhatAClientMaySee:
    @pytest.fixture
    def partition(self, broker):
        """Offsets 0 to 4, of which 0 to 2 are replicated."""
        partition = broker.lead(replicas=(BROKER, OTHER_BROKER))
        append_at(broker, *(START_MS + 10 * n for n in range(5)))
        broker.follow(3)
        return partition

    def test_clients_see_up_to_the_high_watermark_followers_all(self, handler, partition) -> None:
        assert offset(handler)[2] == 3
        assert offset(handler, replica_id=OTHER_BROKER)[2] == 5

    def test_a_time_beyond_the_high_watermark_has_no_offset_yet(self, handler, partition) -> None:
        assert offset(handler, START_MS + 20)[2] == 2
        assert offset(handler, START_MS + 30) == (ErrorCode.NONE, -1, -1, -1)
        assert offset(handler, MAX_TIMESTAMP) == (ErrorCode.NONE, -1, -1, -1)
        assert offset(handler, START_MS + 30, replica_id=OTHER_BROKER)[2] == 3

    def test_read_committed_sees_up_to_the_last_stable_offset(self, broker, handler) -> None:
        broker.lead()
        broker.append()
        broker.append(producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)
        broker.append()
        assert (offset(handler)[2], offset(handler, committed=True)[2]) == (3, 1)
        broker.end_transaction(aborted=True)
        assert offset(handler, committed=True)[2] == 4

    @pytest.mark.parametrize("timestamp", [LATEST, START_MS + 30, MAX_TIMESTAMP])
    def test_a_new_leader_whose_high_watermark_is_behind_cannot_say(
        self, broker, handler, partition, timestamp
    ) -> None:
        broker.lead(epoch=1, replicas=(BROKER, OTHER_BROKER))
        assert offset(handler, timestamp, version=7)[0] == ErrorCode.OFFSET_NOT_AVAILABLE
        if timestamp != MAX_TIMESTAMP:
            assert offset(handler, timestamp, version=4)[0] == ErrorCode.LEADER_NOT_AVAILABLE
        assert offset(handler, timestamp, replica_id=OTHER_BROKER)[0] == ErrorCode.NONE
        assert offset(handler, EARLIEST)[0] == ErrorCode.NONE
        assert offset(handler, START_MS)[2] == 0, "what is replicated can be told"
        broker.follow(5)
        assert offset(handler, timestamp)[0] == ErrorCode.NONE


class TestWhereThePartitionIsNot:
    def test_unknown_elsewhere_and_on_a_failed_disk(self, broker, handler) -> None:
        assert offset(handler)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        broker.tell(leader=OTHER_BROKER)
        assert offset(handler) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1, -1)
        partition = broker.lead()
        broker.replicas.directory_failed([partition.topic_partition])
        assert offset(handler)[0] == ErrorCode.KAFKA_STORAGE_ERROR

    def test_only_the_leader_answers_unless_a_tool_asks(self, broker, handler) -> None:
        broker.lead(leader=OTHER_BROKER, replicas=(BROKER, OTHER_BROKER))
        assert offset(handler)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert offset(handler, replica_id=-2)[0] == ErrorCode.NONE

    def test_epochs_are_fenced(self, broker, handler) -> None:
        broker.lead(epoch=4)
        errors = [offset(handler, epoch=epoch)[0] for epoch in (3, 4, 5)]
        assert errors == [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NONE, ErrorCode.UNKNOWN_LEADER_EPOCH]

    def test_a_partition_named_twice_is_an_invalid_request(self, broker, handler) -> None:
        broker.lead(), broker.lead(partition=1)
        errors = [found.error_code for found in ask(handler, partitions=(0, 1, 0))]
        assert errors == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE, ErrorCode.INVALID_REQUEST]

    def test_a_disk_that_fails_is_a_storage_error_and_is_reported(self, broker, handler, monkeypatch) -> None:
        partition = broker.lead()
        append_at(broker, START_MS)

        def fails(position):
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(partition.log.segments.active, "batch_at", fails)
        assert offset(handler, START_MS)[0] == ErrorCode.KAFKA_STORAGE_ERROR
        assert [where for where, _ in broker.logs.background.failures] == [partition.topic_partition]

    def test_a_damaged_batch_is_told(self, broker, handler) -> None:
        partition = broker.lead()
        append_at(broker, START_MS)
        segment = partition.log.segments.active
        with open(segment.file.path, "r+b") as file:
            file.seek(61)
            file.write(b"\xff" * 8)
        assert offset(handler, START_MS)[0] == ErrorCode.CORRUPT_MESSAGE


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(times=st.lists(st.integers(0, 50), min_size=1, max_size=12), asked=st.integers(0, 60))
def test_any_time_finds_what_a_scan_would_find(tmp_path_factory, times: list[int], asked: int) -> None:
    broker = Broker(tmp_path_factory.mktemp("log"))
    broker.lead()
    append_at(broker, *(START_MS + time for time in times))
    first = next((n for n, time in enumerate(times) if time >= asked), -1)
    assert offset(ListOffsetsHandler(broker.lookup, broker.clock), START_MS + asked)[2] == first


@pytest.mark.parametrize("level", [-1, 2])
def test_other_isolation_levels_than_kafkas_are_a_servers_error_to_consumers(broker, handler, level) -> None:
    broker.lead()
    (refused,) = ask(handler, committed=level)
    (unheeded,) = ask(handler, committed=level, replica_id=-2)
    (unsupported,) = ask(handler, -9, committed=level)
    errors = [each.error_code for each in (refused, unheeded, unsupported)]
    assert errors == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION]
