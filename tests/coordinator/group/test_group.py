"""Rebalances of a group: what members are answered, and when. The cases are those of Kafka's coordinator."""

from __future__ import annotations

import pytest

from klog.coordinator.groups.classic.group import Group, load_group
from klog.coordinator.groups.classic.rebalance import GroupLimits
from klog.coordinator.groups.records import GroupMetadata, MemberMetadata
from klog.coordinator.groups.values import GroupState, Identity, JoinResult, LeavingMember, Now
from klog.protocol.error_codes import ErrorCode
from tests.coordinator.group.play import RANGE, REBALANCE_MS, SESSION_MS, Play

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS


@pytest.fixture
def play() -> Play:
    return Play()


# -- the join phase ------------------------------------------------------------------------------------------


def test_an_empty_group_waits_for_the_initial_delay(play) -> None:
    answer = play.join()
    play.advance(2_999)
    assert not answer.came
    play.advance(1)
    assert (answer.error, answer.value.generation_id) == (NONE, 1)


def test_a_second_member_extends_the_initial_delay_of_a_new_group(play) -> None:
    first = play.join()
    play.advance(1_000)
    second = play.join()
    play.advance(4_999)
    assert not first.came
    play.advance(1)
    assert {first.value.generation_id, second.value.generation_id} == {1}


def test_the_initial_delay_is_never_longer_than_the_rebalance_timeout(play) -> None:
    first = play.join(rebalance_timeout_ms=4_000)
    for _ in range(3):
        play.advance(1_000)
        play.join(rebalance_timeout_ms=4_000)
    play.advance(1_000)
    assert first.came


def test_a_group_that_had_generations_waits_once(play) -> None:
    (joined,) = play.stable(1)
    play.leave(LeavingMember(joined.member_id))
    assert (play.group.state, play.group.generation_id) == (GroupState.EMPTY, 2)
    answer = play.join()
    play.advance(1_000)
    play.join()
    play.advance(2_000)
    assert answer.value.generation_id == 3


def test_the_leader_alone_is_given_the_members(play) -> None:
    leader, follower = play.gather(2, protocols=(("range", b"r"), ("sticky", b"s")))
    assert leader.leader_id == follower.leader_id == leader.member_id
    assert [(each.member_id, each.metadata) for each in leader.members] == [
        (leader.member_id, b"r"),
        (follower.member_id, b"r"),
    ]
    assert follower.members == ()


def test_members_of_a_stable_group_have_to_join_again_if_one_comes(play) -> None:
    old = play.stable(2)
    new = play.join()
    assert [play.heartbeat(each) for each in old] == [REBALANCING, REBALANCING]
    again = [play.join(each.member_id) for each in old]
    assert all(answer.value.generation_id == 2 for answer in [*again, new])


def test_a_member_that_does_not_join_again_is_removed_at_the_rebalance_timeout(play) -> None:
    slow, quick = play.stable(2)
    new, again = play.join(), play.join(quick.member_id)
    for _ in range(REBALANCE_MS // 5_000):
        assert not again.came
        assert play.heartbeat(slow) is REBALANCING
        play.advance(5_000)
    assert again.value.generation_id == new.value.generation_id == 2
    assert len(play.group.members) == 2
    assert play.heartbeat(slow) is UNKNOWN


def test_a_leader_that_joins_again_always_starts_a_rebalance_and_a_follower_only_with_news(play) -> None:
    leader, follower = play.stable(2)
    unchanged = play.join(follower.member_id)
    assert (unchanged.value.generation_id, unchanged.value.members) == (1, ())
    assert play.group.state is GroupState.STABLE
    changed = play.join(follower.member_id, protocols=(("range", b"other"),))
    assert not changed.came
    assert play.join(leader.member_id).value.generation_id == 2
    assert changed.value.generation_id == 2


def test_a_lost_answer_is_given_again_before_the_assignments_are_there(play) -> None:
    leader, follower = play.gather(2)
    again = play.join(leader.member_id).value
    assert (again.generation_id, len(again.members)) == (1, 2)
    assert play.join(follower.member_id).value.members == ()
    assert play.group.state is GroupState.COMPLETING_REBALANCE


def test_clients_that_know_it_are_told_their_id_first(play) -> None:
    told = play.join(knows_required_ids=True)
    assert (told.error, told.value.member_id, told.value.generation_id) == (
        ErrorCode.MEMBER_ID_REQUIRED,
        "m1",
        -1,
    )
    assert play.group.state is GroupState.EMPTY
    answer = play.join("m1", knows_required_ids=True)
    play.advance(3_000)
    assert answer.value.member_id == "m1"


def test_an_id_that_nobody_uses_holds_up_a_rebalance_until_its_session_ends(play) -> None:
    leader, follower = play.stable(2)
    play.join(knows_required_ids=True, session_timeout_ms=6_000)
    answers = [play.join(each.member_id) for each in (leader, follower)]
    play.advance(5_999)
    assert not any(answer.came for answer in answers)
    play.heartbeat(leader)
    play.advance(1)
    assert all(answer.value.generation_id == 2 for answer in answers)


@pytest.mark.parametrize("member_id", ["", "unknown"])
def test_a_member_must_have_a_protocol_in_common_with_all(play, member_id: str) -> None:
    play.stable(1)
    other = play.join(member_id, protocols=(("sticky", b""),))
    assert (other.error, other.value.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
    kind = play.join(member_id, protocol_type="connect")
    assert kind.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("values", [{"protocols": ()}, {"protocol_type": ""}])
def test_the_first_member_must_name_a_protocol(play, values) -> None:
    assert play.join(**values).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_most_votes_among_the_protocols_that_all_support_win(play) -> None:
    def protocols(*names: str) -> tuple[tuple[str, bytes], ...]:
        return tuple((name, name.encode()) for name in names)

    joined = play.await_all(
        [
            play.join(protocols=protocols("a", "b", "c")),
            play.join(protocols=protocols("c", "b", "a")),
            play.join(protocols=protocols("c", "x", "b", "a")),
            play.join(protocols=protocols("b", "a")),
        ]
    )
    # `c` has the most first places, but one member does not support it.
    assert {each.protocol_name for each in joined} == {"b"}
    assert {each.metadata for each in joined[0].members} == {b"b"}


def test_an_unknown_member_id_is_refused(play) -> None:
    assert play.join("unknown").error is UNKNOWN


def test_a_group_takes_no_more_members_than_it_may_have() -> None:
    play = Play(max_size=2)
    joined = play.stable(2)
    refused = play.join()
    assert (refused.error, refused.value.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    again = play.join(joined[0].member_id)
    assert play.join(joined[1].member_id).value.generation_id == 2
    assert again.value.generation_id == 2


def test_of_too_many_first_members_the_last_is_refused() -> None:
    play = Play(max_size=3)
    answers = [play.join() for _ in range(4)]
    play.advance(10_000)
    assert [answer.error for answer in answers] == [NONE] * 3 + [ErrorCode.GROUP_MAX_SIZE_REACHED]


def test_a_second_request_of_a_waiting_member_replaces_the_first(play) -> None:
    joined = play.stable(2)
    first = play.join(joined[0].member_id)
    second = play.join(joined[0].member_id)
    play.join(joined[1].member_id)
    assert (first.came, second.value.generation_id) == (False, 2)


def test_a_new_member_that_waits_for_five_minutes_is_given_up(play) -> None:
    (old,) = play.stable(1, rebalance_timeout_ms=600_000)
    new = play.join(rebalance_timeout_ms=600_000)
    for _ in range(300):
        assert not new.came
        play.heartbeat(old)
        play.advance(1_000)
    assert (new.error, new.value.member_id) == (UNKNOWN, "")


# -- assignments ---------------------------------------------------------------------------------------------


def test_every_member_gets_what_the_leader_assigned(play) -> None:
    joined = play.gather(3)
    results = play.assign(list(reversed(joined)))
    assert [each.assignment for each in results] == [each.member_id.encode() for each in reversed(joined)]
    assert (results[0].protocol_type, results[0].protocol_name) == ("consumer", "range")
    assert play.group.state is GroupState.STABLE
    (record,) = play.written
    assert record.generation_id == 1
    assert {each.member_id: each.assignment for each in record.members} == {
        each.member_id: each.member_id.encode() for each in joined
    }


def test_members_that_the_leader_forgets_get_nothing_and_unknown_ones_are_dropped(play) -> None:
    leader, follower = play.gather(2)
    waiting = play.sync(follower)
    play.sync(leader, {"unknown": b"x"})
    assert (waiting.error, waiting.value.assignment) == (NONE, b"")


def test_a_stable_group_gives_the_assignment_again(play) -> None:
    joined = play.stable(2)
    assert play.sync(joined[1]).value.assignment == joined[1].member_id.encode()


def test_a_rebalance_that_begins_meanwhile_answers_those_that_wait(play) -> None:
    leader, follower = play.gather(2)
    waiting = play.sync(follower)
    play.join()
    assert waiting.error is REBALANCING
    assert play.sync(leader).error is REBALANCING


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "consumer", "protocol_name": "range"}, NONE),
    ],
)
def test_protocols_that_a_member_names_must_be_the_groups(play, values, error) -> None:
    (leader,) = play.gather(1)
    assert play.sync(leader, **values).error is error


def test_a_wrong_generation_or_member_is_refused(play) -> None:
    (leader,) = play.gather(1)
    assert play.sync(JoinResult(NONE, leader.member_id, 7)).error is ErrorCode.ILLEGAL_GENERATION
    assert play.sync(JoinResult(NONE, "unknown", 1)).error is UNKNOWN


def test_a_record_that_cannot_be_written_fails_the_assignment_and_starts_a_rebalance(play) -> None:
    leader, follower = play.gather(2)
    play.write_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    results = play.assign([follower, leader])
    assert [each.error for each in results] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert play.group.state is GroupState.PREPARING_REBALANCE


def test_an_outcome_that_comes_after_a_rebalance_began_changes_nothing(play) -> None:
    leader, follower = play.gather(2)
    play.holds_writes = True
    waiting = play.sync(leader, {leader.member_id: b"a"})
    play.join(follower.member_id, protocols=(("range", b"new"),))
    assert waiting.error is REBALANCING
    (late,) = play.held
    late.on_written(NONE, play.now)
    play.settle()
    assert play.group.state is GroupState.PREPARING_REBALANCE


def test_members_that_never_sync_are_removed(play) -> None:
    leader, _ = play.gather(2, rebalance_timeout_ms=4_000)
    play.sync(leader)
    play.advance(3_999)
    assert play.group.state is GroupState.STABLE
    play.advance(1)
    assert play.group.state is GroupState.PREPARING_REBALANCE
    assert [member.member_id for member in play.group.members] == [leader.member_id]


def test_a_group_whose_only_member_never_syncs_becomes_empty(play) -> None:
    play.gather(1, rebalance_timeout_ms=4_000)
    play.advance(4_000)
    assert (play.group.state, play.group.generation_id) == (GroupState.EMPTY, 2)
    assert play.written[-1].members == ()


# -- signs of life -------------------------------------------------------------------------------------------


def test_a_member_without_signs_of_life_is_removed_when_its_session_ends(play) -> None:
    quiet, alive = play.stable(2)
    play.advance(SESSION_MS - 1_000)
    assert play.heartbeat(alive) is NONE
    play.advance(999)
    assert len(play.group.members) == 2
    play.advance(1)
    assert play.heartbeat(alive) is REBALANCING
    assert play.heartbeat(quiet) is UNKNOWN


def test_every_sign_of_life_starts_the_session_again(play) -> None:
    (joined,) = play.stable(1)
    for sign in (
        lambda: play.heartbeat(joined),
        lambda: play.sync(joined),
        lambda: play.group.renew_session(joined.member_id, play.now),
    ):
        play.advance(SESSION_MS - 1)
        sign()
    play.advance(SESSION_MS - 1)
    assert play.group.state is GroupState.STABLE
    play.advance(1)
    assert play.group.state is GroupState.EMPTY


def test_a_member_that_waits_needs_no_heartbeats(play) -> None:
    joined = play.stable(2)
    waiting = play.join(joined[0].member_id, protocols=(("range", b"new"),))
    for _ in range(3):
        play.advance(SESSION_MS - 1_000)
        assert play.heartbeat(joined[1]) in (REBALANCING, UNKNOWN)
    play.advance(SESSION_MS)
    assert waiting.value.generation_id == 2


def test_the_generation_is_checked_before_the_state(play) -> None:
    old = play.stable(2)
    play.join(old[0].member_id)
    assert play.heartbeat(old[1]) is REBALANCING
    assert play.heartbeat(JoinResult(NONE, old[1].member_id, 0)) is ErrorCode.ILLEGAL_GENERATION


def test_the_last_member_that_leaves_empties_the_group(play) -> None:
    joined = play.stable(2)
    assert play.leave(*(LeavingMember(each.member_id) for each in joined)) == [NONE, NONE]
    assert (play.group.state, play.group.generation_id) == (GroupState.EMPTY, 2)
    record = play.written[-1]
    assert (record.protocol_type, record.protocol_name, record.leader_id) == ("consumer", None, None)


def test_leaving_is_decided_for_each_member(play) -> None:
    told = play.join(knows_required_ids=True).value
    play.stable(1, instance_id="i")
    errors = play.leave(
        LeavingMember("unknown"),
        LeavingMember(told.member_id),
        LeavingMember("other", "i"),
        LeavingMember("", "unknown"),
        LeavingMember("", "i"),
    )
    assert errors == [UNKNOWN, NONE, ErrorCode.FENCED_INSTANCE_ID, UNKNOWN, NONE]
    assert play.group.state is GroupState.EMPTY


def test_the_next_member_leads_if_the_leader_leaves(play) -> None:
    leader, follower = play.stable(2)
    play.leave(LeavingMember(leader.member_id))
    assert play.join(follower.member_id).value.leader_id == follower.member_id


# -- static members ------------------------------------------------------------------------------------------


def static(play: Play, *names: str, **values) -> list[JoinResult]:
    joined = play.await_all([play.join(instance_id=name, **values) for name in names])
    play.assign(joined)
    return joined


@pytest.mark.parametrize("may_skip", [False, True])
def test_a_static_leader_comes_back_without_a_rebalance(play, may_skip: bool) -> None:
    leader, follower = static(play, "a", "b")
    again = play.join(instance_id="a", may_skip_assignment=may_skip).value
    assert (again.error, again.generation_id) == (NONE, 1)
    assert again.member_id not in (leader.member_id, follower.member_id)
    # An old client must not take itself for the leader, because it would assign again.
    assert again.leader_id == (again.member_id if may_skip else leader.member_id)
    assert (again.skip_assignment, len(again.members)) == (may_skip, 2 if may_skip else 0)
    assert play.group.state is GroupState.STABLE
    assert again.member_id in {member.member_id for member in play.written[-1].members}
    assert play.sync(again, instance_id="a").value.assignment == leader.member_id.encode()


def test_the_old_id_of_a_static_member_is_fenced(play) -> None:
    old, _ = static(play, "a", "b")
    play.join(instance_id="a")
    assert play.heartbeat(old, "a") is ErrorCode.FENCED_INSTANCE_ID
    assert play.heartbeat(old) is UNKNOWN
    assert play.sync(old, instance_id="a").error is ErrorCode.FENCED_INSTANCE_ID
    assert play.join(old.member_id, instance_id="a").error is ErrorCode.FENCED_INSTANCE_ID


def test_a_request_in_which_the_old_id_waits_is_fenced(play) -> None:
    first, second = static(play, "a", "b")
    waiting = play.join(first.member_id, instance_id="a")
    new = play.join(instance_id="a")
    assert waiting.error is ErrorCode.FENCED_INSTANCE_ID
    play.join(second.member_id, instance_id="b")
    assert new.value.generation_id == 2


def test_a_static_member_that_changes_the_vote_starts_a_rebalance(play) -> None:
    both = (("range", b"r"), ("sticky", b"s"))
    static(play, "a", protocols=both)
    answer = play.join(instance_id="a", protocols=tuple(reversed(both)))
    assert answer.value.generation_id == 2


def test_a_static_member_that_comes_back_before_the_assignments_starts_a_rebalance(play) -> None:
    _, second = play.await_all([play.join(instance_id=name) for name in "ab"])
    waiting = play.sync(second, instance_id="b")
    play.join(instance_id="a")
    assert waiting.error is REBALANCING


def test_a_static_member_whose_new_id_cannot_be_written_keeps_the_old(play) -> None:
    old, _ = static(play, "a", "b")
    play.write_error = ErrorCode.NOT_COORDINATOR
    refused = play.join(instance_id="a", protocols=(("range", b"new"),)).value
    assert (refused.error, refused.member_id) == (ErrorCode.NOT_COORDINATOR, "")
    assert play.heartbeat(old, "a") is NONE
    assert play.group.members.get(old.member_id).protocols == RANGE


def test_the_session_of_a_static_member_that_came_back_ends_too(play) -> None:
    static(play, "a")
    play.join(instance_id="a")
    play.advance(SESSION_MS)
    assert play.group.state is GroupState.EMPTY


def test_static_members_that_are_away_keep_their_place_until_their_sessions_end(play) -> None:
    _, away = static(play, "a", "b", session_timeout_ms=60_000, rebalance_timeout_ms=5_000)
    answer = play.join(instance_id="c", session_timeout_ms=60_000, rebalance_timeout_ms=5_000)
    play.advance(5_000)
    assert answer.value.generation_id == 2
    assert play.group.members.get(away.member_id) is not None


# -- views, loading, the end ---------------------------------------------------------------------------------


def test_only_a_stable_group_shows_metadata_and_assignments(play) -> None:
    (joined,) = play.gather(1)
    shown = play.group.described()
    assert (shown.state, shown.protocol_data) == ("CompletingRebalance", "")
    assert (shown.members[0].metadata, shown.members[0].assignment) == (b"", b"")
    play.assign([joined])
    shown = play.group.described()
    assert (shown.state, shown.protocol_type, shown.protocol_data) == ("Stable", "consumer", "range")
    assert shown.members[0].assignment == joined.member_id.encode()


def record(count: int) -> GroupMetadata:
    members = tuple(
        MemberMetadata(f"m-{n}", None, "c", "/h", REBALANCE_MS, SESSION_MS, b"r", b"%d" % n)
        for n in range(count)
    )
    leader = members[0].member_id if members else None
    return GroupMetadata("consumer", 5, "range" if members else None, leader, 17, members)


def loaded(count: int, max_size: int = 100) -> Play:
    now = Now(0, 1_000)
    return Play(group=load_group("g", GroupLimits(3_000, max_size), record(count), now))


def test_a_loaded_group_goes_on_where_it_was() -> None:
    play = loaded(2)
    assert play.group.state is GroupState.STABLE
    member = JoinResult(NONE, "m-1", 5)
    assert play.heartbeat(member) is NONE
    assert play.sync(member).value.assignment == b"1"
    play.advance(SESSION_MS)
    assert play.group.state is GroupState.EMPTY


def test_a_loaded_group_that_is_too_large_is_rebalanced() -> None:
    assert loaded(3, max_size=2).group.state is GroupState.PREPARING_REBALANCE


def test_a_loaded_group_without_members_is_empty() -> None:
    group = loaded(0).group
    assert (group.state, group.generation_id, group.state_since_ms) == (GroupState.EMPTY, 5, 17)


def test_whoever_waits_when_the_group_ends_is_answered(play) -> None:
    old = play.gather(2)
    waiting = play.sync(old[1])
    new = play.join()
    play.group.die(ErrorCode.NOT_COORDINATOR, play.now)
    play.settle()
    assert (waiting.error, new.error) == (REBALANCING, ErrorCode.NOT_COORDINATOR)
    assert play.join().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert play.heartbeat(old[0]) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    play.advance(REBALANCE_MS)
    assert play.group.state is GroupState.DEAD


@pytest.mark.parametrize(
    ("identity", "error"),
    [
        (Identity(), NONE),
        (Identity("anybody"), NONE),
        (Identity("anybody", 3), UNKNOWN),
        (Identity("", 3), UNKNOWN),
    ],
)
def test_who_may_commit_to_an_empty_group(play, identity, error) -> None:
    assert play.group.commit_error(identity) is error


def test_who_may_commit_to_a_group_with_members(play) -> None:
    (joined,) = play.gather(1)
    member = Identity(joined.member_id, 1)
    assert play.group.commit_error(member) is REBALANCING
    play.assign([joined])
    assert play.group.commit_error(member) is NONE
    assert play.group.commit_error(Identity()) is UNKNOWN
    assert play.group.commit_error(Identity(joined.member_id, 2)) is ErrorCode.ILLEGAL_GENERATION
    assert play.group.commit_error(Identity(joined.member_id, 1, "i")) is UNKNOWN
    play.join(joined.member_id, protocols=RANGE)
    assert play.group.commit_error(Identity(joined.member_id, 2)) is REBALANCING


def test_a_group_counts_from_zero() -> None:
    group = Group("g", GroupLimits(0, 1), Now(5, 6))
    assert (group.state_since_ms, group.generation_id) == (5, 0)
