"""Whatever members do: a group's counts are right, and everybody is answered in the end."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from klog.coordinator.groups.values import GroupState, JoinResult, LeavingMember
from klog.protocol.error_codes import ErrorCode
from tests.coordinator.group.play import REBALANCE_MS, SESSION_MS, Answer, Play

LONG_MS = 10 * (SESSION_MS + REBALANCE_MS) + 300_000
PROTOCOLS = ((("range", b"a"),), (("range", b"b"), ("sticky", b"")), (("sticky", b""), ("range", b"a")))

# What happens, to which of the known members, and how.
ACTIONS = "join", "rejoin", "sync", "sync", "beat", "leave", "static", "gather", "gather", "wait", "write"
STEPS = st.tuples(st.sampled_from(ACTIONS), st.integers(0, 5), st.integers(0, 2))


@dataclass
class History:
    """Members as clients know themselves, and every request that they have sent."""

    play: Play
    known: list[JoinResult] = field(default_factory=list)
    joins: list[tuple[str, Answer]] = field(default_factory=list)
    syncs: list[tuple[str, Answer]] = field(default_factory=list)
    replaced: list[Answer] = field(default_factory=list)

    def step(self, what: str, which: int, how: int) -> None:
        member = (
            self.known[which % len(self.known)] if self.known else JoinResult(ErrorCode.NONE, "nobody", 1)
        )
        if what == "join":
            self.add(self.joins, "", self.play.join(protocols=PROTOCOLS[how], knows_required_ids=how == 1))
        elif what == "static":
            answer = self.play.join(instance_id=f"i{which % 2}", may_skip_assignment=how == 1)
            self.add(self.joins, "", answer)
        elif what == "rejoin":
            answer = self.play.join(member.member_id, protocols=PROTOCOLS[how])
            self.add(self.joins, member.member_id, answer)
        elif what == "sync":
            self.add(self.syncs, member.member_id, self.play.sync(member, {member.member_id: b"x"}))
        elif what == "gather":
            self.gather()
        elif what == "beat":
            self.play.heartbeat(member)
        elif what == "leave":
            self.play.leave(LeavingMember(member.member_id))
        elif what == "wait":
            self.play.advance((100, 3_000, SESSION_MS)[how])
        else:
            self.finish_writes(ErrorCode.NONE if how else ErrorCode.NOT_COORDINATOR)
        self.learn()

    def gather(self) -> None:
        """All members that do not wait join again, so that a generation begins."""
        for present in [each for each in self.play.group.members if each.join_reply is None]:
            answer = self.play.join(present.member_id, instance_id=present.instance_id)
            self.add(self.joins, present.member_id, answer)
        self.play.advance(3_000)
        self.learn()
        self.known = self.known[-6:]

    def finish_writes(self, error: ErrorCode) -> None:
        """The records that are being written are there, or failed."""
        self.play.write_error = error
        held, self.play.held = self.play.held, []
        for effect in held:
            self.play.write(effect)
        self.play.settle()

    def add(self, sent: list[tuple[str, Answer]], member_id: str, answer: Answer) -> None:
        """A request; one of the same member that waits is replaced by it, and never answered."""
        if member_id and not answer.came:
            self.replaced += (other for name, other in sent if name == member_id and not other.came)
        sent.append((member_id, answer))

    def learn(self) -> None:
        """Clients take over what they are answered."""
        for _, answer in self.joins:
            if answer.came and answer.value.member_id and answer.value not in self.known:
                self.known.append(answer.value)

    def check(self) -> None:
        group = self.play.group
        members = list(group.members)
        waiting = [member for member in members if member.join_reply is not None]
        assert group.members.waiting_to_join == len(waiting)
        for name in ("range", "sticky"):
            supporters = sum(any(name == each for each, _ in member.protocols) for member in members)
            assert group.members._supported[name] == supporters
        assert not members or group.members.leader_id in {member.member_id for member in members}
        assert {member.member_id for member in members if member.instance_id} == set(
            group.members._static.values()
        )
        if group.state is GroupState.EMPTY:
            assert not members
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            assert members
            assert all(len(answer.results) <= 1 for _, answer in self.joins + self.syncs)
        assert group.members.pending_sync <= {member.member_id for member in members}

    def unanswered(self) -> list[Answer]:
        replaced = {id(answer) for answer in self.replaced}
        return [
            answer for _, answer in self.joins + self.syncs if not answer.came and id(answer) not in replaced
        ]


@settings(max_examples=300, deadline=None)
@given(st.lists(STEPS, max_size=40), st.booleans(), st.integers(1, 6))
def test_everybody_is_answered_and_the_group_is_empty_in_the_end(steps, holds_writes, max_size) -> None:
    history = History(Play(initial_delay_ms=3_000, max_size=max_size))
    history.play.holds_writes = holds_writes
    generation_id = 0
    for what, which, how in steps:
        history.step(what, which, how)
        history.check()
        assert history.play.group.generation_id >= generation_id
        generation_id = history.play.group.generation_id
    history.finish_writes(ErrorCode.NONE)
    history.play.holds_writes = False
    history.play.advance(LONG_MS)
    history.check()
    assert history.play.group.state is GroupState.EMPTY
    assert not history.play.group.members.pending
    assert history.unanswered() == []
    assert not history.play.timers


@settings(max_examples=100, deadline=None)
@given(st.lists(STEPS, max_size=30))
def test_members_that_behave_become_stable_after_any_history(steps) -> None:
    history = History(Play(max_size=3))
    for step in steps:
        history.step(*step)
    history.play.write_error = ErrorCode.NONE
    play = history.play
    play.advance(LONG_MS)
    joined = play.stable(3)
    assert play.group.state is GroupState.STABLE
    assert [play.heartbeat(member) for member in joined] == [ErrorCode.NONE] * 3
