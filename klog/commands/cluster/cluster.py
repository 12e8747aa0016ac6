"""`klog cluster`: shows the brokers, the controller and the features of any Kafka, and whether it is healthy.

`cluster-id`, `list-endpoints` and `unregister` also take the command lines of `kafka-cluster`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from klog.commands.kafka_tools.command_lines import tool_app
from klog.commands.shared.changing import ChangeOptions, Outcome
from klog.commands.shared.connection import ConnectionOptions
from klog.commands.shared.messages import BOLD, RED, YELLOW, print_line, print_note
from klog.commands.shared.option_sets import argument, flag, optional, valued
from klog.commands.shared.output import OutputFormat, OutputOptions, WatchOptions
from klog.commands.shared.terminal import agree, count_of
from klog.commands.shared.usage import missing
from klog.formats.errors import UsageError
from klog.formats.wording import first_of

if TYPE_CHECKING:
    from klog.admin.clusters import ClusterDescription
    from klog.admin.health import ClusterState, Problem
    from klog.admin.settings import ClientSettings
    from klog.client.cluster import Cluster

app = tool_app(
    "cluster",
    "Show the brokers, the controller and the features of any Kafka, and whether the cluster is healthy.",
    {},
    (
        "klog cluster",
        "klog cluster health",
        "klog cluster health --watch 5",
        "klog cluster -o json",
        "klog cluster list-endpoints --include-fenced-brokers",
        "klog cluster unregister 3",
    ),
    default="describe",
)

_NAMED_PARTITIONS: Final = 5
_COLUMNS: Final = ("id", "host", "port", "rack", "isController", "version")


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """How kafka-cluster names a cluster, beside `--bootstrap-server`."""

    config: Path | None = valued("FILE", "", "--config", "-c", hidden=True)
    controller: str | None = optional(None, "", "--bootstrap-controller", "-C", hidden=True)

    def settings(self, connection: ConnectionOptions) -> ClientSettings:
        """The settings that these options and those of the connection make. Raises UsageError."""
        if self.controller is not None:
            raise UsageError(
                "klog cluster talks to brokers, not to KRaft controllers", cure="--bootstrap-server HOST:PORT"
            )
        if self.config is not None:
            connection = replace(connection, command_config=self.config)
        return connection.settings()


@app.command("describe")
def describe_cluster(
    connection: ConnectionOptions,
    output: WatchOptions,
) -> None:
    """Show the cluster's id, brokers, controller, features and, in KRaft mode, the quorum.

    klog cluster without a subcommand does the same. -o csv prints the brokers only.

    Examples:

        klog cluster
        klog cluster describe -o json | jq '.[].brokers[].rack'
    """
    from klog.admin.clusters import describe

    output.over(connection, lambda cluster: _show(describe(cluster), output))


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


@app.command("health")
def show_health(
    connection: ConnectionOptions,
    output: WatchOptions,
    strict: bool = flag("Exit with 1 also for warnings."),
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

    def show(cluster: Cluster) -> None:
        nonlocal healthy
        state = examine(cluster)
        found = problems(state, connect.SYSTEM_CLOCK.wall_ms())
        healthy = is_healthy(found, strict=strict)
        if output.for_people:
            _show_problems(state, found)
        else:
            output.show([each.to_json() for each in found])

    output.over(connection, show)
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
    return first_of(names, _NAMED_PARTITIONS)


@app.command("cluster-id")
def show_cluster_id(connection: ConnectionOptions, kafka: KafkaOptions) -> None:
    """Print the cluster's id, as kafka-cluster does.

    Examples:

        klog cluster cluster-id
    """
    from klog.admin import connect
    from klog.admin.requests.cluster_description import describe_nodes

    with connect.cluster(kafka.settings(connection)) as cluster:
        found = describe_nodes(cluster).cluster_id
    if found:
        print_line(f"Cluster ID: {found}")
    else:
        print_line("No cluster ID found. The Kafka version is probably too old.")


@app.command("list-endpoints")
def list_endpoints(
    connection: ConnectionOptions,
    output: WatchOptions,
    kafka: KafkaOptions,
    include_fenced: bool = flag(
        "Also brokers that are registered and take no part (Kafka 4 tells them).", "--include-fenced-brokers"
    ),
) -> None:
    """Show where the brokers of the cluster listen for this client.

    A fenced broker is registered with KRaft, but has stopped or has not caught up.

    Examples:

        klog cluster list-endpoints
        klog cluster list-endpoints --include-fenced-brokers -o csv
    """
    from klog.admin import connect
    from klog.admin.clusters import endpoint_row, endpoints

    with connect.cluster(kafka.settings(connection)) as cluster:
        output.run(
            lambda: output.show(
                [endpoint_row(each) for each in endpoints(cluster, include_fenced=include_fenced)]
            )
        )


@app.command("unregister")
def unregister(
    connection: ConnectionOptions,
    change: ChangeOptions,
    kafka: KafkaOptions,
    broker: int | None = argument("[ID]", "The broker to forget."),
    broker_id: int | None = valued("ID", "The same, as for kafka-cluster.", "--id", "-i"),
    yes: bool = flag("Unregister without asking.", "--yes", "-y"),
) -> None:
    """Make a KRaft cluster forget a broker that was stopped for good.

    It says whether the broker still runs or has replicas, then asks on a terminal; elsewhere it needs --yes.
    With --id it does not ask, and prints as kafka-cluster does.

    A cluster with ZooKeeper, and klog's own brokers, forget a broker when it stops.

    Examples:

        klog cluster unregister 3
        klog cluster unregister --id 3
    """
    from klog.admin import connect
    from klog.admin.requests.broker_registration import unregister_broker
    from klog.protocol.errors import UnsupportedApiError

    if broker is not None and broker_id is not None:
        raise UsageError("ID and --id exclude each other")
    if broker is None and broker_id is None:
        raise missing("ID")
    with connect.cluster(kafka.settings(connection)) as cluster:
        if broker is not None:
            _agree_to_unregister(cluster, broker, yes=yes or change.dry_run)
            if not change.dry_run:
                unregister_broker(cluster, broker)
            done = "would no longer be registered" if change.dry_run else "is no longer registered"
            change.conclude([Outcome(f"broker {broker}", {"brokerId": broker}, done)])
        elif broker_id is not None:
            try:
                unregister_broker(cluster, broker_id)
                print_line(f"Broker {broker_id} is no longer registered.")
            except UnsupportedApiError:
                print_line("The target cluster does not support the broker unregistration API.")


def _agree_to_unregister(cluster: Cluster, broker_id: int, *, yes: bool) -> None:
    """Say what speaks against it, and ask. Raises ClientError if the cluster cannot do it, ChannelError."""
    from klog.admin.clusters import check_can_unregister, count_replicas, is_running

    check_can_unregister(cluster)
    if is_running(cluster, broker_id):
        print_note(f"broker {broker_id} is running: stop it first")
    if replicas := count_replicas(cluster, broker_id):
        print_note(
            f"broker {broker_id} has {count_of(replicas, 'replica')}: "
            f"`klog reassign plan --drain {broker_id}` moves them first"
        )
    agree(f"Unregister broker {broker_id}?", yes=yes)
