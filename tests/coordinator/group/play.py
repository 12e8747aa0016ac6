"""Plays events to a group: carries out its effects, and moves a clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from klog.coordinator.groups.classic.group import Group
from klog.coordinator.groups.classic.rebalance import GroupLimits
from klog.coordinator.groups.effects import Reply, Schedule, TimerKey, WriteGroup
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

SESSION_MS = 10_000
REBALANCE_MS = 30_000
RANGE = (("range", b"r"),)
START_MS = 1_000
WALL_MS = 1_700_000_000_000


@dataclass
class Answer:
    """The answer to one request, if it has come."""

    results: list[Any] = field(default_factory=list)

    @property
    def came(self) -> bool:
        return bool(self.results)

    @property
    def value(self) -> Any:
        (only,) = self.results
        return only

    @property
    def error(self) -> ErrorCode:
        return self.value.error


class Play:
    """A group with a clock.

    Records are written at once, unless `holds_writes`; `write_error` is their outcome.
    """

    def __init__(
        self, *, initial_delay_ms: int = 3_000, max_size: int = 100, group: Group | None = None
    ) -> None:
        self.now_ms = START_MS
        self.group = group or Group("g", GroupLimits(initial_delay_ms, max_size), self.now)
        self.timers: dict[TimerKey, int] = {}
        self.written: list[GroupMetadata] = []
        self.held: list[WriteGroup] = []
        self.holds_writes = False
        self.write_error = ErrorCode.NONE
        self._ids = 0
        self.settle()

    @property
    def now(self) -> Now:
        return Now(WALL_MS + self.now_ms, self.now_ms)

    def settle(self) -> None:
        """Carry out all effects."""
        while effects := self.group.take_effects():
            for effect in effects:
                if isinstance(effect, Schedule):
                    known = self.timers.get(effect.timer, effect.due_ms)
                    self.timers[effect.timer] = min(known, effect.due_ms)
                elif isinstance(effect, Reply):
                    effect.send()
                elif self.holds_writes:
                    self.held.append(effect)
                else:
                    self.write(effect)

    def write(self, effect: WriteGroup) -> None:
        if not self.write_error:
            self.written.append(effect.metadata)
        effect.on_written(self.write_error, self.now)

    def advance(self, elapsed_ms: int) -> None:
        """Let time pass; timers fire in their order."""
        end_ms = self.now_ms + elapsed_ms
        while due := sorted((at, key) for key, at in self.timers.items() if at <= end_ms):
            at_ms, key = due[0]
            del self.timers[key]
            self.now_ms = max(self.now_ms, at_ms)
            self.group.on_timer(key, self.now)
            self.settle()
        self.now_ms = end_ms

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
