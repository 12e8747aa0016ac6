"""A group of either kind as its partition holds it: with its offsets and its timers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from klog.coordinator.groups.classic.group import Group
from klog.coordinator.groups.consumer.group import ConsumerGroup
from klog.coordinator.groups.effects import TimerKey
from klog.coordinator.groups.offsets.offsets import GroupOffsets
from klog.replication.timing_wheel import TimerTask


class GroupTimer(TimerTask):
    """A timer of one group."""

    __slots__ = ("_fire", "fired")

    def __init__(self, due_ms: int, fire: Callable[[GroupTimer], None]) -> None:
        super().__init__(due_ms)
        self._fire = fire
        self.fired = False

    def run(self) -> None:
        self.fired = True
        self._fire(self)


AnyGroup: TypeAlias = Group | ConsumerGroup


@dataclass(slots=True)
class GroupEntry:
    """A group with its offsets and its timers. Timers are changed by the task queue only."""

    group: AnyGroup
    offsets: GroupOffsets = field(default_factory=GroupOffsets)
    timers: dict[TimerKey, GroupTimer] = field(default_factory=dict)
