"""Plans reassignments: which replicas go where so that a goal is met with the least movement.

A goal that only drains brokers or changes the replication factor moves what it forces to move, and chooses
the destinations that even out the brokers. Adding brokers moves replicas to these until they have their fair
share. A goal that names the brokers to use evens out all of them. The plan depends on its arguments only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from klog.admin.reassign.balancing import Balancing
from klog.admin.reassign.goals import Freedom, Goal, Scope, scope_of
from klog.admin.reassign.layout import Layout, PlannedPartition
from klog.admin.reassign.leaders import balanced_leaders
from klog.admin.reassign.least_moves import move_less
from klog.admin.reassign.placement import Placement, racks_to_have
from klog.admin.reassign.plan import BrokerChange, Plan
from klog.admin.reassign.shares import Band, band_of, band_to_fill, fair_shares
from klog.admin.reassign.values import ClusterState, PartitionAssignment, PartitionState

_EMPTY_WEIGHT: Final = (
    1_000_000  # of an empty partition, among empty ones only; large, since shares are rounded
)
_FEW_REPLICAS: Final = 3000
_PIECES: Final = (1.0, 0.0, 0.5, 2.0, 4.0)
"""How many replicas to move for some bytes, as multiples of an even share. Small clusters try all."""


def plan(state: ClusterState, goal: Goal) -> Plan:
    """The plan for all partitions of `state`. Raises UsageError for a goal that cannot be met."""
    scope = scope_of(state, goal)
    targets: dict[int, tuple[int, ...]] = {}
    least_bytes = 0
    # Empty partitions are spread by number, and the others by bytes.
    for with_bytes in (True, False):
        some = [part for part in state.partitions if (part.size_bytes > 0) is with_bytes]
        if some:
            placed = _placed(some, goal, scope)
            targets |= {
                index: _in_order(part, brokers)
                for index, part, brokers in zip(
                    (
                        index
                        for index, part in enumerate(state.partitions)
                        if (part.size_bytes > 0) is with_bytes
                    ),
                    some,
                    placed.replicas,
                    strict=True,
                )
            }
            least_bytes += placed.least_bytes
    ordered = [targets[index] for index in range(len(state.partitions))]
    if not goal.keep_leaders:
        ordered = _with_balanced_leaders(state.partitions, ordered, scope)
    return summarised(state, scope, ordered, least_bytes)


@dataclass(frozen=True, slots=True)
class _Placed:
    replicas: list[set[int]]
    least_bytes: int


def _placed(partitions: Sequence[PartitionState], goal: Goal, scope: Scope) -> _Placed:
    """The brokers of each partition. All partitions are empty, or none is."""
    by_size = sorted(range(len(partitions)), key=lambda index: (partitions[index].size_bytes, index))
    sorted_parts = [partitions[index] for index in by_size]
    factors = [goal.replication_factor or len(part.replicas) for part in sorted_parts]
    planned = [_planned(part, factor, scope) for part, factor in zip(sorted_parts, factors, strict=True)]
    found = [
        _search(planned, [part.partition.topic for part in sorted_parts], factors, goal, scope, pieces)
        for pieces in (_PIECES if sum(factors) <= _FEW_REPLICAS else _PIECES[:1])
    ]
    best = min(found, key=lambda each: (each.violation, each.layout.moved_bytes()))
    is_empty = not sorted_parts[-1].size_bytes
    # Either the brokers get nearer to their band, or less moves, so that this ends.
    while not is_empty and move_less(best.layout, scope, best.band):
        Balancing(best.layout, scope, best.band).run()
    replicas: list[set[int]] = [set() for _ in partitions]
    for index, brokers in zip(by_size, best.layout.replicas, strict=True):
        replicas[index] = brokers
    return _Placed(replicas, 0 if is_empty else least_movement(best.layout, scope, factors, best.band))


@dataclass(frozen=True, slots=True)
class _Found:
    layout: Layout
    band: Band
    violation: int


def _search(
    planned: Sequence[PlannedPartition],
    topics: Sequence[str],
    factors: Sequence[int],
    goal: Goal,
    scope: Scope,
    pieces: float,
) -> _Found:
    layout = Layout(planned, scope.targets, scope.racks)
    shares = fair_shares(layout, list(map(partial(_on_targets, scope=scope), planned, factors)))
    band, had = band_of(shares, goal.tolerance), dict(layout.load)
    Placement(layout, scope, factors, shares).run(topics)
    if scope.freedom is not Freedom.ALL:
        Balancing(layout, replace(scope, freedom=Freedom.NONE), band).run()
    if scope.freedom is Freedom.TO_ADDED:
        band = band_to_fill(shares, goal.tolerance, had, scope.added)
    Balancing(layout, scope, band, pieces=pieces).run()
    return _Found(layout, band, sum(band.violation(*each) for each in layout.load.items()))


def _on_targets(part: PlannedPartition, factor: int, scope: Scope) -> int:
    """How many replicas are to be on targets. Those elsewhere go first if the factor is lower."""
    staying = part.original - scope.leaving
    removed = max(0, len(staying) - factor)
    return factor - max(0, len(staying - scope.targets) - removed)


def _planned(part: PartitionState, factor: int, scope: Scope) -> PlannedPartition:
    original = frozenset(part.replicas)
    usable = scope.targets | (original - scope.leaving)
    racks = len({scope.racks[broker] for broker in usable})
    leader = next((broker for broker in (part.leader, *part.replicas) if broker is not None), None)
    return PlannedPartition(part.size_bytes or _EMPTY_WEIGHT, original, leader, min(factor, racks))


def _in_order(part: PartitionState, brokers: set[int]) -> tuple[int, ...]:
    """The replicas that stay in their order, then the new ones."""
    kept = [broker for broker in part.replicas if broker in brokers]
    return (*kept, *sorted(brokers - set(kept)))


def _with_balanced_leaders(
    partitions: Sequence[PartitionState], replicas: Sequence[tuple[int, ...]], scope: Scope
) -> list[tuple[int, ...]]:
    """The same replicas in the order that evens out the preferred leaders.

    Partitions that change anyway get other leaders before those that would not change.
    """
    changed_first = sorted(
        range(len(partitions)),
        key=lambda index: (set(replicas[index]) == set(partitions[index].replicas), index),
    )
    leaders = balanced_leaders(
        [replicas[index][0] for index in changed_first],
        [replicas[index] for index in changed_first],
        scope.targets,
    )
    ordered = list(replicas)
    for index, leader in zip(changed_first, leaders, strict=True):
        ordered[index] = (leader, *(broker for broker in replicas[index] if broker != leader))
    return ordered


# The least that any plan has to move: what the goal forces, and what brokers have too much or too little.


def least_movement(layout: Layout, scope: Scope, factors: Sequence[int], band: Band) -> int:
    """A lower bound of the bytes that a plan moves which is as even as this layout.

    Every broker may be as full as in the layout, or as the band allows if that is more; the same for empty.
    """
    forced = 0
    kept = dict.fromkeys(layout.targets, 0)
    total = 0  # on targets at the end
    for number, (part, factor, now) in enumerate(
        zip(layout.partitions, factors, layout.replicas, strict=True)
    ):
        staying = part.original - scope.leaving
        missing = max(0, factor - len(staying), racks_to_have(layout, scope, number) - layout.spread(staying))
        forced += part.size_bytes * missing
        total += part.size_bytes * len(now & layout.load.keys())
        for broker in staying & layout.load.keys():
            kept[broker] += part.size_bytes
    if scope.freedom is Freedom.NONE:
        return forced
    load = layout.load
    receivers = layout.targets if scope.freedom is Freedom.ALL else sorted(scope.added)
    least_in = sum(max(0, min(band.low[broker], load[broker]) - kept[broker]) for broker in receivers)
    if scope.freedom is Freedom.TO_ADDED:
        return max(forced, least_in)
    most_kept = sum(min(kept[broker], max(band.high[broker], load[broker])) for broker in layout.targets)
    return max(forced, least_in, total - most_kept)


# -- Makes a plan of the replicas that were chosen: what changes, and the brokers before and after -----------


class _Counts:
    """What each broker holds."""

    def __init__(self) -> None:
        self.replicas: Counter[int] = Counter()
        self.leaders: Counter[int] = Counter()
        self.bytes: Counter[int] = Counter()

    def add(self, replicas: Sequence[int], size_bytes: int) -> None:
        self.leaders[replicas[0]] += 1
        for broker in replicas:
            self.replicas[broker] += 1
            self.bytes[broker] += size_bytes


def summarised(
    state: ClusterState, scope: Scope, replicas: Sequence[tuple[int, ...]], least_bytes: int
) -> Plan:
    """The plan that gives each partition of `state` these replicas."""
    before, after, in_bytes, out_bytes = _Counts(), _Counts(), Counter[int](), Counter[int]()
    changes, rollback = [], []
    added = too_few_racks = 0
    for part, now in zip(state.partitions, replicas, strict=True):
        before.add(part.replicas, part.size_bytes)
        after.add(now, part.size_bytes)
        new = set(now) - set(part.replicas)
        added += len(new)
        _count(in_bytes, new, part.size_bytes)
        _count(out_bytes, set(part.replicas) - set(now), part.size_bytes)
        usable = {scope.racks[broker] for broker in scope.targets.union(now)}
        too_few_racks += len({scope.racks[broker] for broker in now}) < min(len(now), len(usable))
        if now != part.replicas:
            changes.append(PartitionAssignment(part.partition, now))
            rollback.append(PartitionAssignment(part.partition, part.replicas))
    racks = {broker.broker_id: broker.rack for broker in state.brokers}
    brokers = tuple(
        BrokerChange(
            broker,
            racks.get(broker),
            broker in scope.targets,
            before.replicas[broker],
            after.replicas[broker],
            before.leaders[broker],
            after.leaders[broker],
            before.bytes[broker],
            after.bytes[broker],
            in_bytes[broker],
            out_bytes[broker],
        )
        for broker in sorted({*racks, *before.replicas})
    )
    return Plan(tuple(changes), tuple(rollback), brokers, added, in_bytes.total(), least_bytes, too_few_racks)


def _count(counter: Counter[int], brokers: Iterable[int], size_bytes: int) -> None:
    for broker in brokers:
        counter[broker] += size_bytes
