"""Fetch: what is read, how much, until when it waits, and what is answered where nothing can be read."""

from __future__ import annotations

import random
from pathlib import Path
from uuid import UUID

import pytest

from klog.formats.epochs import EpochEnd
from klog.formats.errors import UsageError
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import MalformedMessageError
from klog.protocol.fetch_request import FetchPartition, FetchRequest, FetchTopic, encode_fetch_request
from klog.protocol.fetch_response import (
    NOT_DIVERGING,
    FetchResponse,
    PartitionFetched,
    decode_fetch_response,
)
from klog.protocol.file_slice import FileSlice
from klog.protocol.leader_hints import NO_HINT, LeaderHint, NodeEndpoint
from klog.server.handlers.data.fetch import FetchHandler
from klog.server.handlers.data.fetch_sessions import FetchSessions
from tests.server.handlers.parts import (
    BROKER,
    OTHER_BROKER,
    TOPIC,
    TOPIC_ID,
    TOPIC_UUID,
    Broker,
    FakeRequest,
    batch,
)

LATEST = 17
ALL_VERSIONS = range(4, LATEST + 1)
MAX_BYTES = 57_671_680


def wants(partition=0, offset=0, *, epoch=-1, fetched_epoch=-1, max_bytes=1 << 20) -> FetchPartition:
    return FetchPartition(partition, epoch, offset, fetched_epoch, -1, max_bytes)


def fetch_request(
    *partitions: FetchPartition,
    version=LATEST,
    topic=TOPIC,
    topic_id=TOPIC_UUID,
    max_wait_ms=0,
    min_bytes=1,
    max_bytes=MAX_BYTES,
    committed=False,
    **fields,
) -> FakeRequest:
    topics = [FetchTopic(topic, topic_id, list(partitions))] if partitions else []
    fetch = FetchRequest(max_wait_ms, min_bytes, max_bytes, int(committed), topics, **fields)
    return FakeRequest(1, version, memoryview(encode_fetch_request(version, fetch)))


def handler_of(broker: Broker, max_bytes: int = MAX_BYTES) -> FetchHandler:
    sessions = FetchSessions(10, broker.clock, lambda: random.randint(1, 2**31 - 1))
    return FetchHandler(
        broker.lookup, sessions, broker.fetch_purgatory, broker.clock, max_bytes, broker.topic_stats
    )


@pytest.fixture
def handler(broker: Broker) -> FetchHandler:
    return handler_of(broker)


def response(request: FakeRequest) -> FetchResponse:
    return decode_fetch_response(request.api_version, request.answer)


def fetched(request: FakeRequest) -> PartitionFetched:
    ((_, _, (found,)),) = response(request).topics
    return found


def fetch(handler: FetchHandler, *partitions: FetchPartition, **options) -> FakeRequest:
    request = fetch_request(*(partitions or (wants(),)), **options)
    handler.handle(request)
    return request


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_batches_are_answered_as_they_stand_in_the_log(
    broker: Broker, handler: FetchHandler, version: int
) -> None:
    broker.lead()
    written = broker.append(3)
    request = fetch(handler, wants(offset=1), version=version)
    found = fetched(request)
    assert bytes(found.records) == written[1] + written[2]
    assert found[:5] == (0, ErrorCode.NONE, 3, 3, 0 if version >= 5 else -1)
    assert found.aborted_transactions is None


def test_records_are_a_slice_of_the_segments_open_file(broker: Broker, handler: FetchHandler) -> None:
    log = broker.lead().log
    broker.append()
    parts = fetch(handler).parts
    (piece,) = (part for part in parts if isinstance(part, FileSlice))
    assert piece.file is log.segments.active.file


def test_the_topic_comes_back_under_the_name_or_id_it_was_asked_by(
    broker: Broker, handler: FetchHandler
) -> None:
    broker.lead()
    broker.append()
    assert response(fetch(handler, version=12)).topics[0][:2] == (TOPIC, None)
    assert response(fetch(handler, version=13)).topics[0][:2] == (None, TOPIC_UUID)


class TestSizes:
    def test_the_first_batch_comes_whole_however_large_it_is(self, broker, handler) -> None:
        broker.lead()
        written = broker.append(2)
        assert bytes(fetched(fetch(handler, wants(max_bytes=1))).records) == written[0]
        assert bytes(fetched(fetch(handler, max_bytes=1)).records) == written[0]

    def test_only_the_first_partition_with_records_may_exceed_the_limits(self, broker, handler) -> None:
        for partition in (0, 1, 2):
            broker.lead(partition=partition)
        first, second = broker.append(partition=1), broker.append(partition=2)
        request = fetch(handler, wants(0), wants(1, max_bytes=1), wants(2, max_bytes=1))
        sizes = [len(each.records) for each in response(request).topics[0].partitions]
        assert sizes == [0, len(first[0]), 0]
        request = fetch(handler, wants(1), wants(2), max_bytes=len(first[0]) + len(second[0]))
        assert all(len(each.records) for each in response(request).topics[0].partitions)

    def test_the_response_is_no_larger_than_the_request_allows(self, broker, handler) -> None:
        broker.lead()
        size = len(broker.append(5)[0])
        assert len(fetched(fetch(handler, max_bytes=3 * size)).records) == 3 * size

    def test_a_last_batch_may_be_cut(self, broker, handler) -> None:
        broker.lead()
        size = len(broker.append(5)[0])
        assert len(fetched(fetch(handler, wants(max_bytes=2 * size + 9))).records) == 2 * size + 9

    def test_fetch_max_bytes_caps_what_a_client_may_ask_for(self, broker) -> None:
        broker.lead()
        size = len(broker.append(5)[0])
        capped = handler_of(broker, max_bytes=2 * size)
        request = fetch(capped, min_bytes=100 * size, max_wait_ms=60_000)
        assert len(fetched(request).records) == 2 * size, "the least is capped as well: nothing to wait for"


class TestWaiting:
    def test_a_fetch_waits_for_an_append(self, broker, handler) -> None:
        broker.lead()
        request = fetch(handler, max_wait_ms=500)
        assert (request.answered, broker.fetch_purgatory.waiting) == (False, 1)
        written = broker.append()
        assert bytes(fetched(request).records) == written[0]
        assert (broker.fetch_purgatory.waiting, broker.fetch_purgatory.watched, len(broker.timer)) == (
            0,
            0,
            0,
        )

    def test_one_answer_has_the_records_of_all_requests_that_were_received_together(
        self, broker, handler
    ) -> None:
        broker.lead()
        request = fetch(handler, max_wait_ms=500)
        request.later = []
        written = b"".join(map(bytes, broker.append(3)))
        assert (request.answered, len(request.later), broker.fetch_purgatory.waiting) == (False, 1, 0)
        request.later[0]()
        assert bytes(fetched(request).records) == written

    def test_a_fetch_waits_for_as_many_bytes_as_it_wants(self, broker, handler) -> None:
        broker.lead()
        size = len(batch())
        request = fetch(handler, max_wait_ms=500, min_bytes=3 * size)
        broker.append(2)
        assert not request.answered
        broker.append()
        assert len(fetched(request).records) == 3 * size

    def test_bytes_of_all_partitions_count(self, broker, handler) -> None:
        broker.lead(partition=0), broker.lead(partition=1)
        request = fetch(handler, wants(0), wants(1), max_wait_ms=500, min_bytes=2 * len(batch()))
        broker.append(partition=0)
        assert not request.answered
        broker.append(partition=1)
        assert [len(each.records) for each in response(request).topics[0].partitions] == [len(batch())] * 2

    def test_no_more_counts_than_a_partition_may_give(self, broker, handler) -> None:
        broker.lead()
        size = len(batch())
        request = fetch(handler, wants(max_bytes=size), max_wait_ms=500, min_bytes=size + 1)
        broker.append(3)
        assert not request.answered
        broker.pass_time(500)
        assert len(fetched(request).records) == size

    def test_an_append_between_the_read_and_the_waiting_is_not_missed(
        self, broker, handler, monkeypatch
    ) -> None:
        broker.lead()
        watch = broker.fetch_purgatory.watch

        def too_late(operation, keys) -> bool:
            broker.append()
            return watch(operation, keys)

        monkeypatch.setattr(broker.fetch_purgatory, "watch", too_late)
        assert len(fetched(fetch(handler, max_wait_ms=500)).records) == len(batch())

    def test_when_the_time_is_over_what_is_there_is_answered(self, broker, handler) -> None:
        broker.lead()
        request = fetch(handler, max_wait_ms=500, min_bytes=1 << 20)
        written = broker.append()
        broker.pass_time(499)
        assert not request.answered
        broker.pass_time(1)
        assert bytes(fetched(request).records) == written[0]

    @pytest.mark.parametrize(("max_wait_ms", "min_bytes"), [(0, 1), (-1, 1), (500, 0)])
    def test_who_does_not_want_to_wait_does_not(self, broker, handler, max_wait_ms, min_bytes) -> None:
        broker.lead()
        request = fetch(handler, max_wait_ms=max_wait_ms, min_bytes=min_bytes)
        assert bytes(fetched(request).records) == b""

    def test_partitions_that_the_cluster_does_not_know_are_told_when_the_others_are_ready(
        self, broker, handler
    ) -> None:
        broker.lead()
        request = fetch(handler, wants(1), wants(0), max_wait_ms=500)
        assert not request.answered
        broker.append()
        first, second = response(request).topics[0].partitions
        assert (first.partition, first.error_code) == (0, ErrorCode.NONE)
        assert (second.partition, second.error_code) == (1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def test_an_error_of_a_partition_is_told_at_once(self, broker, handler) -> None:
        broker.lead()
        broker.lead(partition=1)
        errors = [
            each.error_code
            for each in response(fetch(handler, wants(0), wants(1, offset=9), max_wait_ms=500))
            .topics[0]
            .partitions
        ]
        assert errors == [ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE]

    def test_records_that_are_not_replicated_are_no_reason_to_answer(self, broker, handler) -> None:
        broker.lead(replicas=(BROKER, OTHER_BROKER))
        request = fetch(handler, max_wait_ms=500)
        (written,) = broker.append()
        assert not request.answered
        broker.follow(1)
        assert bytes(fetched(request).records) == written

    def test_losing_leadership_ends_the_waiting(self, broker, handler) -> None:
        broker.lead(replicas=(BROKER, OTHER_BROKER))
        request = fetch(handler, max_wait_ms=500, version=10)
        broker.lead(leader=OTHER_BROKER, epoch=1, replicas=(BROKER, OTHER_BROKER))
        assert fetched(request).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_a_failed_directory_ends_the_waiting(self, broker, handler) -> None:
        partition = broker.lead()
        request = fetch(handler, max_wait_ms=500)
        broker.replicas.directory_failed([partition.topic_partition])
        assert fetched(request).error_code == ErrorCode.KAFKA_STORAGE_ERROR

    def test_a_roll_ends_the_waiting_with_what_there_is(self, broker, handler) -> None:
        log = broker.lead().log
        broker.append()
        request = fetch(handler, wants(offset=0), max_wait_ms=500, min_bytes=1 << 20)
        log.roll()
        broker.append()
        assert len(fetched(request).records) == len(batch()), "the rest of the old segment"

    def test_beyond_the_high_watermark_there_is_nothing_to_wait_for(self, broker, handler) -> None:
        broker.lead(replicas=(BROKER, OTHER_BROKER))
        broker.append(2)
        found = fetched(fetch(handler, wants(offset=1), max_wait_ms=500))
        assert (found.error_code, found.high_watermark, len(found.records)) == (ErrorCode.NONE, 0, 0)

    def test_a_fetch_below_a_limit_that_holds_it_back_waits_for_the_limit(self, broker, handler) -> None:
        broker.lead(replicas=(BROKER, OTHER_BROKER))
        broker.append(3)
        request = fetch(handler, wants(offset=0), max_wait_ms=500, min_bytes=2 * len(batch()))
        for end in (1, 2):
            assert not request.answered
            broker.follow(end)
        assert len(fetched(request).records) == 2 * len(batch())


class TestIsolation:
    def append(self, broker, base_sequence) -> None:
        """A batch of an open transaction."""
        broker.append(producer_id=9, producer_epoch=0, is_transactional=True, base_sequence=base_sequence)

    def test_read_committed_stops_at_the_first_open_transaction(self, broker, handler) -> None:
        broker.lead()
        broker.append()
        self.append(broker, base_sequence=0)
        found = fetched(fetch(handler, committed=True))
        assert (found.high_watermark, found.last_stable_offset) == (2, 1)
        assert (len(found.records), found.aborted_transactions) == (len(batch()), [])
        assert len(fetched(fetch(handler)).records) == 2 * len(batch())

    def test_read_committed_waits_for_the_end_of_the_transaction(self, broker, handler) -> None:
        broker.lead()
        self.append(broker, base_sequence=0)
        request = fetch(handler, max_wait_ms=500, committed=True)
        broker.append()
        assert not request.answered
        broker.end_transaction(aborted=False)
        assert fetched(request).last_stable_offset == 3

    def test_read_committed_waits_until_the_marker_is_replicated(self, broker, handler) -> None:
        broker.lead(replicas=(BROKER, OTHER_BROKER))
        self.append(broker, base_sequence=0)
        broker.follow(1)
        broker.end_transaction(aborted=False)
        request = fetch(handler, max_wait_ms=500, committed=True)
        assert not request.answered
        broker.follow(2)
        assert fetched(request).last_stable_offset == 2

    def test_an_ended_transaction_without_a_replicated_marker_holds_up_all_after_it(
        self, broker, handler
    ) -> None:
        broker.lead(replicas=(BROKER, OTHER_BROKER))
        self.append(broker, base_sequence=0)
        broker.end_transaction(aborted=True)
        self.append(broker, base_sequence=1)
        broker.follow(1)
        log = broker.replicas.partitions[TOPIC, 0].log
        assert (log.high_watermark, log.last_stable_offset) == (1, 0)
        assert fetched(fetch(handler, committed=True)).records == b""
        broker.follow(3)
        assert (log.high_watermark, log.last_stable_offset) == (3, 2)
        assert fetched(fetch(handler, committed=True)).aborted_transactions == [(9, 0)]

    def test_aborted_transactions_are_named(self, broker, handler) -> None:
        broker.lead()
        self.append(broker, base_sequence=0)
        broker.end_transaction(aborted=True)
        self.append(broker, base_sequence=1)
        broker.end_transaction(aborted=False)
        found = fetched(fetch(handler, committed=True))
        assert found.aborted_transactions == [(9, 0)]
        assert found.last_stable_offset == 4


class TestEpochs:
    def test_an_older_epoch_is_fenced_and_a_newer_one_unknown(self, broker, handler) -> None:
        broker.lead(epoch=5)
        broker.append()
        errors = [
            fetched(fetch(handler, wants(epoch=epoch), version=9)).error_code for epoch in (4, 5, 6, -1)
        ]
        assert errors == [
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            ErrorCode.NONE,
        ]

    def test_a_reader_whose_history_diverges_is_told_where(self, broker, handler) -> None:
        broker.lead(epoch=1)
        broker.append(3)
        broker.lead(epoch=4)
        broker.append(2)
        found = fetched(fetch(handler, wants(offset=4, fetched_epoch=2)))
        assert (found.error_code, found.diverging_epoch, found.high_watermark) == (
            ErrorCode.NONE,
            EpochEnd(1, 3),
            5,
        )
        assert (bytes(found.records), found.aborted_transactions) == (b"", None)

    def test_a_reader_that_agrees_reads_on(self, broker, handler) -> None:
        broker.lead(epoch=1)
        broker.append(3)
        broker.lead(epoch=4)
        broker.append(2)
        found = fetched(fetch(handler, wants(offset=3, fetched_epoch=1)))
        assert (found.diverging_epoch, len(found.records)) == (NOT_DIVERGING, 2 * len(batch()))

    def test_an_epoch_that_is_not_known_here_is_out_of_range(self, broker, handler) -> None:
        broker.lead(epoch=1)
        broker.append()
        found = fetched(fetch(handler, wants(offset=1, fetched_epoch=2)))
        assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    def test_below_the_log_start_divergence_does_not_matter(self, broker, handler) -> None:
        partition = broker.lead(epoch=1)
        broker.append(3)
        broker.lead(epoch=4)
        broker.append(3)
        partition.log.advance_log_start(5)
        found = fetched(fetch(handler, wants(offset=4, fetched_epoch=2)))
        assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_batch_that_cannot_be_found_for_damage_before_it_is_corrupt(
    broker: Broker, handler: FetchHandler
) -> None:
    partition = broker.lead()
    size_bytes = len(broker.append(3)[0])
    with (Path(partition.log.directory) / f"{0:020}.log").open("r+b") as log:
        log.seek(size_bytes + 8)  # the length of the second batch
        log.write((3).to_bytes(4, "big"))
    assert fetched(fetch(handler, wants(offset=0, max_bytes=1))).error_code == ErrorCode.NONE
    found = fetched(fetch(handler, wants(offset=2)))
    assert (found.error_code, bytes(found.records)) == (ErrorCode.CORRUPT_MESSAGE, b"")


class TestWhereThePartitionIsNot:
    @pytest.mark.parametrize("offset", [-1, 0, 4, 1 << 40])
    def test_offsets_outside_of_the_log_are_out_of_range(self, broker, handler, offset) -> None:
        partition = broker.lead()
        broker.append(3)
        partition.log.advance_log_start(1)
        found = fetched(fetch(handler, wants(offset=offset)))
        assert found[:5] == (0, ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1, -1)
        assert bytes(found.records) == b""

    def test_an_unknown_topic(self, broker, handler) -> None:
        found = fetched(fetch(handler, version=12))
        assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    @pytest.mark.parametrize("topic_id", [UUID(int=0), UUID(int=77)])
    def test_an_unknown_topic_id(self, broker, handler, topic_id) -> None:
        broker.lead()
        request = fetch(handler, topic_id=topic_id)
        assert fetched(request).error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert response(request).topics[0].topic_id == topic_id

    def test_a_topic_that_was_made_anew_has_another_id(self, broker, handler) -> None:
        broker.lead(topic_id="AAAAAAAAAAAAAAAAAAAAAQ", tell=False)
        broker.tell(topic_id=TOPIC_ID)
        assert fetched(fetch(handler)).error_code == ErrorCode.INCONSISTENT_TOPIC_ID

    def test_below_version_13_ids_do_not_matter(self, broker, handler) -> None:
        broker.lead(topic_id=None, tell=False)
        broker.tell(topic_id=TOPIC_ID)
        broker.append()
        assert fetched(fetch(handler, version=12)).error_code == ErrorCode.NONE
        assert fetched(fetch(handler, version=13)).error_code == ErrorCode.NONE

    def test_a_replica_elsewhere_is_answered_with_its_leader(self, broker, handler) -> None:
        broker.tell(leader=OTHER_BROKER, epoch=6)
        request = fetch(handler, version=16)
        found = fetched(request)
        assert (found.error_code, found.current_leader) == (
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            LeaderHint(OTHER_BROKER, 6),
        )
        assert response(request).node_endpoints == (NodeEndpoint(OTHER_BROKER, "host2", 9092, "rack2"),)
        assert fetched(fetch(handler, version=15)).current_leader == NO_HINT

    def test_a_fenced_reader_is_told_the_new_epoch(self, broker, handler) -> None:
        broker.lead(epoch=6)
        found = fetched(fetch(handler, wants(epoch=5)))
        assert (found.error_code, found.current_leader) == (
            ErrorCode.FENCED_LEADER_EPOCH,
            LeaderHint(BROKER, 6),
        )

    def test_a_storage_error_is_not_leader_to_old_clients(self, broker, handler) -> None:
        partition = broker.lead()
        broker.replicas.directory_failed([partition.topic_partition])
        errors = [fetched(fetch(handler, version=version)).error_code for version in (5, 6)]
        assert errors == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR]

    def test_consumers_read_from_followers_from_version_11(self, broker, handler) -> None:
        broker.lead(epoch=0, replicas=(BROKER, OTHER_BROKER), isr=(BROKER,))
        broker.append()
        broker.lead(epoch=1, leader=OTHER_BROKER, replicas=(BROKER, OTHER_BROKER))
        assert fetched(fetch(handler, version=10)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert len(fetched(fetch(handler, version=11)).records) == len(batch())

    def test_followers_read_to_the_end_from_the_leader_only(self, broker, handler) -> None:
        broker.lead(replicas=(BROKER, OTHER_BROKER))
        broker.append()
        assert len(fetched(fetch(handler, replica_id=OTHER_BROKER)).records) == len(batch())
        broker.lead(epoch=1, leader=OTHER_BROKER, replicas=(BROKER, OTHER_BROKER))
        refused = fetched(fetch(handler, replica_id=OTHER_BROKER))
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_zstd_topics_are_refused_before_version_10(tmp_path) -> None:
    broker = Broker(tmp_path, {TOPIC: {"compression.type": "zstd"}})
    broker.lead()
    broker.append()
    handler = handler_of(broker)
    errors = [fetched(fetch(handler, version=version)).error_code for version in (9, 10)]
    assert errors == [ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.NONE]
    beyond = fetched(fetch(handler, wants(offset=9), version=9))
    assert (beyond.error_code, beyond.records) == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, None)


def test_what_is_no_fetch_request_is_said_to_be_malformed(handler: FetchHandler) -> None:
    with pytest.raises(MalformedMessageError):
        handler.handle(FakeRequest(1, 12, memoryview(b"\x00" * 7)))


def test_a_request_that_could_not_be_handled_has_its_error_on_top(handler: FetchHandler) -> None:
    parts = handler.failed(fetch_request(version=17), ErrorCode.UNKNOWN_SERVER_ERROR)
    assert decode_fetch_response(17, b"".join(parts)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("version", range(4, 13))
def test_versions_without_topic_ids_have_the_error_of_a_request_in_every_partition(
    handler: FetchHandler, version: int
) -> None:
    request = fetch_request(wants(0), wants(3), version=version)
    answer = decode_fetch_response(version, b"".join(handler.failed(request, ErrorCode.UNKNOWN_SERVER_ERROR)))
    ((topic, _, partitions),) = answer.topics
    assert (topic, [(each.partition, each.error_code) for each in partitions]) == (TOPIC, [(0, -1), (3, -1)])
    assert answer.error_code == (ErrorCode.UNKNOWN_SERVER_ERROR if version >= 7 else ErrorCode.NONE)


@pytest.mark.parametrize("level", [-1, 2])
def test_other_isolation_levels_than_kafkas_are_refused(handler: FetchHandler, level: int) -> None:
    with pytest.raises(UsageError):
        fetch(handler, committed=level)


def nothing_of(answer: FetchResponse) -> tuple:
    ((_, _, (found,)),) = answer.topics
    return found.aborted_transactions, found.records


def test_errors_are_null_where_kafkas_are_and_empty_where_those_are(tmp_path) -> None:
    broker = Broker(tmp_path, {TOPIC: {"compression.type": "zstd"}})
    broker.lead()
    handler = handler_of(broker)
    not_read = fetch(handler, wants(offset=9), version=12)
    not_known = fetch(handler, wants(8), version=12)
    too_old = fetch(handler, version=9)
    failed = handler.failed(fetch_request(wants(), version=12), ErrorCode.UNKNOWN_SERVER_ERROR)
    assert nothing_of(response(not_read)) == (None, b"")
    assert nothing_of(response(not_known)) == ([], b"")
    assert nothing_of(response(too_old)) == ([], None)
    assert nothing_of(decode_fetch_response(12, b"".join(failed))) == ([], None)


@pytest.mark.parametrize(("replica_id", "transactions"), [(-1, []), (-2, []), (OTHER_BROKER, None)])
def test_transactions_are_told_to_who_reads_what_is_committed(
    broker: Broker, handler: FetchHandler, replica_id: int, transactions: list | None
) -> None:
    broker.lead(replicas=(BROKER, OTHER_BROKER))
    broker.append()
    found = fetched(fetch(handler, committed=True, replica_id=replica_id))
    assert (bool(found.records), found.aborted_transactions) == (transactions is None, transactions)


def test_topics_of_unknown_ids_are_told_before_unknown_partitions(
    broker: Broker, handler: FetchHandler
) -> None:
    broker.lead()
    unknown = UUID(int=1)
    topics = [
        FetchTopic(None, TOPIC_UUID, [wants(8), wants(0)]),
        FetchTopic(None, unknown, [wants(0)]),
    ]
    body = encode_fetch_request(LATEST, FetchRequest(0, 1, MAX_BYTES, 0, topics))
    request = FakeRequest(1, LATEST, memoryview(body))
    handler.handle(request)
    told = [(topic_id, [each.partition for each in found]) for _, topic_id, found in response(request).topics]
    assert told == [(TOPIC_UUID, [0]), (unknown, [0]), (TOPIC_UUID, [8])]
