"""Executes, verifies and cancels as `kafka-reassign-partitions` of Kafka 3.9, in its order and its words.

The rates that `klog reassign execute` has set get their former values where Kafka's tool removes all rates.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence

from klog.admin.reassign.cancelling import cancel_partitions, moving_replicas, running_partitions
from klog.admin.reassign.execution import Execution, Limits
from klog.admin.reassign.json_files import format_assignments
from klog.admin.reassign.moves import Move
from klog.admin.reassign.preparing import prepare
from klog.admin.reassign.states import LogDirStatus, MoveState, PartitionStatus, named_dirs, status_of
from klog.admin.reassign.throttles import FOLLOWER_RATE, LEADER_RATE, LOG_DIR_RATE, Throttles, clearing
from klog.admin.reassign.values import PartitionAssignment
from klog.admin.requests.reassignments import alter_reassignments
from klog.client.cluster import Cluster
from klog.client.errors import ClientError, RefusedError
from klog.client.log_dirs import Replica
from klog.commands.shared.messages import print_line
from klog.formats.names import TopicPartition


def execute(
    cluster: Cluster,
    targets: Sequence[PartitionAssignment],
    limits: Limits,
    *,
    additional: bool,
    log_dir_timeout_ms: int,
) -> None:
    """`--execute`. Raises ClientError, ChannelError."""
    prepared = prepare(cluster, targets, additional=additional, strict=True)
    print_line("Current partition replica assignment")
    print_line("")
    print_line(format_assignments(prepared.current))
    print_line("")
    print_line("Save this to use as the --reassignment-json-file option during rollback")
    throttles = Throttles(cluster)
    if limits != Limits():
        print_line(
            "Warning: You must run --verify periodically, until the reassignment completes, to ensure the "
            "throttle is removed."
        )
    if limits.between_brokers is not None:
        others = [
            Move(PartitionAssignment(each.partition, each.replicas), each.replicas, each.adding)
            for each in prepared.others
        ]
        moving = list({move.partition: move for move in (*others, *prepared.moves)}.values())
        throttles.replace_lists(moving)
        brokers = {broker for move in moving for broker in (*move.sources, *move.destinations)}
        rates = {LEADER_RATE: limits.between_brokers, FOLLOWER_RATE: limits.between_brokers}
        throttles.replace_rates(dict.fromkeys(brokers, rates))
        print_line(f"The inter-broker throttle limit was set to {limits.between_brokers} B/s")
    wanted = named_dirs(targets)
    if limits.between_log_dirs is not None:
        brokers = {replica.broker_id for replica in wanted}
        throttles.replace_rates({broker: {LOG_DIR_RATE: limits.between_log_dirs} for broker in brokers})
        print_line(f"The replica-alter-dir throttle limit was set to {limits.between_log_dirs} B/s")
    outcomes = alter_reassignments(cluster, {each.partition: each.replicas for each in targets})
    _check(outcomes.items(), "Error reassigning partition(s):")
    partitions = sorted(outcomes)
    print_line(f"Successfully started partition reassignment{_s(partitions)} for {_joined(partitions)}")
    if wanted:
        Execution(cluster, limits, log_dir_timeout_ms=log_dir_timeout_ms).start_dir_moves(
            wanted, _print_dir_move
        )


def verify(cluster: Cluster, targets: Sequence[PartitionAssignment], *, preserve_throttles: bool) -> None:
    """`--verify`. Raises ClientError, ChannelError."""
    status = status_of(cluster, targets)
    for error in status.found.failures.values():
        raise error
    print_line("Status of partition reassignment:")
    for partition in status.partitions:
        print_line(partition_line(partition))
    for replica in status.log_dirs:
        print_line(log_dir_line(replica))
    if not status.log_dirs:
        print_line("")
    if not status.is_running and not preserve_throttles:
        _clear_throttles(cluster, targets)


def cancel(
    cluster: Cluster,
    targets: Sequence[PartitionAssignment],
    *,
    preserve_throttles: bool,
    log_dir_timeout_ms: int,
) -> None:
    """`--cancel`. Raises ClientError, ChannelError."""
    status = status_of(cluster, targets)
    partitions = running_partitions(status, additions=False)
    if partitions:
        _check(
            cancel_partitions(cluster, partitions).items(),
            f"Error cancelling partition reassignment{_s(partitions)} for:",
        )
        print_line(
            f"Successfully cancelled partition reassignment{_s(partitions)} for: {_joined(partitions)}"
        )
    else:
        print_line("None of the specified partition reassignments are active.")
    if moving := moving_replicas(status):
        Execution(cluster, Limits(), log_dir_timeout_ms=log_dir_timeout_ms).start_dir_moves(
            moving, _print_dir_move
        )
    else:
        sys.stdout.write("None of the specified partition moves are active.")
    if not preserve_throttles:
        _clear_throttles(cluster, targets)


def partition_line(status: PartitionStatus) -> str:
    """What `--verify` says about a partition."""
    match status.state:
        case MoveState.COMPLETED:
            return f"Reassignment of partition {status.partition} is completed."
        case MoveState.IN_PROGRESS:
            return f"Reassignment of partition {status.partition} is still in progress."
        case _:
            return (
                f"There is no active reassignment of partition {status.partition}, but replica set is "
                f"{_joined(status.replicas)} rather than {_joined(status.target)}."
            )


def log_dir_line(status: LogDirStatus) -> str:
    """What `--verify` says about a replica that has a named directory."""
    replica = status.replica
    where = f"Partition {replica.partition} on broker {replica.broker_id}"
    match status.state:
        case MoveState.COMPLETED:
            return f"Reassignment of replica {replica} completed successfully."
        case MoveState.IN_PROGRESS:
            return f"Reassignment of replica {replica} is still in progress."
        case MoveState.OTHER_TARGET:
            return f"{where} is being moved to log dir {status.log_dir} instead of {status.target}."
        case MoveState.NOT_MOVING:
            return f"{where} is not being moved from log dir {status.log_dir} to {status.target}."
        case _:
            return (
                f"Partition {replica.partition} is not found in any live log dir on broker "
                f"{replica.broker_id}. There is likely an offline log directory on the broker."
            )


def _clear_throttles(cluster: Cluster, targets: Sequence[PartitionAssignment]) -> None:
    """Remove the rates of all brokers and the lists of the file's topics.

    If a broker does not answer, Kafka's tool clears the other brokers, no topics, and exits with 1. Here the
    topics are cleared, too. Raises ClientError for such brokers at the end, when all else is done.
    """
    alive = {int(broker.node_id) for broker in cluster.metadata(()).brokers}
    brokers = sorted(alive | {broker for each in targets for broker in each.replicas})
    print_line(f"Clearing broker-level throttles on broker{_s(brokers)} {_joined(brokers)}")
    throttles = Throttles(cluster)
    _, failures = throttles.change_each(brokers, clearing)
    topics = sorted({each.partition.topic for each in targets})
    print_line(f"Clearing topic-level throttles on topic{_s(topics)} {_joined(topics)}")
    throttles.clear_topics(topics)
    if failures:
        why = "; ".join(str(error) for error in failures.values())
        raise ClientError(
            f"all is done, but the throttles of broker{_s(failures)} {_joined(failures)} may still be set:"
            f" {why}",
            cure="--verify removes them when the broker runs",
        )


def _print_dir_move(replica: Replica, path: str) -> None:
    print_line(
        f"Successfully started moving log directory to {path} for replica {replica.partition} with broker "
        f"{replica.broker_id} "
    )


def _check(outcomes: Iterable[tuple[TopicPartition, RefusedError | None]], title: str) -> None:
    refused = [error.what for _, error in sorted(outcomes, key=lambda each: each[0]) if error is not None]
    if refused:
        raise ClientError("\n".join((title, *refused)))


def _s(values: Collection[object]) -> str:
    return "" if len(values) == 1 else "s"


def _joined(values: Iterable[object]) -> str:
    return ",".join(map(str, values))
