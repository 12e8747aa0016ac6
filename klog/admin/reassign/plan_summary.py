"""Makes a plan of the replicas that were chosen: what changes, and the brokers before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from klog.admin.reassign.cluster_state import ClusterState
from klog.admin.reassign.goals import Scope
from klog.admin.reassign.plan import BrokerChange, Plan
from klog.admin.reassign.values import PartitionAssignment


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
