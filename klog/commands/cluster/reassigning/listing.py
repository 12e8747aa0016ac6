"""`klog reassign list`: the reassignments that are running."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from klog.commands.cluster.reassigning.app import app
from klog.commands.kafka_tools.command_lines import AsKafka
from klog.commands.shared.connection import ConnectionOptions
from klog.commands.shared.messages import print_line
from klog.commands.shared.output import WatchOptions
from klog.commands.shared.tables import Fields, row_of

if TYPE_CHECKING:
    from klog.admin.requests.reassignments import RunningReassignment


@app.command("list")
def list_reassignments(
    connection: ConnectionOptions,
    output: WatchOptions,
    as_kafka: AsKafka = False,
) -> None:
    """Show the reassignments that are running: where the replicas are to be, and what comes and goes.

    Examples:

        klog reassign list
        klog reassign list -o jsonl | jq .partition
        klog reassign list --watch 5
    """
    from klog.admin.requests.reassignments import list_reassignments as running

    with connection.cluster() as cluster:
        if as_kafka:
            _show_as_kafka(running(cluster))
            return

        def show() -> None:
            found = running(cluster)
            output.show(
                [row_of(_FIELDS, each) for each in found], fields=_FIELDS, none="no reassignment is running"
            )

        output.run(show)


_FIELDS: Final[Fields[RunningReassignment]] = {
    "topic": lambda each: each.partition.topic,
    "partition": lambda each: each.partition.partition,
    "target": lambda each: list(each.target),
    "addingReplicas": lambda each: list(each.adding),
    "removingReplicas": lambda each: list(each.removing),
}


def _show_as_kafka(found: list[RunningReassignment]) -> None:
    print_line("Current partition reassignments:" if found else "No partition reassignments found.")
    for each in found:
        parts = [f"replicas: {_joined(each.replicas)}."]
        if each.adding:
            parts.append(f"adding: {_joined(each.adding)}.")
        if each.removing:
            parts.append(f"removing: {_joined(each.removing)}.")
        print_line(f"{each.partition}: {' '.join(parts)}")


def _joined(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, brokers))
