"""An exact solver for small reassignments: integer programming finds the least movement."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from klog.admin.reassign.goals import Freedom, Goal, Scope, scope_of
from klog.admin.reassign.layout import Layout, PlannedPartition
from klog.admin.reassign.plan import Plan
from klog.admin.reassign.shares import band_of, fair_shares
from klog.admin.reassign.values import ClusterState, PartitionState

_GAP = 0.005


class Least(NamedTuple):
    """The bytes that must move, and those of a layout that was found: at most half a percent more."""

    bound: int
    found: int


def least_bytes(state: ClusterState, goal: Goal, done: Plan) -> Least:
    """The fewest bytes that meet the goal and leave each broker as near to its fair share as the plan does.

    The unknowns are x[partition, broker] (1 if it holds a replica) and y[partition, rack] (1 if the rack is
    used).
    """
    scope = scope_of(state, goal)
    usable = sorted(
        {*scope.targets, *(b for part in state.partitions for b in part.replicas)} - scope.leaving
    )
    racks = sorted({scope.racks[broker] for broker in usable})
    count, width = len(state.partitions), len(usable) + len(racks)
    costs, uppers = np.zeros(count * width), np.ones(count * width)
    rows, lows, highs = [], [], []

    def constrain(entries: dict[int, float], low: float, high: float) -> None:
        row = np.zeros(count * width)
        for column, value in entries.items():
            row[column] = value
        rows.append(row)
        lows.append(low)
        highs.append(high)

    factors = [goal.replication_factor or len(part.replicas) for part in state.partitions]
    for index, (part, factor) in enumerate(zip(state.partitions, factors, strict=True)):
        start = index * width
        for place, broker in enumerate(usable):
            costs[start + place] = 0 if broker in part.replicas else part.size_bytes
            if broker not in scope.targets and broker not in part.replicas:
                uppers[start + place] = 0
        constrain({start + place: 1 for place in range(len(usable))}, factor, factor)
        if scope.freedom is Freedom.TO_ADDED:  # what need not move goes to brokers that are added only
            constrain(
                {
                    start + place: 1
                    for place, broker in enumerate(usable)
                    if broker not in part.replicas and broker not in scope.added
                },
                0,
                _forced(part, factor, scope),
            )
        mine = {scope.racks[b] for b in {*scope.targets, *(set(part.replicas) & set(usable))}}
        for number, rack in enumerate(racks):
            column = start + len(usable) + number
            members = {start + place: -1.0 for place, b in enumerate(usable) if scope.racks[b] == rack}
            constrain({column: 1.0, **members}, -np.inf, 0)
        constrain(
            {start + len(usable) + number: 1 for number in range(len(racks))},
            min(factor, len(mine)),  # the clusters start so, and plans keep it
            np.inf,
        )
    for broker, (low, high) in _limits(state, goal, done, factors).items():
        place = usable.index(broker)
        loads = {index * width + place: part.size_bytes for index, part in enumerate(state.partitions)}
        constrain(loads, low, high)
    solved = milp(
        costs,
        constraints=LinearConstraint(np.array(rows), lows, highs),
        bounds=Bounds(0, uppers),
        integrality=np.ones(count * width),
        options={"mip_rel_gap": _GAP},
    )
    assert solved.success, solved.message
    return Least(math.ceil(solved.mip_dual_bound - 1e-6), round(solved.fun))


def _forced(part: PartitionState, factor: int, scope: Scope) -> int:
    """How many new replicas a partition gets whatever else is wanted; the clusters start on all racks."""
    staying = set(part.replicas) - scope.leaving
    racks = min(factor, len({scope.racks[broker] for broker in scope.targets | staying}))
    racks = min(racks, len({scope.racks[broker] for broker in part.replicas}))
    return max(0, factor - len(staying), racks - len({scope.racks[broker] for broker in staying}))


def _limits(
    state: ClusterState, goal: Goal, done: Plan, factors: list[int]
) -> dict[int, tuple[float, float]]:
    """What each broker may hold: as the plan has it, or nearer to its fair share."""
    scope = scope_of(state, goal)
    if scope.freedom is Freedom.NONE:
        return {}
    layout = Layout(
        [PlannedPartition(part.size_bytes, frozenset(part.replicas), None, 1) for part in state.partitions],
        scope.targets,
        scope.racks,
    )
    elsewhere = [len(set(part.replicas) - scope.targets - scope.leaving) for part in state.partitions]
    shares = fair_shares(layout, [factor - less for factor, less in zip(factors, elsewhere, strict=True)])
    band = band_of(shares, goal.tolerance)
    held = {broker.broker_id: broker.bytes_after for broker in done.brokers}
    if scope.freedom is Freedom.TO_ADDED:
        had = {broker.broker_id: broker.bytes_before for broker in done.brokers}
        return {
            broker: (min(band.low[broker], held[broker]), max(band.high[broker], held[broker], had[broker]))
            if broker in scope.added
            else (min(band.low[broker], held[broker]), np.inf)
            for broker in scope.targets
        }
    return {
        broker: (min(band.low[broker], held[broker]), max(band.high[broker], held[broker]))
        for broker in scope.targets
    }
