"""`klog reassign verify` and `cancel`: whether an assignment is reached, and how to stop on the way to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from klog.commands.cluster.reassigning.app import app
from klog.commands.cluster.reassigning.options import AssignmentFile, LogDirTimeout, PreserveThrottles
from klog.commands.kafka_tools.command_lines import AsKafka
from klog.commands.shared.changing import ChangeOptions, Outcome
from klog.commands.shared.connection import ConnectionOptions
from klog.commands.shared.messages import print_error, print_note, print_report
from klog.commands.shared.option_sets import flag
from klog.commands.shared.output import OutputOptions
from klog.commands.shared.tables import Row
from klog.commands.shared.terminal import agree, count_of

if TYPE_CHECKING:
    from klog.admin.reassign.states import LogDirStatus, PartitionStatus
    from klog.admin.reassign.values import PartitionAssignment
    from klog.client.cluster import Cluster


@app.command("verify")
def verify_reassignment(
    file: AssignmentFile,
    connection: ConnectionOptions,
    output: OutputOptions,
    preserve_throttles: PreserveThrottles = False,
    as_kafka: AsKafka = False,
) -> None:
    """Show whether all is as the file says, and give throttles back when nothing moves any more.

    Topics and brokers get back what they had before `klog reassign execute`. The exit code is 1 if
    something is not as the file says and does not move either.

    `klog reassign --verify` does and prints what kafka-reassign-partitions does: it removes all throttles.

    Examples:

        klog reassign verify plan.json
        klog reassign verify plan.json --preserve-throttles -o json
    """
    from klog.admin.reassign.states import MoveState, status_of
    from klog.commands.kafka_tools import reassign_partitions

    targets = file.read(as_kafka=as_kafka)
    if not targets:
        return
    with connection.cluster() as cluster:
        if as_kafka:
            reassign_partitions.verify(cluster, targets, preserve_throttles=preserve_throttles)
            return
        status = status_of(cluster, targets)
        for error in status.found.failures.values():
            print_error(error)
        output.show([*map(_partition_row, status.partitions), *map(_log_dir_row, status.log_dirs)])
        if not preserve_throttles:
            give_throttles_back(cluster, targets, is_running=status.is_running)
    states = {each.state for each in status.partitions} | {each.state for each in status.log_dirs}
    if status.found.failures or states - {MoveState.COMPLETED, MoveState.IN_PROGRESS}:
        raise typer.Exit(1)


@app.command("cancel")
def cancel_reassignment(
    file: AssignmentFile,
    connection: ConnectionOptions,
    change: ChangeOptions,
    preserve_throttles: PreserveThrottles = False,
    log_dir_timeout_ms: LogDirTimeout = 10_000,
    yes: bool = flag("Cancel without asking.", "--yes", "-y"),
    as_kafka: AsKafka = False,
) -> None:
    """Cancel the moves of the file's partitions that are running; each gets back the replicas it had.

    Asks on a terminal; elsewhere it needs --yes. Throttles are given back as by `verify`. What has been moved
    completely stays where it is.

    `klog reassign --cancel` does and prints what kafka-reassign-partitions does: it never asks, leaves moves
    running that only add replicas, and removes all throttles.

    Examples:

        klog reassign cancel plan.json --dry-run
        klog reassign cancel plan.json --yes --preserve-throttles
    """
    from klog.admin.reassign.cancelling import Cancelled, cancel, moving_replicas, running_partitions
    from klog.admin.reassign.states import status_of
    from klog.admin.requests.reassignments import list_reassignments
    from klog.commands.kafka_tools import reassign_partitions

    targets = file.read(as_kafka=as_kafka)
    if not targets:
        return
    with connection.cluster() as cluster:
        if as_kafka and not change.dry_run:
            reassign_partitions.cancel(
                cluster, targets, preserve_throttles=preserve_throttles, log_dir_timeout_ms=log_dir_timeout_ms
            )
            return
        status = status_of(cluster, targets)
        partitions, replicas = running_partitions(status, additions=True), moving_replicas(status)
        if not partitions and not replicas:
            print_note("none of the file's partitions is moving")
        else:
            agree(_question(len(partitions), len(replicas)), yes=yes or change.dry_run)
        done = (
            Cancelled(partitions, sorted(replicas), [])
            if change.dry_run
            else cancel(cluster, partitions, replicas)
        )
        if not preserve_throttles and not change.dry_run:
            give_throttles_back(cluster, targets, is_running=bool(list_reassignments(cluster)))
    what = "would be cancelled" if change.dry_run else "cancelled"
    errors = [*done.refused, *status.found.failures.values()]
    change.conclude(
        [
            *(Outcome(str(each), {"move": str(each)}, what) for each in (*done.partitions, *done.replicas)),
            *(Outcome("", {"move": None}, "failed", error) for error in errors),
        ]
    )


def _question(partitions: int, replicas: int) -> str:
    parts = [count_of(partitions, "move") + " between brokers"] if partitions else []
    parts += [count_of(replicas, "move") + " between log directories"] if replicas else []
    return f"Cancel {' and '.join(parts)}?"


def give_throttles_back(
    cluster: Cluster, targets: Sequence[PartitionAssignment], *, is_running: bool
) -> None:
    """Give topics and brokers back the throttles that they had, if nothing moves any more, and say so."""
    from klog.admin.reassign.throttles import Throttles, restoring

    if is_running:
        print_report("throttles stay as long as reassignments are running")
        return
    throttles = Throttles(cluster)
    topics = throttles.release(dict.fromkeys({each.partition.topic for each in targets}))
    alive = {int(broker.node_id) for broker in cluster.metadata(()).brokers}
    named = {broker for each in targets for broker in each.replicas}
    restored, failures = throttles.change_each(alive | named, restoring)
    if topics or restored:
        print_report("throttles are as they were before")
    for broker, error in failures.items():
        print_note(f"throttles of broker {broker} were not looked at: {error}")


def _partition_row(status: PartitionStatus) -> Row:
    topic, partition = status.partition
    return _row(topic, partition, None, status.state, list(status.replicas), list(status.target))


def _log_dir_row(status: LogDirStatus) -> Row:
    topic, partition = status.replica.partition
    return _row(topic, partition, status.replica.broker_id, status.state, status.log_dir, status.target)


def _row(topic: str, partition: int, broker: int | None, state: str, now: object, target: object) -> Row:
    return {
        "topic": topic,
        "partition": partition,
        "broker": broker,
        "state": state,
        "current": now,
        "target": target,
    }
