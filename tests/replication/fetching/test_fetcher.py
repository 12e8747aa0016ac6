"""A follower's fetcher: its requests, what it takes from answers, and how it reacts to each error."""

from __future__ import annotations

import logging

import pytest

from klog.formats.epochs import EpochEnd
from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode
from klog.protocol.fetch_request import FetchPartition
from klog.protocol.fetch_response import PartitionFetched
from klog.replication.fetching.following import start_of
from klog.replication.fetching.partition_fetch import Mode
from klog.replication.fetching.values import (
    AskEpochEnds,
    AskOffsets,
    EpochAnswered,
    EpochAsked,
    FetchSettings,
    FetchStart,
    OffsetAnswered,
    fetch_version,
)
from tests.replication.fetching.parts import BROKER_EPOCH, KEY, Copying, Throttle, content, offsets
from tests.server.handlers.parts import OTHER_BROKER, TOPIC, TOPIC_UUID, batch

SECOND = TopicPartition(TOPIC, 1)
EARLIEST, LATEST = -2, -1


@pytest.fixture
def copying(tmp_path) -> Copying:
    """Broker 2 follows broker 1 in epoch 3; the leader has three records."""
    copying = Copying(tmp_path)
    copying.elect(3)
    copying.leader.append(3)
    return copying


def caught_up(copying: Copying) -> None:
    copying.steps()
    copying.steps()
    assert content(copying.follower.log()) == content(copying.leader.log())


# -- requests ------------------------------------------------------------------------------------------------


def test_a_fetch_carries_the_follower_s_epochs_and_offsets(copying: Copying) -> None:
    caught_up(copying)
    copying.fetcher.failed(copying.next_fetch(), copying.now_ms)
    copying.pass_time(1000)
    fetch = copying.next_fetch()
    assert fetch.version == 17
    request = fetch.request
    assert request[:4] == (500, 1, 10 << 20, 0)
    assert (request.replica_id, request.replica_epoch, request.rack_id) == (2, BROKER_EPOCH, "")
    ((name, topic_id, (asked,)),) = request.topics
    assert (name, topic_id) == (TOPIC, TOPIC_UUID)
    assert asked == FetchPartition(0, 3, 3, 3, 0, 1 << 20)


def test_an_empty_log_is_fetched_from_its_start_without_a_last_epoch(copying: Copying) -> None:
    assert copying.asked() == {KEY: FetchPartition(0, 3, 0, -1, 0, 1 << 20)}


@pytest.mark.parametrize(
    ("protocol", "version"),
    [
        ("3.9", 17),
        ("3.8", 16),
        ("3.7-IV4", 16),
        ("3.6", 15),
        ("3.5-IV1", 15),
        ("3.5-IV0", 14),
        ("3.4", 13),
        ("3.1", 13),
        ("3.0", 12),
        ("2.7", 12),
        ("2.7-IV0", 11),
        ("2.2", 10),
        ("2.0", 8),
        ("1.1", 7),
        ("0.11.0", 5),
        ("0.10.2", 4),
    ],
)
def test_the_version_follows_the_inter_broker_protocol(protocol: str, version: int) -> None:
    assert fetch_version(protocol) == version
    settings = FetchSettings.for_protocol(2, protocol, backoff_ms=7)
    assert (settings.max_version, settings.backoff_ms) == (version, 7)
    assert settings.truncates_on_fetch == (version >= 12)


def test_a_topic_without_an_id_is_named_until_its_id_is_known(tmp_path) -> None:
    copying = Copying(tmp_path)
    copying.elect(0, topic_id=None)
    copying.leader.append(1)
    fetch = copying.next_fetch()
    assert (fetch.version, fetch.request.topics[0].topic_id) == (12, None)
    copying.fetcher.answered(fetch, copying.leader.answer(fetch), copying.now_ms)
    for node in (copying.leader, copying.follower):
        assert node.partition().identify("t0p1cAAAAAAAAAAAAAAAAA")
    copying.pass_time(500)
    fetch = copying.next_fetch()
    assert (fetch.version, fetch.request.topics[0].topic_id) == (17, TOPIC_UUID)
    assert fetch.request.session_epoch == 0
    copying.fetcher.answered(fetch, copying.leader.answer(fetch), copying.now_ms)
    caught_up(copying)


def test_in_a_session_only_what_has_changed_is_named(copying: Copying) -> None:
    copying.elect(0, partition=1)
    copying.step()
    assert offsets(copying.asked()) == {0: 3}


def test_a_log_start_offset_that_retention_moves_is_reported(copying: Copying) -> None:
    caught_up(copying)
    log = copying.follower.log()
    log.set_high_watermark(2)
    log.advance_log_start(2)
    copying.pass_time(500)
    assert copying.asked()[KEY].log_start_offset == 2


def test_there_is_nothing_to_send_without_partitions(copying: Copying) -> None:
    copying.fetcher.remove([KEY])
    assert copying.next_request() is None
    assert copying.fetcher.idle_ms(copying.now_ms) == 1000


# -- what is taken from an answer ----------------------------------------------------------------------------


def test_records_high_watermark_and_log_start_are_taken_over(copying: Copying) -> None:
    progress = copying.step()
    assert progress.record_bytes == len(content(copying.leader.log()))
    log = copying.follower.log()
    assert (log.log_end_offset, log.high_watermark, log.epochs.latest) == (3, 0, 3)
    # The leader learns of the records with the next fetch. It answers with the high watermark before that.
    copying.step()
    progress = copying.step()
    assert (log.high_watermark, progress.high_watermark_moved) == (3, [KEY])
    copying.leader.partition().delete_records(2)
    copying.step()
    assert log.log_start_offset == 2
    assert copying.fetcher.states[KEY].lag == 0


def test_the_high_watermark_of_a_follower_may_fall(copying: Copying) -> None:
    caught_up(copying)
    copying.answers(copying.next_fetch(), PartitionFetched(0, 0, 1, log_start_offset=0))
    assert copying.follower.log().high_watermark == 1


def test_the_high_watermark_stays_within_the_own_log(copying: Copying) -> None:
    caught_up(copying)
    copying.answers(copying.next_fetch(), PartitionFetched(0, 0, 99, log_start_offset=0))
    assert copying.follower.log().high_watermark == 3
    assert copying.fetcher.states[KEY].lag == 96


def test_an_answer_to_another_offset_or_epoch_is_not_used(copying: Copying) -> None:
    fetch = copying.next_fetch()
    copying.follow(4)  # in another epoch, from the same offset
    copying.fetcher.answered(fetch, copying.leader.answer(fetch), copying.now_ms)
    assert copying.follower.log().log_end_offset == 0


def test_a_high_watermark_that_was_not_used_is_sent_again(copying: Copying) -> None:
    copying.step()
    copying.step()
    fetch = copying.next_fetch()
    answer = copying.leader.answer(fetch)  # to the leader, the follower knows the high watermark now
    copying.elect(4)
    copying.fetcher.answered(fetch, answer, copying.now_ms)
    log = copying.follower.log()
    assert (log.log_end_offset, log.high_watermark) == (3, 0)
    copying.step()
    assert log.high_watermark == 3


def test_a_replica_that_leads_meanwhile_takes_nothing(copying: Copying) -> None:
    fetch = copying.next_fetch()
    copying.follower.lead(leader=OTHER_BROKER, epoch=4, replicas=(1, 2))
    copying.fetcher.answered(fetch, copying.leader.answer(fetch), copying.now_ms)
    assert copying.follower.log().log_end_offset == 0
    assert not copying.fetcher.failed_partitions


def test_an_empty_log_begins_inside_a_batch_where_the_leader_s_does(tmp_path) -> None:
    copying = Copying(tmp_path)
    copying.leader.lead(replicas=(1, 2), isr=(1,))
    leader = copying.leader.partition()
    for _ in range(2):
        leader.append(memoryview(batch(records=4)), 1, copying.leader.clock())
    leader.log.raise_high_watermark(8)
    leader.delete_records(6)
    copying.follow(0)
    copying.steps()
    log = copying.follower.log()
    assert (log.log_start_offset, log.log_end_offset, log.segments.bases[0]) == (6, 8, 4)


def test_records_beyond_a_hole_fail_the_partition(copying: Copying, caplog) -> None:
    fetch = copying.next_fetch()
    copying.follower.log().append_as_follower(memoryview(batch()), 3, 0)
    copying.fetcher.answered(fetch, copying.leader.answer(fetch), copying.now_ms)
    assert copying.fetcher.failed_partitions == {KEY}
    assert "is not copied from broker 1 any more" in caplog.text


def test_a_log_start_above_the_high_watermark_fails_the_partition(copying: Copying) -> None:
    caught_up(copying)
    copying.answers(copying.next_fetch(), PartitionFetched(0, 0, 2, log_start_offset=3))
    assert copying.fetcher.failed_partitions == {KEY}
    assert copying.follower.log().log_start_offset == 0


def test_damaged_records_are_fetched_again_later(copying: Copying) -> None:
    good = content(copying.leader.log())
    for damaged in (good[:-1] + bytes([good[-1] ^ 1]), good[:40] + b"\xff" + good[41:]):
        copying.answers(copying.next_fetch(), PartitionFetched(0, 0, 0, 0, 0, records=memoryview(damaged)))
        assert copying.follower.log().log_end_offset == 0
        assert copying.next_request() is not None  # forgets the partition
        copying.pass_time(1000)
        copying.fetcher.failed(copying.next_fetch(), copying.now_ms)
        copying.pass_time(1000)
    copying.leader.forget_sessions()
    caught_up(copying)


def test_a_disk_that_fails_fails_the_partition(copying: Copying, monkeypatch) -> None:
    def no_disk(*_: object) -> None:
        raise OSError(5, "Input/output error")

    fetch = copying.next_fetch()
    answer = copying.leader.answer(fetch)
    monkeypatch.setattr("os.pwrite", no_disk)
    copying.fetcher.answered(fetch, answer, copying.now_ms)
    assert copying.fetcher.failed_partitions == {KEY}
    assert copying.follower.logs.background.failures


def test_a_disk_that_fails_in_a_truncation_fails_the_partition(tmp_path, monkeypatch) -> None:
    def no_disk(*_: object) -> None:
        raise OSError(5, "Input/output error")

    copying = Copying(tmp_path, FetchSettings.for_protocol(OTHER_BROKER, "2.6"))
    copying.elect(3)
    copying.leader.append(3)
    diverged(copying)
    request = copying.next_request()
    assert isinstance(request, AskEpochEnds)
    answer = copying.leader.answer(request)
    monkeypatch.setattr("os.ftruncate", no_disk)
    copying.fetcher.answered(request, answer, copying.now_ms)
    assert copying.fetcher.failed_partitions == {KEY}
    assert copying.follower.logs.background.failures


# -- errors --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (ErrorCode.UNKNOWN_LEADER_EPOCH, logging.INFO),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, logging.INFO),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, logging.INFO),
        (ErrorCode.UNKNOWN_TOPIC_ID, logging.INFO),
        (ErrorCode.INCONSISTENT_TOPIC_ID, logging.INFO),
        (ErrorCode.KAFKA_STORAGE_ERROR, logging.ERROR),
        (ErrorCode.UNKNOWN_SERVER_ERROR, logging.ERROR),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, logging.ERROR),
    ],
)
def test_after_an_error_the_partition_waits_for_the_back_off(
    copying: Copying, caplog, error: ErrorCode, level: int
) -> None:
    caplog.set_level(logging.INFO)
    caught_up(copying)
    caplog.clear()
    copying.answers(copying.next_fetch(), PartitionFetched(0, error, -1))
    assert [record.levelno for record in caplog.records] == [level]
    forgets = copying.next_fetch()
    assert [each.partitions for each in forgets.request.forgotten] == [[0]]
    copying.answers(forgets)
    copying.pass_time(999)
    assert copying.next_request() is None
    assert copying.fetcher.idle_ms(copying.now_ms) == 1
    copying.pass_time(1)
    assert offsets(copying.asked()) == {0: 3}


def test_a_fenced_epoch_stops_the_partition_until_it_is_added_again(copying: Copying) -> None:
    copying.elect(4, follows=False)
    copying.step()
    assert copying.fetcher.failed_partitions == {KEY}
    assert copying.waits()
    copying.follow(4)
    assert not copying.fetcher.failed_partitions
    copying.leader.forget_sessions()
    copying.steps()
    caught_up(copying)


def test_a_refused_session_begins_again_at_once(copying: Copying) -> None:
    caught_up(copying)
    copying.leader.forget_sessions()
    copying.leader.append(1)
    copying.step()
    assert copying.follower.log().log_end_offset == 3
    copying.step()
    assert copying.follower.log().log_end_offset == 4


def test_a_session_with_wrong_topic_ids_waits(copying: Copying) -> None:
    caught_up(copying)
    copying.answers(copying.next_fetch(), error_code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
    assert copying.next_request() is None
    copying.pass_time(1000)
    assert offsets(copying.asked()) == {0: 3}


def test_after_a_network_failure_everything_waits_and_a_new_session_begins(copying: Copying) -> None:
    copying.elect(0, partition=1)
    copying.step()
    copying.fetcher.failed(copying.next_fetch(), copying.now_ms)
    assert copying.next_request() is None
    copying.pass_time(1000)
    fetch = copying.next_fetch().request
    assert fetch.session_epoch == 0
    assert [len(topic.partitions) for topic in fetch.topics] == [2]


def test_a_wait_is_not_extended(copying: Copying) -> None:
    caught_up(copying)
    copying.fetcher.failed(copying.next_fetch(), copying.now_ms)
    copying.pass_time(600)
    copying.fetcher.add({KEY: FetchStart(3, 0)})  # the same epoch: it goes on where it is
    copying.pass_time(400)
    assert offsets(copying.asked()) == {0: 3}


# -- adding and removing -------------------------------------------------------------------------------------


def test_a_new_epoch_begins_anew_and_the_same_one_goes_on(copying: Copying) -> None:
    caught_up(copying)
    state = copying.fetcher.states[KEY]
    copying.fetcher.add({KEY: FetchStart(3, 0)})
    assert copying.fetcher.states[KEY] is state
    copying.elect(4)
    assert copying.fetcher.states[KEY] is not state
    assert (copying.fetcher.states[KEY].leader_epoch, copying.fetcher.states[KEY].offset) == (4, 3)


def test_a_removed_partition_leaves_with_its_position(copying: Copying) -> None:
    caught_up(copying)
    assert copying.fetcher.remove([KEY, SECOND]) == {KEY: FetchStart(3, 3)}
    assert [each.partitions for each in copying.next_fetch().request.forgotten] == [[0]]


def test_a_partition_whose_disk_failed_is_left_out(copying: Copying) -> None:
    caught_up(copying)
    copying.follower.log().release()
    copying.pass_time(500)
    assert [each.partitions for each in copying.next_fetch().request.forgotten] == [[0]]


def test_a_leader_is_not_followed(copying: Copying) -> None:
    assert start_of(copying.leader.partition()) is None
    copying.follower.lead(leader=-1, epoch=5, replicas=(1, 2))
    assert start_of(copying.follower.partition()) is None


# -- where the logs diverge ----------------------------------------------------------------------------------


def diverged(copying: Copying, epochs: int = 2) -> None:
    """The follower has led, and has records of its own from several epochs."""
    caught_up(copying)
    for epoch in range(4, 4 + epochs):
        copying.follower.lead(leader=OTHER_BROKER, epoch=epoch, replicas=(1, 2), isr=(2,))
        partition = copying.follower.partition()
        partition.append(memoryview(batch(value=b"lost%d" % epoch)), 1, copying.follower.clock())
    copying.elect(9)
    copying.leader.append(2)


def test_what_the_leader_does_not_have_is_dropped(copying: Copying) -> None:
    diverged(copying)
    assert copying.follower.log().log_end_offset == 5
    copying.step()
    assert (copying.follower.log().log_end_offset, copying.truncated) == (3, [copying.follower.log()])
    caught_up(copying)
    assert [entry.epoch for entry in copying.follower.log().epochs.entries] == [3, 9]


def test_nothing_but_the_truncation_is_taken_from_a_diverging_answer(copying: Copying) -> None:
    diverged(copying)
    answer = PartitionFetched(0, 0, 5, log_start_offset=2, diverging_epoch=EpochEnd(3, 3))
    copying.answers(copying.next_fetch(), answer)
    log = copying.follower.log()
    assert (log.log_end_offset, log.high_watermark, log.log_start_offset) == (3, 3, 0)


def test_an_older_protocol_asks_for_the_end_of_the_epoch(tmp_path) -> None:
    settings = FetchSettings.for_protocol(OTHER_BROKER, "2.6")
    copying = Copying(tmp_path, settings)
    copying.elect(3)
    copying.leader.append(3)
    diverged(copying)
    request = copying.next_request()
    assert request == AskEpochEnds(OTHER_BROKER, {KEY: EpochAsked(9, 5)})
    copying.fetcher.answered(request, copying.leader.answer(request), copying.now_ms)
    assert copying.follower.log().log_end_offset == 3
    assert copying.asked()[KEY].last_fetched_epoch == -1
    copying.fetcher.failed(copying.next_fetch(), copying.now_ms)
    copying.pass_time(1000)
    caught_up(copying)


def test_an_older_protocol_asks_again_until_an_epoch_is_common(tmp_path) -> None:
    copying = Copying(tmp_path, FetchSettings.for_protocol(OTHER_BROKER, "2.6"))
    copying.elect(3)
    copying.leader.append(3)
    diverged(copying)
    request = copying.next_request()
    assert isinstance(request, AskEpochEnds)
    copying.fetcher.answered(request, {KEY: EpochAnswered(0, 4, 3)}, copying.now_ms)
    assert copying.fetcher.states[KEY].mode is Mode.FETCHING
    assert copying.follower.log().log_end_offset == 3


@pytest.mark.parametrize("protocol", ["2.6", "3.9"])
def test_a_log_without_epochs_is_truncated_to_its_high_watermark(tmp_path, protocol: str) -> None:
    copying = Copying(tmp_path, FetchSettings.for_protocol(OTHER_BROKER, protocol))
    copying.elect(3, follows=False)
    copying.leader.append(3)
    copying.follower.lead(leader=1, epoch=3, replicas=(1, 2))
    log = copying.follower.log()
    log.append_as_follower(memoryview(batch(value=b"other", records=2)), 3, 0)
    log.epochs.clear()
    start = start_of(copying.follower.partition())
    assert start == FetchStart(3, 0)
    copying.fetcher.add({KEY: start})
    assert offsets(copying.asked()) == {0: 0}
    assert log.log_end_offset == 0


@pytest.mark.parametrize(
    ("error", "fails"),
    [
        (ErrorCode.FENCED_LEADER_EPOCH, True),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, False),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, False),
        (ErrorCode.OFFSET_OUT_OF_RANGE, False),
        (ErrorCode.UNKNOWN_SERVER_ERROR, False),
    ],
)
def test_an_error_for_an_epoch_is_as_one_for_a_fetch(tmp_path, error: ErrorCode, fails: bool) -> None:
    copying = Copying(tmp_path, FetchSettings.for_protocol(OTHER_BROKER, "2.6"))
    copying.elect(3)
    copying.leader.append(3)
    diverged(copying)
    request = copying.next_request()
    assert isinstance(request, AskEpochEnds)
    copying.fetcher.answered(request, {KEY: EpochAnswered(error)}, copying.now_ms)
    assert (KEY in copying.fetcher.failed_partitions) == fails
    assert copying.waits()
    if not fails:
        copying.pass_time(1000)
        assert copying.next_request() == request


# -- out of range --------------------------------------------------------------------------------------------


def out_of_range(copying: Copying) -> AskOffsets:
    copying.answers(copying.next_fetch(), PartitionFetched(0, ErrorCode.OFFSET_OUT_OF_RANGE, -1))
    request = copying.next_request()
    assert request == AskOffsets(OTHER_BROKER, LATEST, {KEY: copying.epoch})
    return request


def test_a_follower_with_more_records_than_the_leader_drops_them(copying: Copying, caplog) -> None:
    caught_up(copying)
    copying.fetcher.answered(out_of_range(copying), {KEY: OffsetAnswered(0, 2)}, copying.now_ms)
    assert copying.follower.log().log_end_offset == 2
    assert offsets(copying.asked()) == {0: 2}
    assert "its leader at 2" in caplog.text


def test_a_follower_that_is_too_far_behind_begins_again(copying: Copying) -> None:
    caught_up(copying)
    copying.fetcher.answered(out_of_range(copying), {KEY: OffsetAnswered(0, 90)}, copying.now_ms)
    request = copying.next_request()
    assert request == AskOffsets(OTHER_BROKER, EARLIEST, {KEY: 3})
    copying.fetcher.answered(request, {KEY: OffsetAnswered(0, 70)}, copying.now_ms)
    log = copying.follower.log()
    assert (log.log_start_offset, log.log_end_offset, copying.fetcher.states[KEY].lag) == (70, 70, 20)
    assert copying.asked()[KEY] == FetchPartition(0, 3, 70, -1, 70, 1 << 20)


def test_a_follower_within_the_leader_s_log_goes_on_at_its_end(copying: Copying) -> None:
    caught_up(copying)
    copying.fetcher.answered(out_of_range(copying), {KEY: OffsetAnswered(0, 90)}, copying.now_ms)
    request = copying.next_request()
    assert isinstance(request, AskOffsets)
    copying.fetcher.answered(request, {KEY: OffsetAnswered(0, 1)}, copying.now_ms)
    assert copying.follower.log().log_end_offset == 3
    assert copying.next_request() is not None  # the same offset would be refused again, so it waits
    copying.pass_time(1000)
    assert offsets(copying.asked()) == {0: 3}


def test_an_offset_that_is_not_known_is_asked_for(copying: Copying) -> None:
    copying.fetcher.remove([KEY])
    copying.fetcher.add({KEY: FetchStart(3, -1)})
    assert copying.next_request() == AskOffsets(OTHER_BROKER, LATEST, {KEY: 3})


@pytest.mark.parametrize(
    ("error", "fails"),
    [
        (ErrorCode.FENCED_LEADER_EPOCH, True),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, False),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, False),
        (ErrorCode.UNKNOWN_SERVER_ERROR, False),
    ],
)
def test_an_error_for_an_offset_is_as_one_for_a_fetch(
    copying: Copying, error: ErrorCode, fails: bool
) -> None:
    caught_up(copying)
    request = out_of_range(copying)
    copying.fetcher.answered(request, {KEY: OffsetAnswered(error)}, copying.now_ms)
    assert (KEY in copying.fetcher.failed_partitions) == fails
    if not fails:
        assert copying.waits()
        copying.pass_time(1000)
        assert copying.next_request() == request


def test_a_lost_question_is_asked_again_after_the_back_off(copying: Copying) -> None:
    caught_up(copying)
    request = out_of_range(copying)
    copying.fetcher.failed(request, copying.now_ms)
    assert copying.waits()
    copying.pass_time(1000)
    assert copying.next_request() == request


# -- throttle ------------------------------------------------------------------------------------------------


def test_a_throttled_partition_is_left_out_while_the_rate_is_exceeded(tmp_path) -> None:
    quota = Throttle(KEY)
    copying = Copying(tmp_path, quota=quota)
    copying.elect(0)
    copying.elect(0, partition=1)
    copying.leader.append(1)
    quota.is_exceeded = True
    assert offsets(copying.asked()) == {1: 0}
    copying.fetcher.failed(copying.next_fetch(), copying.now_ms)
    copying.pass_time(1000)
    quota.is_exceeded = False
    copying.steps()
    assert quota.recorded == [len(content(copying.leader.log()))]
    quota.is_exceeded = True
    copying.leader.append(1)
    copying.steps()  # in sync: it is fetched all the same
    assert copying.follower.log().log_end_offset == 2
