"""A consumer group by KIP-848: joins, epochs, reconciliation, static members, fencing and timers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from klog.coordinator.groups.consumer.records import RecordKind
from klog.coordinator.groups.consumer.values import (
    STATIC_LEAVE_EPOCH,
    ConsumerGroupSettings,
    ConsumerGroupState,
    Describable,
    HeartbeatRequest,
    MemberState,
)
from klog.coordinator.groups.values import Identity
from klog.protocol.error_codes import ErrorCode
from tests.coordinator.consumer.play import REBALANCE_MS, Client, Play, cluster, of, settle

SESSION_MS = 45_000


def kinds(play: Play) -> list[list[int]]:
    return [[int(record.kind) for record in batch] for batch in play.batches]


@pytest.fixture
def play() -> Play:
    return Play()


def test_the_first_member_gets_everything_at_once(play: Play) -> None:
    first = Client(play, "a")
    result = first.beat()
    assert (result.error, result.member_id, result.member_epoch) == (ErrorCode.NONE, "a", 1)
    assert result.heartbeat_interval_ms == 5_000
    assert result.assignment == of("t", 0, 1, 2, 3)
    assert play.group.state is ConsumerGroupState.STABLE
    assert kinds(play) == [[5, 3, 7, 6, 8]]


def test_a_second_member_gets_what_the_first_one_gives_up(play: Play) -> None:
    # The numbers are those of Kafka 4.1.
    a, b = Client(play, "a"), Client(play, "b")
    a.beat()
    joined = b.beat()
    assert (joined.member_epoch, joined.assignment) == (2, frozenset())
    assert play.group.state is ConsumerGroupState.RECONCILING
    told = a.beat()
    assert (told.member_epoch, told.assignment) == (1, of("t", 0, 1))
    assert b.beat().assignment is None  # nobody has given up anything yet
    done = a.beat()
    assert (done.member_epoch, done.assignment) == (2, None)
    got = b.beat()
    assert (got.member_epoch, got.assignment) == (2, of("t", 2, 3))
    assert play.group.state is ConsumerGroupState.STABLE


def test_a_heartbeat_without_news_writes_nothing(play: Play) -> None:
    a = Client(play, "a")
    a.beat()
    written = len(play.batches)
    assert a.beat().assignment is None
    assert len(play.batches) == written


def test_a_full_request_is_told_everything(play: Play) -> None:
    a = Client(play, "a")
    a.beat()
    result = a.change(topics=("t",), rebalance_timeout_ms=REBALANCE_MS)
    assert result.assignment == of("t", 0, 1, 2, 3)


def test_a_member_that_leaves_makes_a_new_epoch(play: Play) -> None:
    a, b = Client(play, "a"), Client(play, "b")
    settle(a, b)
    assert b.leave()._replace(heartbeat_interval_ms=0) == (ErrorCode.NONE, None, "b", -1, 0, None)
    assert play.group.records.epoch == 3
    assert [int(each.kind) for each in play.batches[-1]] == [8, 7, 5, 3]
    assert play.group.state is ConsumerGroupState.ASSIGNING
    assert a.beat().assignment == of("t", 0, 1, 2, 3)
    a.leave()
    assert play.group.state is ConsumerGroupState.EMPTY
    assert play.group.records.metadata_hash == 0


def test_a_member_that_is_silent_is_removed_and_fenced(play: Play) -> None:
    a, b = Client(play, "a"), Client(play, "b")
    settle(a, b)
    play.advance(SESSION_MS - 1)
    a.beat()
    play.advance(1)
    assert list(play.group.records.members) == ["a"]
    assert b.beat().error is ErrorCode.UNKNOWN_MEMBER_ID
    settle(a, b)
    assert len(a.owned) == len(b.owned) == 2


def test_a_member_that_gives_nothing_up_is_removed_after_its_rebalance_timeout(play: Play) -> None:
    a, b = Client(play, "a"), Client(play, "b")
    a.beat()
    b.beat()
    told = a.beat()
    assert play.group.records.current["a"].state is MemberState.UNREVOKED_PARTITIONS
    for _ in range(REBALANCE_MS // 10_000):
        assert "a" in play.group.records.members
        # It goes on to say that it has all four.
        keeps = HeartbeatRequest("a", told.member_epoch, owned=of("t", 0, 1, 2, 3))
        assert play.send(keeps)[0].error is ErrorCode.NONE
        b.beat()
        play.advance(10_000)
    assert "a" not in play.group.records.members
    b.beat()
    assert b.owned == of("t", 0, 1, 2, 3)


def test_a_member_that_has_given_up_is_not_removed(play: Play) -> None:
    a, b = Client(play, "a"), Client(play, "b")
    settle(a, b)
    for _ in range(30):
        play.advance(10_000)
        a.beat()
        b.beat()
    assert set(play.group.records.members) == {"a", "b"}


@pytest.mark.parametrize("epoch", [2, 5])
def test_a_larger_epoch_is_fenced(play: Play, epoch: int) -> None:
    Client(play, "a").beat()
    assert play.send(HeartbeatRequest("a", epoch))[0].error is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_lost_answer_is_repeated_to_a_member_that_owns_nothing_wrong(play: Play) -> None:
    a, b = Client(play, "a"), Client(play, "b")
    a.beat()
    b.beat()
    a.beat()
    lost = play.send(HeartbeatRequest("a", 1, owned=of("t", 0, 1)))[0]
    assert lost.member_epoch == 2
    again = play.send(HeartbeatRequest("a", 1, owned=of("t", 0, 1)))[0]
    assert (again.error, again.member_epoch) == (ErrorCode.NONE, 2)
    wrong = play.send(HeartbeatRequest("a", 1, owned=of("t", 0, 1, 2)))[0]
    assert wrong.error is ErrorCode.FENCED_MEMBER_EPOCH
    assert play.send(HeartbeatRequest("a", 1))[0].error is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_group_has_a_largest_size() -> None:
    play = Play(settings=ConsumerGroupSettings(max_size=1))
    a = Client(play, "a")
    a.beat()
    assert Client(play, "b").beat().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert a.beat().error is ErrorCode.NONE


# -- subscriptions ------------------------------------------------------------------------------------------


def test_new_partitions_are_assigned_when_the_metadata_come(play: Play) -> None:
    a = Client(play, "a")
    a.beat()
    play.topics = cluster({"t": 6, "other": 1})
    assert a.beat().assignment == of("t", 0, 1, 2, 3, 4, 5)
    epoch = play.group.records.epoch
    play.topics = cluster({"t": 6, "other": 2})
    a.beat()
    assert play.group.records.epoch == epoch  # the group does not subscribe to that topic


def test_a_topic_that_is_missing_is_assigned_when_it_is_created() -> None:
    play = Play({})
    a = Client(play, "a")
    assert a.beat().assignment == frozenset()
    play.topics = cluster({"t": 2})
    assert a.beat().assignment == of("t", 0, 1)
    play.topics = cluster({})
    assert a.beat().assignment == frozenset()


def test_a_regular_expression_follows_the_topics(play: Play) -> None:
    play.topics = cluster({"ab": 1, "abc": 1, "xab": 1})
    a = Client(play, "a", (), regex="ab.*")
    a.beat()
    assert a.owned == of("ab", 0) | of("abc", 0)
    assert kinds(play) == [[5, 16, 3, 7, 6, 8]]
    play.topics = cluster({"ab": 1, "abcd": 1, "xab": 1})
    settle(a)
    assert a.owned == of("ab", 0) | of("abcd", 0)
    a.change(regex="", topics=("xab",))
    settle(a)
    assert a.owned == of("xab", 0)
    assert play.group.records.regexes == {}


def only(*allowed: str) -> Describable:
    return lambda names: [name for name in names if name in allowed]


def test_a_regular_expression_matches_what_the_member_may_describe_that_brings_it(play: Play) -> None:
    play.topics = cluster({"ab": 1, "abc": 1})
    a = Client(play, "a", (), regex="ab.*", describable=only("ab"))
    settle(a)
    assert a.owned == of("ab", 0)
    # Another member with the expression gets what it matched then, whatever it may describe itself.
    b = Client(play, "b", (), regex="ab.*", describable=only("ab", "abc"))
    settle(a, b)
    assert a.owned | b.owned == of("ab", 0)
    # A new expression has all of them matched again.
    b.change(regex="a.*")
    settle(a, b)
    assert a.owned | b.owned == of("ab", 0) | of("abc", 0)


def test_a_regular_expression_follows_rights_when_topics_change_and_after_ten_minutes(play: Play) -> None:
    play.topics = cluster({"ab": 1, "abc": 1})
    a = Client(play, "a", (), regex="ab.*", describable=only("ab"))
    settle(a)
    a.full = replace(a.full, describable=only("abc"))
    settle(a)
    assert a.owned == of("ab", 0)
    play.topics = cluster({"ab": 1, "abc": 1, "new": 1})
    settle(a)
    assert a.owned == of("abc", 0)
    a.full = replace(a.full, describable=only("ab"))
    for _ in range(20):
        play.advance(30_000)
        a.beat()
    settle(a)
    assert a.owned == of("ab", 0)


def test_a_member_of_the_classic_protocol_has_no_regular_expression_matched(play: Play) -> None:
    play.topics = cluster({"ab": 1, "abc": 1, "t": 1})
    a = Client(play, "a", (), regex="ab.*", describable=only("ab"))
    settle(a)
    play.topics = cluster({"ab": 1, "abc": 1, "t": 1, "u": 1})
    play.join_classic("c")
    assert play.group.records.regexes["ab.*"].topics == ("ab",)


def test_a_changed_subscription_makes_a_new_epoch_and_a_changed_rack_does_not(play: Play) -> None:
    play.topics = cluster({"t": 2, "u": 1})
    a = Client(play, "a")
    a.beat()
    a.change(rack_id="r")
    assert play.group.records.epoch == 1
    assert play.group.records.members["a"].rack_id == "r"
    a.change(topics=("t", "u"))
    assert play.group.records.epoch == 2
    assert a.owned == of("t", 0, 1) | of("u", 0)


def test_members_choose_the_assignor(play: Play) -> None:
    play.topics = cluster({"t": 4, "u": 4})
    a = Client(play, "a", ("t", "u"), assignor="range")
    b = Client(play, "b", ("t", "u"), assignor="range")
    settle(a, b)
    assert a.owned == of("t", 0, 1) | of("u", 0, 1)
    assert play.group.described().assignor == "range"


# -- static members -----------------------------------------------------------------------------------------


def test_a_static_member_comes_back_to_its_partitions_without_a_new_epoch(play: Play) -> None:
    a, b = Client(play, "a", instance_id="i1"), Client(play, "b", instance_id="i2")
    settle(a, b)
    held = b.owned
    assert b.leave(STATIC_LEAVE_EPOCH).member_epoch == STATIC_LEAVE_EPOCH
    assert a.beat().assignment is None
    again = Client(play, "b2", instance_id="i2")
    result = again.beat()
    assert (result.member_epoch, result.assignment) == (2, held)
    assert play.group.records.epoch == 2
    assert set(play.group.records.members) == {"a", "b2"}
    assert play.send(HeartbeatRequest("b", 2, "i2"))[0].error is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_does_not_come_back_is_removed(play: Play) -> None:
    a, b = Client(play, "a", instance_id="i1"), Client(play, "b", instance_id="i2")
    settle(a, b)
    b.leave(STATIC_LEAVE_EPOCH)
    for _ in range(5):
        play.advance(SESSION_MS // 4)
        a.beat()
    assert a.owned == of("t", 0, 1, 2, 3)


def test_an_instance_id_in_use_is_not_given_away(play: Play) -> None:
    Client(play, "a", instance_id="i1").beat()
    assert Client(play, "b", instance_id="i1").beat().error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert play.send(HeartbeatRequest("b", 1, "i1"))[0].error is ErrorCode.FENCED_INSTANCE_ID
    assert play.send(HeartbeatRequest("b", 1, "i9"))[0].error is ErrorCode.UNKNOWN_MEMBER_ID


# -- writes and loading -------------------------------------------------------------------------------------


def test_an_answer_waits_until_its_state_is_in_the_log(play: Play) -> None:
    play.holds_writes = True
    asked = Client(play, "a").full
    first = play.send(asked)
    again = play.send(asked)  # changes nothing, and tells the same state
    assert first == again == []
    play.write_held()
    assert [each.member_epoch for each in first + again] == [1, 1]


def test_records_that_could_not_be_written_are_written_with_the_next(play: Play) -> None:
    a = Client(play, "a")
    play.write_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert a.beat().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert play.loaded().members == {}
    play.write_error = ErrorCode.NONE
    assert a.beat().assignment == of("t", 0, 1, 2, 3)
    loaded, group = play.loaded(), play.group.records
    assert (loaded.members, loaded.current, loaded.targets) == (group.members, group.current, group.targets)
    assert (loaded.epoch, loaded.assignment_epoch) == (1, 1)


def test_a_loaded_group_goes_on_and_its_sessions_start_anew(play: Play) -> None:
    a, b = Client(play, "a"), Client(play, "b")
    settle(a, b)
    play.advance(SESSION_MS - 1)
    play.restart()
    play.advance(SESSION_MS - 1)
    epoch = a.epoch
    assert a.beat().member_epoch == epoch
    assert a.beat().assignment is None
    play.advance(1)
    assert set(play.group.records.members) == {"a"}


def test_a_member_that_must_give_up_is_still_removed_after_a_load(play: Play) -> None:
    a, b = Client(play, "a"), Client(play, "b")
    a.beat()
    b.beat()
    a.beat()
    play.restart()
    for _ in range(REBALANCE_MS // 20_000):
        play.send(HeartbeatRequest("a", 1, owned=of("t", 0, 1, 2, 3)))
        b.beat()
        play.advance(20_000)
    assert set(play.group.records.members) == {"b"}


def test_the_tombstones_of_a_group_remove_all_its_records(play: Play) -> None:
    play.topics = cluster({"t": 2, "u": 1})
    a, b = Client(play, "a"), Client(play, "b", (), regex="u")
    settle(a, b)
    play.log += ((key, None) for key in play.group.tombstone_keys())
    left = play.loaded()
    assert (left.written_keys(), left.exists) == ([], False)


# -- offsets and views --------------------------------------------------------------------------------------


def test_commits_must_name_the_member_and_its_epoch(play: Play) -> None:
    group = play.group
    assert group.commit_error(Identity()) is ErrorCode.NONE  # nobody is there
    a = Client(play, "a")
    a.beat()
    assert group.commit_error(Identity("a", 1)) is ErrorCode.NONE
    assert group.commit_error(Identity("a", 0)) is ErrorCode.STALE_MEMBER_EPOCH
    assert group.commit_error(Identity("b", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.commit_error(Identity()) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.commit_error(Identity("a", 1, knows_epochs=False)) is ErrorCode.UNSUPPORTED_VERSION
    assert group.transactional_commit_error(Identity()) is ErrorCode.NONE
    assert group.transactional_commit_error(Identity("a", 0)) is ErrorCode.STALE_MEMBER_EPOCH
    assert group.fetch_error(Identity()) is ErrorCode.NONE
    assert group.fetch_error(Identity("a", 1)) is ErrorCode.NONE
    assert group.fetch_error(Identity("a", 2)) is ErrorCode.STALE_MEMBER_EPOCH
    assert group.fetch_error(Identity("b", 1)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_is_described(play: Play) -> None:
    a, b = Client(play, "a", client_id="c1"), Client(play, "b")
    a.beat()
    b.beat()
    described = play.group.described()
    assert (described.state, described.epoch, described.assignment_epoch) == ("Reconciling", 2, 2)
    first, second = described.members
    assert (first.subscription.client_id, first.epoch) == ("c1", 1)
    assert list(first.assigned.values()) == [[0, 1, 2, 3]]
    assert list(first.target.values()) == [[0, 1]]
    assert (second.epoch, second.assigned) == (2, {})
    assert list(second.target.values()) == [[2, 3]]
    assert play.group.listed() == ("g", "consumer", "Reconciling", "consumer")


def test_subscribed_topics_keep_their_offsets(play: Play) -> None:
    Client(play, "a").beat()
    assert play.group.uses("t")
    assert not play.group.uses("u")
    assert play.group.view().subscribed == {"t"}


def test_records_of_kafka_4_0_are_removed_with_the_next_epoch(play: Play) -> None:
    a = Client(play, "a")
    a.beat()
    play.group.records.put(RecordKind.PARTITION_METADATA, "", b"\0\0old")
    a.leave()
    assert RecordKind.PARTITION_METADATA in {record.kind for record in play.batches[-1]}
    assert not play.loaded().has_partition_metadata
