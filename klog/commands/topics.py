"""`klog topics`: lists, describes, creates and deletes topics of any Kafka, and adds partitions.

Options have the names of `kafka-topics`, and its command lines work too.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from klog.commands._messages import print_error, print_line, print_report
from klog.commands._terminal import confirmed
from klog.commands._usage import missing
from klog.commands.option_groups import expand_options
from klog.commands.wire.connection import ConnectionOptions, ValidateOnly
from klog.commands.wire.groups import tool_app
from klog.commands.wire.tables import show_json, show_table
from klog.formats.errors import UsageError

if TYPE_CHECKING:
    from klog.admin.topics import Outcome, Partition

app = tool_app(
    "topics",
    "List, describe, create and delete topics of any Kafka, and add partitions.",
    {
        "--list": "list",
        "--describe": "describe",
        "--create": "create",
        "--alter": "add-partitions",
        "--delete": "delete",
    },
)


@dataclass(frozen=True, slots=True)
class AnyTopics:
    """Names of topics, as arguments or as kafka-topics has them; none stands for all topics."""

    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC]...", help="The topics. [default: all]", show_default=False),
    ] = None
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", metavar="TOPIC", help="A topic, named as for kafka-topics.", show_default=False
        ),
    ] = None

    def given(self) -> list[str]:
        """The names, each once."""
        options = (name for group in self.topic or () for name in group.split(",") if name)
        return list(dict.fromkeys((*(self.names or ()), *options)))


@dataclass(frozen=True, slots=True)
class SomeTopics(AnyTopics):
    """Names of topics, one at least."""

    names: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC...", help="The topics.", show_default=False)
    ] = None

    def required(self) -> list[str]:
        """The names, each once. Raises typer's error of a missing argument if there is none."""
        names = self.given()
        if not names:
            raise missing("TOPIC")
        return names


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object per topic.")]
ExcludeInternal = Annotated[bool, typer.Option("--exclude-internal", help="Leave out Kafka's own topics.")]
IfExists = Annotated[bool, typer.Option("--if-exists", help="Accept topics that do not exist.")]
Assignment = Annotated[
    str | None,
    typer.Option(
        "--replica-assignment",
        metavar="0:1,1:2",
        help="Brokers of each partition, the preferred leader first.",
        show_default=False,
    ),
]
ClusterDefault = typer.Option(min=1, metavar="N", help="[default: the cluster's]", show_default=False)


@app.command("list")
@expand_options
def list_topics(
    connection: ConnectionOptions,
    exclude_internal: ExcludeInternal = False,
    as_json: AsJson = False,
) -> None:
    """Print the names of all topics; on a terminal with their sizes.

    Examples:

        klog topics list

        klog topics list --exclude-internal --json
    """
    from klog.admin import connect
    from klog.admin.topics import find_topics

    with connect.cluster(connection.settings()) as cluster:
        found = [topic for topic in find_topics(cluster) if not (exclude_internal and topic.is_internal)]
    rows = [
        {
            "topic": topic.name,
            "partitions": len(topic.partitions),
            "replicas": topic.replication_factor,
        }
        for topic in found
    ]
    if as_json:
        show_json(rows)
    elif sys.stdout.isatty():
        show_table(rows)
    else:
        for topic in found:
            typer.echo(topic.name)


@app.command("describe")
@expand_options
def describe_topics(
    topics: AnyTopics,
    connection: ConnectionOptions,
    under_replicated: Annotated[
        bool,
        typer.Option("--under-replicated-partitions", help="Only partitions with replicas out of sync."),
    ] = False,
    unavailable: Annotated[
        bool, typer.Option("--unavailable-partitions", help="Only partitions without a leader.")
    ] = False,
    exclude_internal: ExcludeInternal = False,
    as_json: AsJson = False,
) -> None:
    """Show partitions, leaders, replicas and the configs that differ from the defaults.

    Examples:

        klog topics describe orders

        klog topics describe --under-replicated-partitions

        klog topics describe orders --json | jq .configs
    """
    from klog.admin import connect
    from klog.admin.topics import add_configs, find_topics, select_partitions

    wanted = topics.given()
    with connect.cluster(connection.settings()) as cluster:
        found = find_topics(cluster, wanted or None)
        if exclude_internal:
            found = [each for each in found if not each.is_internal]
        found = select_partitions(found, under_replicated=under_replicated, unavailable=unavailable)
        found = add_configs(cluster, found)
    if as_json:
        show_json([topic.to_json() for topic in found])
        return
    for number, topic in enumerate(found):
        configs = ", ".join(f"{key}={value}" for key, value in topic.configs.items()) or "all defaults"
        if number:
            typer.echo()
        print_line(f"{topic.name}  id {topic.topic_id or 'none'}  {configs}")
        show_table([_row(partition) for partition in topic.partitions])


def _row(partition: Partition) -> dict[str, object]:
    return {
        "partition": partition.partition,
        "leader": None if partition.leader < 0 else partition.leader,
        "epoch": partition.leader_epoch,
        "replicas": partition.replicas,
        "isr": partition.isr,
        "offline": partition.offline,
    }


@app.command("create")
@expand_options
def create_topics(
    topics: SomeTopics,
    connection: ConnectionOptions,
    partitions: Annotated[int | None, ClusterDefault] = None,
    replication_factor: Annotated[int | None, ClusterDefault] = None,
    replica_assignment: Assignment = None,
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config", metavar="KEY=VALUE", help="A topic config (repeatable).", show_default=False
        ),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Accept topics that exist already.")
    ] = False,
    validate_only: ValidateOnly = False,
) -> None:
    """Create topics, and wait until they can be written to.

    Examples:

        klog topics create orders

        klog topics create orders --partitions 6 --config cleanup.policy=compact

        klog topics create orders --replica-assignment 0:1,1:2,2:0
    """
    from klog.admin import connect
    from klog.admin.topics import NewTopic, create, parse_assignment
    from klog.commands.wire.assignments import parse_pairs

    assignment = None if replica_assignment is None else parse_assignment(replica_assignment)
    if assignment is not None and (partitions or replication_factor):
        raise UsageError("--replica-assignment already says how many partitions and replicas there are")
    configs = parse_pairs("--config", config or ())
    wanted = [
        NewTopic(name, partitions, replication_factor, assignment, configs) for name in topics.required()
    ]
    with connect.cluster(connection.settings()) as cluster:
        outcomes = create(cluster, wanted, connect.partitions_retry(), validate_only=validate_only)
    _report(
        outcomes,
        "could be created" if validate_only else "created",
        "TOPIC_ALREADY_EXISTS" if if_not_exists else "",
    )


@app.command("add-partitions")
@expand_options
def add_partitions(
    topics: SomeTopics,
    connection: ConnectionOptions,
    partitions: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="The new total number of partitions.", show_default=False),
    ] = ...,  # type: ignore[assignment]  # typer's way to require an option
    replica_assignment: Assignment = None,
    if_exists: IfExists = False,
    validate_only: ValidateOnly = False,
) -> None:
    """Add partitions to topics. Records stay where they are, but new records of a key may go elsewhere.

    Examples:

        klog topics add-partitions orders --partitions 12
    """
    from klog.admin import connect
    from klog.admin import topics as admin_topics

    assignment = None if replica_assignment is None else admin_topics.parse_assignment(replica_assignment)
    wanted = topics.required()
    with connect.cluster(connection.settings()) as cluster:
        outcomes = admin_topics.add_partitions(
            cluster, wanted, partitions, assignment, connect.partitions_retry(), validate_only=validate_only
        )
    done = f"{'could have' if validate_only else 'has'} {partitions} partitions"
    _report(outcomes, done, "UNKNOWN_TOPIC_OR_PARTITION" if if_exists else "")


@app.command("delete")
@expand_options
def delete_topics(
    topics: SomeTopics,
    connection: ConnectionOptions,
    if_exists: IfExists = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without asking.")] = False,
) -> None:
    """Delete topics with all their records. Asks on a terminal; elsewhere it needs --yes.

    Examples:

        klog topics delete orders

        klog topics delete orders --if-exists --yes
    """
    from klog.admin import connect
    from klog.admin.topics import delete

    wanted = topics.required()
    settings = connection.settings()
    if not confirmed(f"Delete {', '.join(wanted)} with all records?", yes=yes):
        raise typer.Exit(1)
    with connect.cluster(settings) as cluster:
        outcomes = delete(cluster, wanted)
    _report(outcomes, "deleted", "UNKNOWN_TOPIC_OR_PARTITION" if if_exists else "")


def _report(outcomes: Sequence[Outcome], done: str, accepted: str) -> None:
    """Print the outcome of each topic on stderr; exit with 1 if one failed. `accepted` is no failure."""
    failed = False
    for outcome in outcomes:
        if outcome.error is None:
            print_report(f"{outcome.topic}: {done}")
        elif outcome.error == accepted:
            print_report(f"{outcome.topic}: nothing to do, {outcome.error}")
        else:
            failed = True
            said = f": {outcome.message}" if outcome.message else ""
            print_error(f"{outcome.topic}: {outcome.error}{said}")
    if failed:
        raise typer.Exit(1)
