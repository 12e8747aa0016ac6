"""What plays of groups and of transactions share: answers that may come later, effects, and a clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from klog.coordinator.groups.effects import Reply, Schedule, TimerKey
from klog.coordinator.groups.values import Now
from klog.protocol.error_codes import ErrorCode

WALL_MS = 1_700_000_000_000


@dataclass
class Answer:
    """The answer to one request, if it has come. An answer may be an error alone."""

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
        return getattr(self.value, "error", self.value)


class GroupPlay:
    """A group with a clock.

    Records are written at once, unless `holds_writes`; `write_error` is their outcome.
    """

    def __init__(self, group: Any, now_ms: int) -> None:
        self.group = group
        self.now_ms = now_ms
        self.timers: dict[TimerKey, int] = {}
        self.held: list[Any] = []
        self.holds_writes = False
        self.write_error = ErrorCode.NONE

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

    def write(self, effect: Any) -> None:
        if not self.write_error:
            self.keep(effect)
        effect.on_written(self.write_error, self.now)

    def keep(self, effect: Any) -> None:
        """Keep what is written."""
        raise NotImplementedError

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
