"""The effects that a group asks its coordinator for: answers to send, records to write, timers to start.

A group decides and lists effects; whoever runs it carries them out in this order, after leaving the group's
lock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from klog.coordinator.groups.records import GroupMetadata
from klog.coordinator.groups.values import JoinResult, Now, SyncResult
from klog.protocol.error_codes import ErrorCode

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Reply(Generic[R]):
    """Answer a request."""

    to: Callable[[R], None]
    result: R

    def send(self) -> None:
        """Answer."""
        self.to(self.result)


class TimerKey(NamedTuple):
    """A timer of a group: `join` and `sync` are the group's, `member` is that of the member named."""

    kind: str
    member_id: str = ""


MEMBER_TIMER_KIND: Final = "member"
JOIN_TIMER = TimerKey("join")
SYNC_TIMER = TimerKey("sync")


def member_timer(member_id: str) -> TimerKey:
    """The timer of a member's session."""
    return TimerKey(MEMBER_TIMER_KIND, member_id)


class Schedule(NamedTuple):
    """Call the group's `on_timer` at `due_ms` of the timer's clock.

    A timer that is scheduled for an earlier time may stay as it is: the group schedules it again.
    """

    timer: TimerKey
    due_ms: int


@dataclass(frozen=True, slots=True)
class WriteGroup:
    """Write the group's record.

    Then call `on_written` with the append's error and the time, under the group's lock.
    """

    metadata: GroupMetadata
    on_written: Callable[[ErrorCode, Now], None]


Effect: TypeAlias = Reply[JoinResult] | Reply[SyncResult] | Schedule | WriteGroup
