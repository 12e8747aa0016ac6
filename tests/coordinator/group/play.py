"""Plays events to a group: carries out its effects, and moves a clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from klog.coordinator.groups.classic.group import Group
from klog.coordinator.groups.classic.rebalance import GroupLimits
from klog.coordinator.groups.effects import WriteGroup
from klog.coordinator.groups.records import GroupMetadata
from klog.coordinator.groups.values import (
    Identity,
    JoinRequest,
    JoinResult,
    LeavingMember,
    Now,
    SyncRequest,
    SyncResult,
)
from klog.protocol.error_codes import ErrorCode
from tests.coordinator.playing import WALL_MS, Answer, GroupPlay

SESSION_MS = 10_000
REBALANCE_MS = 30_000
RANGE = (("range", b"r"),)
START_MS = 1_000


class Play(GroupPlay):
    """A classic group with a clock."""

    def __init__(
        self, *, initial_delay_ms: int = 3_000, max_size: int = 100, group: Group | None = None
    ) -> None:
        start = Now(WALL_MS + START_MS, START_MS)
        super().__init__(group or Group("g", GroupLimits(initial_delay_ms, max_size), start), START_MS)
        self.written: list[GroupMetadata] = []
        self._ids = 0
        self.settle()

    def keep(self, effect: WriteGroup) -> None:
        self.written.append(effect.metadata)

    # -- requests --------------------------------------------------------------------------------------------

    def join(self, member_id: str = "", **values: Any) -> Answer:
        self._ids += 1
        answer = Answer()
        asked = JoinRequest(
            **{
                "member_id": member_id,
                "new_member_id": f"m{self._ids}",
                "client_id": "c",
                "client_host": "/h",
                "session_timeout_ms": SESSION_MS,
                "rebalance_timeout_ms": REBALANCE_MS,
                "protocol_type": "consumer",
                "protocols": RANGE,
                "knows_required_ids": False,
                **values,
            }
        )
        self.group.join(asked, answer.results.append, self.now)
        self.settle()
        return answer

    def sync(self, joined: JoinResult, assignments: dict[str, bytes] | None = None, **values: Any) -> Answer:
        answer = Answer()
        identity = Identity(joined.member_id, joined.generation_id, values.pop("instance_id", None))
        asked = SyncRequest(identity, assignments or {}, **values)
        self.group.sync(asked, answer.results.append, self.now)
        self.settle()
        return answer

    def heartbeat(self, joined: JoinResult, instance_id: str | None = None) -> ErrorCode:
        error = self.group.heartbeat(Identity(joined.member_id, joined.generation_id, instance_id), self.now)
        self.settle()
        return error

    def leave(self, *members: LeavingMember) -> list[ErrorCode]:
        errors = self.group.leave(members, self.now)
        self.settle()
        return errors

    # -- whole rebalances ------------------------------------------------------------------------------------

    def gather(self, count: int, **values: Any) -> list[JoinResult]:
        """So many new members, joined to an empty group."""
        return self.await_all([self.join(**values) for _ in range(count)])

    def await_all(self, answers: Sequence[Answer]) -> list[Any]:
        """Let time pass until all have come."""
        for _ in range(1_000):
            if all(answer.came for answer in answers):
                return [answer.value for answer in answers]
            self.advance(100)
        raise AssertionError("an answer did not come")

    def assign(self, joined: Sequence[JoinResult]) -> list[SyncResult]:
        """Every member syncs; the leader gives each its own id as the assignment."""
        assignments = {each.member_id: each.member_id.encode() for each in joined}
        answers = [
            self.sync(each, assignments if each.member_id == each.leader_id else None) for each in joined
        ]
        return [answer.value for answer in answers]

    def stable(self, count: int, **values: Any) -> list[JoinResult]:
        """A stable group of so many members."""
        joined = self.gather(count, **values)
        self.assign(joined)
        return joined
