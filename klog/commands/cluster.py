"""`klog cluster`: shows the brokers, the controller and the features of any Kafka, and whether it is healthy.

`cluster-id` and `list-endpoints` have the names, options and output of `kafka-cluster`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from klog.commands._messages import BOLD, RED, YELLOW, print_line
from klog.commands._terminal import count_of
from klog.commands.option_groups import expand_options
from klog.commands.wire.connection import ConnectionOptions
from klog.commands.wire.groups import tool_app
from klog.commands.wire.output import WATCHING, OutputFormat, OutputOptions, WatchOptions

if TYPE_CHECKING:
    from klog.admin.clusters import ClusterDescription
    from klog.admin.health import ClusterState, Problem

app = tool_app(
    "cluster",
    "Show the brokers, the controller and the features of any Kafka, and whether the cluster is healthy.",
    {},
    (
        "klog cluster",
        "klog cluster health",
        "klog cluster health --watch 5",
        "klog cluster -o json",
    ),
    default="describe",
)

_NAMED_PARTITIONS: Final = 5
_COLUMNS: Final = ("id", "host", "port", "rack", "isController", "version")


@app.command("describe", cls=WATCHING)
@expand_options
def describe_cluster(
    connection: ConnectionOptions,
    output: OutputOptions,
    watch: WatchOptions,
) -> None:
    """Show the cluster's id, brokers, controller, features and, in KRaft mode, the quorum.

    klog cluster without a subcommand does the same. -o csv prints the brokers only.

    Examples:

        klog cluster

        klog cluster describe -o json | jq '.[].brokers[].rack'
    """
    from klog.admin import connect
    from klog.admin.clusters import describe

    with connect.cluster(connection.settings()) as cluster:
        watch.run(lambda: _show(describe(cluster), output))


def _show(found: ClusterDescription, output: OutputOptions) -> None:
    from klog.admin.clusters import broker_row, feature_row, quorum_rows

    brokers = [broker_row(each) for each in found.brokers]
    if output.format is OutputFormat.CSV:
        output.show(brokers)
        return
    if not output.for_people:
        output.show([found.to_json()])
        return
    controller = "none" if found.controller_id < 0 else found.controller_id
    title = f"cluster {found.cluster_id or '(without id)'}"
    print_line(
        f"{title}  {count_of(len(brokers), 'broker')}  controller {controller}", word=title, style=BOLD
    )
    silent = any(each.error for each in found.brokers)
    output.show(brokers, columns=(*_COLUMNS, "error") if silent else _COLUMNS)
    if found.features:
        typer.echo()
        output.show([feature_row(each) for each in found.features])
    if found.quorum is not None:
        typer.echo()
        output.show(quorum_rows(found.quorum))


@app.command("health", cls=WATCHING)
@expand_options
def show_health(
    connection: ConnectionOptions,
    output: OutputOptions,
    watch: WatchOptions,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 also for warnings.")] = False,
) -> None:
    """Show what is wrong with the cluster and what to do about it. The exit code is 1 if there is an error.

    Errors: no controller, partitions without a leader, under min ISR or under-replicated, and brokers, log
    directories and controllers that are offline or behind. Warnings: partitions at min ISR, and leaders that
    are not the preferred ones.

    Brokers that cannot be reached are part of the answer. --timeout-ms limits the wait for each.

    Examples:

        klog cluster health

        klog cluster health --timeout-ms 5000 || alert 'Kafka is not healthy'

        klog cluster health --json | jq -r 'select(.severity == "error") | .message'
    """
    from klog.admin import connect
    from klog.admin.clusters import examine
    from klog.admin.health import is_healthy, problems

    healthy = True

    with connect.cluster(connection.settings()) as cluster:

        def show() -> None:
            nonlocal healthy
            state = examine(cluster)
            found = problems(state, connect.SYSTEM_CLOCK.wall_ms())
            healthy = is_healthy(found, strict=strict)
            if output.for_people:
                _show_problems(state, found)
            else:
                output.show([each.to_json() for each in found])

        watch.run(show)
    if not healthy:
        raise typer.Exit(1)


def _show_problems(state: ClusterState, found: Sequence[Problem]) -> None:
    from klog.admin.health import Severity

    partitions = sum(len(topic.partitions) for topic in state.topics)
    size = (
        f"{count_of(len(state.nodes.brokers), 'broker')}, {count_of(len(state.topics), 'topic')}, "
        f"{count_of(partitions, 'partition')}"
    )
    errors = [each for each in found if each.check.severity is Severity.ERROR]
    if errors:
        print_line(f"unhealthy: {size}", word="unhealthy", style=RED)
    else:
        warned = f", {count_of(len(found), 'warning')}" if found else ""
        print_line(f"healthy: {size}{warned}", word="healthy", style=BOLD)
    for group in _grouped(found):
        typer.echo()
        first = group[0]
        style = RED if first.check.severity is Severity.ERROR else YELLOW
        title = f"{first.check.value} ({len(group)})"
        print_line(f"{title}  {_places(group)}", word=title, style=style)
        print_line(f"  {first.what}")
        print_line(f"  -> {first.cure}")


def _grouped(found: Iterable[Problem]) -> list[list[Problem]]:
    """The problems that one action cures together, in the order of urgency."""
    groups: dict[tuple[object, ...], list[Problem]] = {}
    for each in found:
        key = (each.check, each.broker_id, each.log_dir, each.what, each.cure)
        groups.setdefault(key, []).append(each)
    return list(groups.values())


def _places(group: Sequence[Problem]) -> str:
    """Where a problem is: a broker, a directory, or partitions, of which only the first are named."""
    first = group[0]
    if first.log_dir is not None:
        return f"broker {first.broker_id}, {first.log_dir}"
    if first.broker_id is not None:
        return f"broker {first.broker_id}"
    names = [str(each.partition) for each in group if each.partition is not None]
    more = len(names) - _NAMED_PARTITIONS
    return ", ".join(names[:_NAMED_PARTITIONS]) + (f" and {more} more" if more > 0 else "")


@app.command("cluster-id")
@expand_options
def show_cluster_id(
    connection: ConnectionOptions,
    config: Annotated[Path | None, typer.Option("--config", metavar="FILE", hidden=True)] = None,
) -> None:
    """Print the cluster's id, as kafka-cluster does.

    Examples:

        klog cluster cluster-id
    """
    from klog.admin import connect
    from klog.client.cluster_description import describe_nodes

    options = connection if config is None else replace(connection, command_config=config)
    with connect.cluster(options.settings()) as cluster:
        found = describe_nodes(cluster).cluster_id
    if found:
        print_line(f"Cluster ID: {found}")
    else:
        print_line("No cluster ID found. The Kafka version is probably too old.")
