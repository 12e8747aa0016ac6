"""`klog reassign plan` and `dirs`: make a reassignment from what is to be true."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from klog.commands.cluster.reassigning.app import app
from klog.commands.cluster.reassigning.plan_options import GoalOptions, Rollback, Tolerance, broker_list
from klog.commands.cluster.topic_options import AnyTopics
from klog.commands.shared.connection import ConnectionOptions
from klog.commands.shared.messages import print_note
from klog.commands.shared.option_sets import flag, valued

if TYPE_CHECKING:
    from collections.abc import Sequence

    from klog.admin.reassign.values import PartitionAssignment
    from klog.formats.errors import KlogError


@app.command("plan")
def plan_reassignment(
    topics: AnyTopics,
    goal: GoalOptions,
    connection: ConnectionOptions,
    rollback: Rollback = None,
    exclude_internal: bool = flag("Leave Kafka's own topics where they are."),
) -> None:
    """Find out which replicas to move so that a goal is met with the fewest bytes. Changes nothing.

    The reassignment is printed on stdout as Kafka's JSON, for `klog reassign execute` and Kafka's own tool.
    What it means for each broker is printed on stderr, with the fewest bytes that any plan has to move.

    --drain and --replication-factor move only what they must. --add moves to the new brokers their fair
    share. --brokers evens out all of them. Replicas of a partition are on as many racks as possible, and
    preferred leaders are evened out, for which the order of replicas changes. Sizes are those of the topics
    that are named; other topics do not count.

    Examples:

        klog reassign plan --drain 3 --exclude-internal > plan.json
        klog reassign plan --add 4,5 --rollback back.json > plan.json
        klog reassign plan --drain 3 --add 4 > plan.json
        klog reassign plan orders --replication-factor 3 | klog reassign execute - --yes
        klog reassign plan --brokers 1,2,3,4 --tolerance 5 > plan.json
    """
    from klog.admin.reassign.planner import plan
    from klog.admin.reassign.reading import read_cluster
    from klog.commands.cluster.reassigning.plan_view import show_plan

    wanted = goal.goal()
    with connection.cluster() as cluster:
        reading = read_cluster(cluster, topics.selection(exclude_internal=exclude_internal))
    for broker, error in reading.failures.items():
        _note_unknown_sizes(broker, error)
    found = plan(reading.state, wanted)
    show_plan(found, len(reading.state.partitions))
    _write(found.changes, found.rollback, rollback)


@app.command("dirs")
def plan_log_dirs(
    connection: ConnectionOptions,
    broker: str | None = valued(
        "1,2",
        "Only the directories of these brokers. [default: all that are alive]",
        "--broker-list",
        "--brokers",
    ),
    tolerance: Tolerance = 1.0,
    rollback: Rollback = None,
) -> None:
    """Find out which replicas to move between the log directories of each broker to even out their bytes.

    The reassignment is printed on stdout as Kafka's JSON with `log_dirs`, for `klog reassign execute` and
    Kafka's own tool. No replica changes its broker. Changes nothing.

    Examples:

        klog reassign dirs > plan.json
        klog reassign dirs --brokers 3 | klog reassign execute - --dry-run
    """
    from klog.admin.reassign.dirs import plan_dirs
    from klog.admin.reassign.reading import read_partitions
    from klog.client.log_dirs import describe_log_dirs
    from klog.commands.cluster.reassigning.plan_view import show_dir_plan

    wanted = None if broker is None else broker_list("--brokers", broker)
    with connection.cluster() as cluster:
        found = describe_log_dirs(cluster, wanted)
        replicas = {part.partition: part.replicas for part in read_partitions(cluster)}
    for broker_id, error in found.failures.items():
        if wanted is not None:
            raise error
        _note_unknown_sizes(broker_id, error)
    made = plan_dirs(found.dirs, replicas, tolerance / 100)
    show_dir_plan(made)
    _write(made.changes, made.rollback, rollback)


def _note_unknown_sizes(broker: int, error: KlogError) -> None:
    print_note(f"sizes of replicas on broker {broker} are not known: {error}")


def _write(
    changes: Sequence[PartitionAssignment],
    rollback: Sequence[PartitionAssignment],
    rollback_file: Path | None,
) -> None:
    """Print the JSON to execute, and write the one to go back to. Raises StorageError."""
    from klog.admin.reassign.json_files import format_assignments
    from klog.formats.errors import StorageError

    if rollback_file is not None:
        try:
            rollback_file.write_text(format_assignments(rollback) + "\n", encoding="utf-8")
        except OSError as error:
            raise StorageError(f"cannot be written: {error.strerror}", file=str(rollback_file)) from error
    if not changes:
        print_note("all is as wanted; there is nothing to move")
    typer.echo(format_assignments(changes))
