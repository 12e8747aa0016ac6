"""Members of the classic protocol in a consumer group, and the change of a group from one to the other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from klog.client.consumer_protocol import decode_assignment, encode_assignment
from klog.coordinator.groups.classic.rebalance import GroupLimits
from klog.coordinator.groups.consumer.conversion import downgrade, may_downgrade, upgrade
from klog.coordinator.groups.consumer.records import RecordKind
from klog.coordinator.groups.consumer.state import GroupRecords
from klog.coordinator.groups.consumer.values import ClassicMember, ConsumerGroupState
from klog.coordinator.groups.values import GroupState, Identity, LeavingMember
from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode
from tests.coordinator.consumer.play import REBALANCE_MS, SETTINGS, Client, Play, of, subscription
from tests.coordinator.group.play import Play as ClassicPlay

LIMITS = GroupLimits(3_000, 10)


@pytest.fixture
def play() -> Play:
    return Play()


def numbers(assignment: bytes) -> set[tuple[str, int]]:
    return set(decode_assignment(assignment))


def test_a_classic_member_joins_and_is_told_what_it_may_read(play: Play) -> None:
    a = Client(play, "a")
    a.beat()
    assert play.join_classic("").error is ErrorCode.MEMBER_ID_REQUIRED
    joined = play.join_classic("b")
    assert (joined.error, joined.generation_id, joined.leader_id) == (ErrorCode.NONE, 2, "")
    assert (joined.protocol_type, joined.protocol_name, joined.members) == ("consumer", "range", ())
    assert numbers(play.sync_classic(joined).assignment) == set()
    identity = Identity("b", 2)
    assert play.group.heartbeat(identity, play.now) is ErrorCode.NONE  # a has not given up anything
    a.beat()
    a.beat()
    # There is something new for it: it joins again.
    assert play.group.heartbeat(identity, play.now) is ErrorCode.REBALANCE_IN_PROGRESS
    joined = play.join_classic("b")
    assert numbers(play.sync_classic(joined).assignment) == {("t", 2), ("t", 3)}
    assert play.group.state is ConsumerGroupState.STABLE


def test_a_classic_member_gives_up_before_others_take(play: Play) -> None:
    joined = play.join_classic("a")
    assert len(numbers(play.sync_classic(joined).assignment)) == 4
    b = Client(play, "b")
    b.beat()
    assert play.group.heartbeat(Identity("a", 1), play.now) is ErrorCode.REBALANCE_IN_PROGRESS
    assert play.sync_classic(joined).error is ErrorCode.REBALANCE_IN_PROGRESS
    joined = play.join_classic("a", owned=of("t", 0, 1, 2, 3))
    assert joined.generation_id == 1
    assert numbers(play.sync_classic(joined).assignment) == {("t", 0), ("t", 1)}
    b.beat()
    assert not b.owned
    assert play.group.heartbeat(Identity("a", 1), play.now) is ErrorCode.REBALANCE_IN_PROGRESS
    assert play.join_classic("a", owned=of("t", 0, 1)).generation_id == 2
    b.beat()
    assert b.owned == of("t", 2, 3)


def test_a_classic_member_that_does_not_sync_or_join_again_is_removed(play: Play) -> None:
    play.join_classic("a", session_timeout_ms=2 * REBALANCE_MS)
    play.advance(REBALANCE_MS)
    assert play.group.records.members == {}
    joined = play.join_classic("b", session_timeout_ms=3 * REBALANCE_MS)
    play.sync_classic(joined)
    Client(play, "c").beat()
    assert play.group.heartbeat(Identity("b", joined.generation_id), play.now) != ErrorCode.NONE
    play.advance(REBALANCE_MS)
    assert "b" not in play.group.records.members


def test_requests_of_the_other_protocol_are_refused(play: Play) -> None:
    Client(play, "a").beat()
    assert play.group.heartbeat(Identity("a", 1), play.now) is ErrorCode.UNKNOWN_MEMBER_ID
    assert play.group.leave([LeavingMember("a")], play.now) == [ErrorCode.UNKNOWN_MEMBER_ID]
    joined = play.join_classic("b")
    assert play.group.heartbeat(Identity("b", 7), play.now) is ErrorCode.ILLEGAL_GENERATION
    assert play.join_classic("c", protocol_type="connect").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    other = (("sticky", subscription(("t",))),)
    assert play.join_classic("c", protocols=other).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    broken = (("range", b"\0"),)
    assert play.join_classic("c", protocols=broken).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    # A classic member commits with its generation, also by old versions.
    group = play.group
    assert group.commit_error(Identity("b", joined.generation_id, knows_epochs=False)) is ErrorCode.NONE
    assert group.commit_error(Identity("b", 0)) is ErrorCode.ILLEGAL_GENERATION
    leaving = [LeavingMember("b"), LeavingMember("b"), LeavingMember("x")]
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert play.group.leave(leaving, play.now) == [ErrorCode.NONE, unknown, unknown]
    play.settle()
    assert list(play.group.records.members) == ["a"]


def test_a_static_member_changes_its_protocol(play: Play) -> None:
    a = Client(play, "a", instance_id="i")
    a.beat()
    joined = play.join_classic("", instance_id="i", new_member_id="b")
    assert (joined.error, joined.member_id, joined.generation_id) == (ErrorCode.NONE, "b", 1)
    assert play.group.records.members["b"].classic is not None
    again = Client(play, "c", instance_id="i")
    assert again.beat().assignment == of("t", 0, 1, 2, 3)
    assert list(play.group.records.members) == ["c"]


# -- the change of a group -----------------------------------------------------------------------------------


def stable_classic() -> ClassicPlay:
    """A classic group whose two members share topic t."""
    classic = ClassicPlay()
    joined = classic.gather(2, protocols=(("range", subscription(("t",))),))
    halves = iter([[TopicPartition("t", n) for n in half] for half in ((0, 1), (2, 3))])
    given = {each.member_id: encode_assignment(next(halves)) for each in joined}
    for each in joined:
        classic.sync(each, given if each.member_id == each.leader_id else None)
    return classic


def test_a_classic_group_becomes_a_consumer_group_and_keeps_its_assignment() -> None:
    classic = stable_classic()
    play = Play()
    assert classic.group.state is GroupState.STABLE
    assert upgrade(classic.group, play.group, play.topics, play.now)
    c = Client(play, "c")
    c.beat()
    kinds = [int(record.kind) for record in play.batches[0]]
    assert kinds == [2, 5, 5, 3, 7, 7, 6, 8, 8, 5, 3, 7, 7, 6, 8] or kinds[:9] == [2, 5, 5, 3, 7, 7, 6, 8, 8]
    assert len(play.batches) == 1
    records = play.loaded()
    assert records.epoch == classic.group.generation_id + 1
    assert {records.current[each].epoch for each in ("m1", "m2")} == {classic.group.generation_id}
    assert records.current["m1"].assigned == of("t", 0, 1)
    assert isinstance(records.members["m2"].classic, ClassicMember)
    assert not c.owned
    # The old members are told to join again, and their sessions go on.
    assert play.group.heartbeat(Identity("m1", 1), play.now) is ErrorCode.REBALANCE_IN_PROGRESS
    play.advance(60_000)
    assert "m1" not in play.group.records.members


def test_a_group_whose_bytes_cannot_be_read_is_not_changed() -> None:
    classic = ClassicPlay()
    classic.stable(1)
    play = Play()
    assert not upgrade(classic.group, play.group, play.topics, play.now)
    assert not play.group.records.exists


def test_a_consumer_group_becomes_classic_when_only_classic_members_are_left(play: Play) -> None:
    a = Client(play, "a")
    a.beat()
    play.join_classic("b")
    assert not may_downgrade(play.group, LIMITS)
    a.leave()
    assert may_downgrade(play.group, LIMITS)
    assert not may_downgrade(play.group, replace(LIMITS, max_size=0))
    play.settings = replace(SETTINGS, may_downgrade=False)
    assert not may_downgrade(play.group, LIMITS)
    classic, records = downgrade(play.group, LIMITS, play.topics, play.now)
    assert classic.state is GroupState.PREPARING_REBALANCE
    assert (classic.generation_id, classic.protocol_name) == (play.group.records.epoch, "range")
    assert [member.member_id for member in classic.members] == ["b"]
    assert records[-1].kind is RecordKind.CLASSIC
    assert records[-1].value == replace(classic.metadata(), state_timestamp_ms=play.now.wall_ms)
    left = GroupRecords()
    for record in (*(each for batch in play.batches for each in batch), *records):
        left.apply(record)
    assert left.written_keys() == []


def test_an_empty_consumer_group_becomes_an_empty_classic_group(play: Play) -> None:
    a = Client(play, "a")
    a.beat()
    a.leave()
    classic, records = downgrade(play.group, LIMITS, play.topics, play.now)
    assert (classic.state, classic.generation_id) == (GroupState.EMPTY, 0)
    assert [int(each.kind) for each in records] == [6, 3, 2]


@pytest.mark.parametrize("version", range(5))
def test_assignments_are_told_in_the_version_of_the_subscription(play: Play, version: int) -> None:
    joined = play.join_classic("a", protocols=(("range", subscription(("t",), version=version)),))
    assignment = play.sync_classic(joined).assignment
    assert int.from_bytes(assignment[:2], "big") == min(version, 3)
    assert len(numbers(assignment)) == 4
