"""A reassignment plan: which partitions change, and what that means for each broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from klog.admin.reassign.values import PartitionAssignment


@dataclass(frozen=True, slots=True)
class BrokerChange:
    """A broker before and after a plan. `in_bytes` are copied to it, `out_bytes` are deleted from it.

    `is_target` is set if it may hold replicas after the plan.
    """

    broker_id: int
    rack: str | None
    is_target: bool
    replicas_before: int
    replicas_after: int
    leaders_before: int
    leaders_after: int
    bytes_before: int
    bytes_after: int
    in_bytes: int
    out_bytes: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What to change. `changes` and `rollback` have the same partitions, sorted; the rest stays as it is.

    `least_bytes` is a lower bound: no plan with the same goal and the same balance moves less.
    `too_few_racks` counts partitions that are on fewer racks than they could be after the plan.
    """

    changes: tuple[PartitionAssignment, ...]
    rollback: tuple[PartitionAssignment, ...]
    brokers: tuple[BrokerChange, ...]
    added_replicas: int
    moved_bytes: int
    least_bytes: int
    too_few_racks: int

    @property
    def ratio(self) -> float:
        """The bytes that move, as a multiple of the lower bound."""
        return self.moved_bytes / self.least_bytes if self.least_bytes else 1.0

    @property
    def targets(self) -> tuple[BrokerChange, ...]:
        """The brokers that may hold replicas after the plan."""
        return tuple(broker for broker in self.brokers if broker.is_target)

    def imbalance(self, value_of: Callable[[BrokerChange], int]) -> float:
        """How far the target with most of something is above the mean of the targets; 0.1 is 10 percent."""
        return imbalance([value_of(broker) for broker in self.targets])


def imbalance(values: list[int]) -> float:
    """How far the largest value is above the mean; 0 if all are equal."""
    total = sum(values)
    return max(values) * len(values) / total - 1 if total else 0.0
