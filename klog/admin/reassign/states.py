"""Says whether the cluster has what an assignment asks for: each partition, and each
replica that has a named directory.

Rules: Kafka's ReassignPartitionsCommand (`verifyAssignment`). A partition is complete if its replicas are the
target's in the target's order, and no reassignment of it runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from klog.admin.reassign.preparing import current_replicas
from klog.admin.reassign.values import ANY_LOG_DIR, PartitionAssignment
from klog.admin.requests.reassignments import RunningReassignment, list_reassignments
from klog.client.cluster import Cluster
from klog.client.log_dirs import LogDir, LogDirs, Replica, describe_log_dirs
from klog.formats.names import TopicPartition


class MoveState(StrEnum):
    """How far a move is. NOT_MOVING: it was never begun, was cancelled, or was replaced by another one."""

    COMPLETED = "completed"
    IN_PROGRESS = "inProgress"
    NOT_MOVING = "notMoving"
    OTHER_TARGET = "otherTarget"
    NOT_FOUND = "notFound"


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """A partition; `replicas` are those it has now, none if it does not exist."""

    partition: TopicPartition
    state: MoveState
    replicas: tuple[int, ...]
    target: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LogDirStatus:
    """A replica with a named directory; `log_dir` is where it is, or is being moved to (OTHER_TARGET)."""

    replica: Replica
    state: MoveState
    log_dir: str | None
    target: str
    current: str | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """All that an assignment asks for, sorted, what runs beside it, and which brokers do not answer."""

    partitions: tuple[PartitionStatus, ...]
    log_dirs: tuple[LogDirStatus, ...]
    running: tuple[RunningReassignment, ...]
    found: LogDirs

    @property
    def moves_dirs(self) -> bool:
        """Whether a replica is on its way to its directory."""
        return any(each.state is MoveState.IN_PROGRESS for each in self.log_dirs)

    @property
    def is_complete(self) -> bool:
        """Whether all is as asked for."""
        states = [each.state for each in self.partitions] + [each.state for each in self.log_dirs]
        return all(state is MoveState.COMPLETED for state in states)

    @property
    def is_running(self) -> bool:
        """Whether any reassignment runs in the cluster, or a replica is on its way to its directory."""
        return bool(self.running) or self.moves_dirs


def named_dirs(targets: Iterable[PartitionAssignment]) -> dict[Replica, str]:
    """The replicas that have a named directory, with it."""
    return {
        Replica(each.partition, broker): path
        for each in targets
        for broker, path in zip(each.replicas, each.log_dirs, strict=False)
        if path != ANY_LOG_DIR
    }


def status_of(cluster: Cluster, targets: Sequence[PartitionAssignment]) -> Status:
    """Compare an assignment with the cluster. Raises ClientError, ChannelError."""
    running = list_reassignments(cluster)
    current = current_replicas(cluster, [each.partition for each in targets])
    wanted = named_dirs(targets)
    found = LogDirs((), {})
    if wanted:
        brokers = {replica.broker_id for replica in wanted}
        found = describe_log_dirs(cluster, brokers, {replica.partition for replica in wanted})
    return Status(
        tuple(sorted(_partitions(targets, current, running), key=lambda each: each.partition)),
        tuple(log_dir_states(wanted, found.dirs)),
        tuple(running),
        found,
    )


def _partitions(
    targets: Iterable[PartitionAssignment],
    current: dict[TopicPartition, tuple[int, ...]],
    running: Iterable[RunningReassignment],
) -> Iterable[PartitionStatus]:
    moving = {each.partition for each in running}
    for target in targets:
        replicas = current.get(target.partition, ())
        if target.partition in moving:
            state = MoveState.IN_PROGRESS
        elif replicas == target.replicas:
            state = MoveState.COMPLETED
        else:
            state = MoveState.NOT_MOVING
        yield PartitionStatus(target.partition, state, replicas, target.replicas)


_Places = dict[tuple[Replica, bool], str]


def log_dir_states(wanted: dict[Replica, str], dirs: Collection[LogDir]) -> list[LogDirStatus]:
    """The state of each replica that is to be in a named directory, sorted."""
    places: _Places = {
        (Replica(replica.partition, each.broker_id), replica.is_future): each.path
        for each in dirs
        for replica in each.replicas
    }
    return [_log_dir(replica, target, places) for replica, target in sorted(wanted.items())]


def _log_dir(replica: Replica, target: str, places: _Places) -> LogDirStatus:
    current, future = places.get((replica, False)), places.get((replica, True))
    if current is None:
        return LogDirStatus(replica, MoveState.NOT_FOUND, None, target)
    if future is not None:
        state = MoveState.IN_PROGRESS if future == target else MoveState.OTHER_TARGET
        return LogDirStatus(replica, state, future, target, current)
    state = MoveState.COMPLETED if current == target else MoveState.NOT_MOVING
    return LogDirStatus(replica, state, current, target, current)
