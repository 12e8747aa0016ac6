"""Plans moves between the log directories of each broker, so that these hold equally many bytes.

To the planner the directories of a broker are what brokers are to a cluster. Nothing else is different: as
few bytes as possible move, empty partitions are spread by number, and the plan follows from the sizes alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from klog.admin.reassign.goals import Goal
from klog.admin.reassign.plan import BrokerChange, Plan
from klog.admin.reassign.planner import plan
from klog.admin.reassign.values import (
    ANY_LOG_DIR,
    BrokerPlace,
    ClusterState,
    PartitionAssignment,
    PartitionState,
)
from klog.client.errors import ClientError
from klog.client.log_dirs import LogDir
from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode


@dataclass(frozen=True, slots=True)
class DirChange:
    """A log directory before and after a plan, which says of it what it says of brokers."""

    broker_id: int
    log_dir: str
    found: BrokerChange


@dataclass(frozen=True, slots=True)
class DirPlan:
    """Which replicas change their directory. `rollback` has the directories in which they are now.

    `least_bytes` is a lower bound of the bytes that a plan moves which is as even.
    """

    changes: tuple[PartitionAssignment, ...]
    rollback: tuple[PartitionAssignment, ...]
    dirs: tuple[DirChange, ...]
    moved_replicas: int
    moved_bytes: int
    least_bytes: int


_Placed = dict[TopicPartition, dict[int, str]]


def plan_dirs(
    dirs: Iterable[LogDir], replicas: Mapping[TopicPartition, Sequence[int]], tolerance: float
) -> DirPlan:
    """The plan for the brokers of these directories, each on its own, without directories that are offline.

    `replicas` are the brokers of every partition; logs of other partitions stay. Raises ClientError if a
    replica is being moved between directories.
    """
    by_broker: dict[int, list[LogDir]] = {}
    for each in sorted(dirs, key=lambda each: (each.broker_id, each.path)):
        if each.error is ErrorCode.NONE:
            by_broker.setdefault(each.broker_id, []).append(each)
    before: _Placed = {}
    after: _Placed = {}
    changes: list[DirChange] = []
    plans = []
    for broker_id, own in by_broker.items():
        found = _plan(broker_id, own, replicas, tolerance)
        plans.append(found)
        changes += (DirChange(broker_id, own[each.broker_id].path, each) for each in found.brokers)
        for new, old in zip(found.changes, found.rollback, strict=True):
            before.setdefault(new.partition, {})[broker_id] = own[old.replicas[0]].path
            after.setdefault(new.partition, {})[broker_id] = own[new.replicas[0]].path
    return DirPlan(
        _assignments(after, replicas),
        _assignments(before, replicas),
        tuple(changes),
        sum(each.added_replicas for each in plans),
        sum(each.moved_bytes for each in plans),
        sum(each.least_bytes for each in plans),
    )


def _plan(
    broker_id: int,
    dirs: Sequence[LogDir],
    replicas: Mapping[TopicPartition, Sequence[int]],
    tolerance: float,
) -> Plan:
    """The plan for one broker, in which a directory's place in `dirs` stands for a broker."""
    parts = []
    for place, each in enumerate(dirs):
        for replica in each.replicas:
            if replica.is_future:
                raise ClientError(
                    f"broker {broker_id} is moving {replica.partition} to {each.path}",
                    cure="plan again when that is done",
                )
            if broker_id in replicas.get(replica.partition, ()):
                parts.append(PartitionState(replica.partition, (place,), place, (place,), replica.size_bytes))
    state = ClusterState(
        tuple(map(BrokerPlace, range(len(dirs)))),
        tuple(sorted(parts, key=lambda part: part.partition)),
    )
    return plan(state, Goal(brokers=frozenset(range(len(dirs))), keep_leaders=True, tolerance=tolerance))


def _assignments(
    placed: _Placed, replicas: Mapping[TopicPartition, Sequence[int]]
) -> tuple[PartitionAssignment, ...]:
    """The directories of replicas that move; the others have ANY_LOG_DIR, which leaves them alone."""
    return tuple(
        PartitionAssignment(
            partition,
            tuple(replicas[partition]),
            tuple(by_broker.get(broker, ANY_LOG_DIR) for broker in replicas[partition]),
        )
        for partition, by_broker in sorted(placed.items())
    )
