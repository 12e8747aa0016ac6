"""Cancels moves that run: partitions get the replicas back that they had, copies between directories end.

Rules: KIP-455. A target of None cancels, also a move that only adds replicas, which Kafka's tool leaves
running. A copy between directories ends if the target is the directory where the replica is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from klog.admin.reassign.states import MoveState, Status
from klog.admin.requests.reassignments import alter_reassignments
from klog.client.cluster import Cluster
from klog.client.errors import RefusedError
from klog.client.log_dirs import Replica, alter_replica_log_dirs
from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode


class Cancelled(NamedTuple):
    """What was cancelled, and what was refused."""

    partitions: list[TopicPartition]
    replicas: list[Replica]
    refused: list[KlogError]


def running_partitions(status: Status, *, additions: bool) -> list[TopicPartition]:
    """The partitions of an assignment that move; those that only get more replicas if `additions` is set."""
    wanted = {each.partition for each in status.partitions}
    return [
        each.partition
        for each in status.running
        if each.partition in wanted and (additions or not each.adding or each.removing)
    ]


def moving_replicas(status: Status) -> dict[Replica, str]:
    """The replicas on their way to another directory, with the one in which they are."""
    return {
        each.replica: each.current
        for each in status.log_dirs
        if each.state is MoveState.IN_PROGRESS and each.current is not None
    }


def cancel_partitions(
    cluster: Cluster, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, RefusedError | None]:
    """Cancel moves between brokers. One that has ended meanwhile is no error.

    Raises ClientError, ChannelError.
    """
    if not partitions:
        return {}
    outcomes = alter_reassignments(cluster, dict.fromkeys(partitions))
    return {
        partition: None
        if error is not None and error.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        else error
        for partition, error in outcomes.items()
    }


def cancel(
    cluster: Cluster, partitions: Collection[TopicPartition], replicas: Mapping[Replica, str]
) -> Cancelled:
    """Cancel moves between brokers, then those between directories. Raises ClientError, ChannelError."""
    outcomes = cancel_partitions(cluster, partitions)
    dir_outcomes = alter_replica_log_dirs(cluster, replicas) if replicas else {}
    errors = [*outcomes.values(), *dir_outcomes.values()]
    return Cancelled(
        sorted(partition for partition, error in outcomes.items() if error is None),
        sorted(replica for replica, error in dir_outcomes.items() if error is None),
        [error for error in errors if error is not None],
    )
