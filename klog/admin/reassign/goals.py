"""What is to be true after a reassignment, and which brokers that leaves to choose from."""

from __future__ import annotations

from collections.abc import Collection, Set
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from klog.admin.reassign.values import ClusterState
from klog.formats.errors import UsageError

DEFAULT_TOLERANCE: Final = 0.01


@dataclass(frozen=True, slots=True)
class Goal:
    """What is to be true. What is not named stays as it is.

    `brokers` are to hold all replicas, spread evenly; `drained` are to hold none; `added` are to hold their
    fair share. `tolerance` is how far from its fair share of bytes a broker may be, as a part of that share.
    """

    brokers: frozenset[int] | None = None
    drained: frozenset[int] = field(default_factory=frozenset)
    added: frozenset[int] = field(default_factory=frozenset)
    replication_factor: int | None = None
    rack_aware: bool = True
    keep_leaders: bool = False
    """Whether preferred leaders stay where they are, as far as their brokers keep the replica."""
    tolerance: float = DEFAULT_TOLERANCE


class Freedom(Enum):
    """Which replicas a plan may move beside those that must."""

    NONE = auto()
    TO_ADDED = auto()
    ALL = auto()


@dataclass(frozen=True, slots=True)
class Scope:
    """A goal applied to a cluster: the brokers that may get replicas, those that hold none at the end, racks.

    `racks` has an entry for each broker that is known; brokers without a common rack have different values.
    """

    targets: frozenset[int]
    leaving: frozenset[int]
    added: frozenset[int]
    freedom: Freedom
    racks: dict[int, str]


def scope_of(state: ClusterState, goal: Goal) -> Scope:
    """Apply a goal to a cluster. Raises UsageError for a goal that cannot be met."""
    alive = {broker.broker_id for broker in state.brokers}
    holding = {broker for part in state.partitions for broker in part.replicas}
    _check(goal, alive, holding)
    targets: Set[int]
    leaving: Set[int] = goal.drained
    if goal.brokers is not None:
        targets, freedom = (goal.brokers | goal.added) - goal.drained, Freedom.ALL
        leaving = (alive | holding) - targets
    elif goal.added:
        targets, freedom = ((alive & holding) | goal.added) - goal.drained, Freedom.TO_ADDED
    else:
        targets, freedom = alive - goal.drained, Freedom.NONE
    if not targets:
        raise UsageError("no broker is left to hold replicas", cure="drain fewer brokers, or add some")
    _check_factor(state, goal, targets, leaving)
    racks = _racks(state, goal, targets, holding)
    return Scope(frozenset(targets), frozenset(leaving), goal.added, freedom, racks)


def _check(goal: Goal, alive: Collection[int], holding: Collection[int]) -> None:
    if goal.brokers is None and not goal.drained and not goal.added and goal.replication_factor is None:
        raise UsageError(
            "nothing is asked for", cure="give --brokers, --drain, --add or --replication-factor"
        )
    for name, wanted, known in (
        ("--brokers", goal.brokers or (), alive),
        ("--add", goal.added, alive),
        ("--drain", goal.drained, {*alive, *holding}),
    ):
        unknown = sorted(set(wanted) - set(known))
        if unknown:
            raise UsageError(
                f"{name}: broker {_ids(unknown)} is not alive",
                cure=f"the brokers that are alive: {_ids(sorted(alive))}",
            )
    both = sorted(goal.drained & ((goal.brokers or frozenset()) | goal.added))
    if both:
        raise UsageError(
            f"broker {_ids(both)} is both to be drained and to be used", cure="name each broker once"
        )
    if goal.replication_factor is not None and goal.replication_factor < 1:
        raise UsageError("--replication-factor must be at least 1")
    if not 0 <= goal.tolerance < 1:
        raise UsageError("--tolerance must be at least 0 and below 100 percent")


def _check_factor(
    state: ClusterState, goal: Goal, targets: Collection[int], leaving: Collection[int]
) -> None:
    for part in state.partitions:
        factor = goal.replication_factor or len(part.replicas)
        usable = len({*targets, *part.replicas} - set(leaving))
        if factor > usable:
            raise UsageError(
                f"{part.partition} is to have {factor} replicas, but only {usable} brokers may hold them",
                cure="use more brokers, or lower --replication-factor",
            )


def _racks(
    state: ClusterState, goal: Goal, targets: Collection[int], holding: Collection[int]
) -> dict[int, str]:
    """The rack of each broker. A broker whose rack does not count, or is not known, is a rack of its own."""
    known = {broker.broker_id: broker.rack for broker in state.brokers if broker.broker_id in targets}
    without = sorted(broker for broker, rack in known.items() if rack is None)
    if goal.rack_aware and without and len(without) < len(known):
        raise UsageError(
            f"some brokers have a rack, but broker {_ids(without)} has none",
            cure="set broker.rack everywhere, or give --disable-rack-aware",
        )
    racks = {broker.broker_id: broker.rack for broker in state.brokers} if goal.rack_aware else {}
    return {
        broker: f"rack {rack}" if (rack := racks.get(broker)) is not None else f"broker {broker}"
        for broker in {*targets, *holding}
    }


def _ids(brokers: Collection[int]) -> str:
    return ", ".join(map(str, brokers))
