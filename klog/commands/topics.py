"""`klog topics`: list, describe, create, grow and delete topics of any Kafka.

Names of options are those of `kafka-topics`, whose command lines work too.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from klog.commands._terminal import confirmed
from klog.commands.wire.admin_options import ValidateOnly
from klog.commands.wire.connection import BootstrapServer, CommandConfig, TimeoutMs, connection
from klog.commands.wire.groups import ToolGroup
from klog.commands.wire.tables import show_json, show_table
from klog.formats.errors import UsageError

if TYPE_CHECKING:
    from klog.admin.topics import Outcome, Partition


class _TopicsGroup(ToolGroup):
    actions: ClassVar = {
        "--list": "list",
        "--describe": "describe",
        "--create": "create",
        "--alter": "add-partitions",
        "--delete": "delete",
    }


app = typer.Typer(
    cls=_TopicsGroup,
    name="topics",
    help="List, describe, create, grow and delete topics of any Kafka.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)

Names = Annotated[
    list[str] | None, typer.Argument(metavar="TOPIC...", help="The topics.", show_default=False)
]
NamesOrAll = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TOPIC]...", help="The topics; all of them without.", show_default=False),
]
TopicOption = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="TOPIC", help="The same, as kafka-topics has it.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a topic on stdout.")]
ExcludeInternal = Annotated[bool, typer.Option("--exclude-internal", help="Leave out Kafka's own topics.")]
IfExists = Annotated[bool, typer.Option("--if-exists", help="A missing topic is no failure.")]
Assignment = Annotated[
    str | None,
    typer.Option(
        "--replica-assignment",
        metavar="0:1,1:2",
        help="Brokers of each partition, the preferred leader first.",
        show_default=False,
    ),
]


def _named(arguments: Sequence[str] | None, options: Sequence[str] | None) -> list[str]:
    names = [*(arguments or ()), *(name for group in options or () for name in group.split(",") if name)]
    return list(dict.fromkeys(names))


def _some(arguments: Sequence[str] | None, options: Sequence[str] | None) -> list[str]:
    names = _named(arguments, options)
    if not names:
        raise UsageError("no topic named")
    return names


@app.command("list")
def list_topics(
    exclude_internal: ExcludeInternal = False,
    as_json: AsJson = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout_ms: TimeoutMs = None,
) -> None:
    """The names of all topics; on a terminal with their sizes.

    Examples:

        klog topics list

        klog topics list --exclude-internal --json
    """
    from klog.admin.kafka_python import admin_client
    from klog.admin.topics import find_topics

    with admin_client(connection(bootstrap_server, command_config, timeout_ms)) as admin:
        found = [topic for topic in find_topics(admin) if not (exclude_internal and topic.is_internal)]
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
def describe_topics(
    names: NamesOrAll = None,
    topic: TopicOption = None,
    under_replicated: Annotated[
        bool,
        typer.Option("--under-replicated-partitions", help="Only partitions with replicas out of sync."),
    ] = False,
    unavailable: Annotated[
        bool, typer.Option("--unavailable-partitions", help="Only partitions without a leader.")
    ] = False,
    exclude_internal: ExcludeInternal = False,
    as_json: AsJson = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout_ms: TimeoutMs = None,
) -> None:
    """Partitions, leaders, replicas and what is configured otherwise than by default.

    Examples:

        klog topics describe orders

        klog topics describe --under-replicated-partitions

        klog topics describe orders --json | jq .configs
    """
    from klog.admin.kafka_python import admin_client
    from klog.admin.topics import add_configs, find_topics, select_partitions

    wanted = _named(names, topic)
    with admin_client(connection(bootstrap_server, command_config, timeout_ms)) as admin:
        found = find_topics(admin, wanted or None)
        if exclude_internal:
            found = [one for one in found if not one.is_internal]
        found = add_configs(admin, found)
    found = select_partitions(found, under_replicated=under_replicated, unavailable=unavailable)
    if as_json:
        show_json([one.to_json() for one in found])
        return
    for number, one in enumerate(found):
        configs = ", ".join(f"{key}={value}" for key, value in one.configs.items()) or "all defaults"
        typer.echo(("\n" if number else "") + f"{one.name}  id {one.topic_id or 'none'}  {configs}")
        show_table([_row(partition) for partition in one.partitions])


def _row(partition: Partition) -> dict[str, object]:
    return {
        "partition": partition.partition,
        "leader": None if partition.leader < 0 else partition.leader,
        "epoch": partition.leader_epoch,
        "replicas": partition.replicas,
        "isr": partition.isr,
        "offline": partition.offline,
    }


@app.command("create", no_args_is_help=True)
def create_topics(
    names: Names = None,
    topic: TopicOption = None,
    partitions: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="[default: the cluster's]", show_default=False)
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="[default: the cluster's]", show_default=False)
    ] = None,
    replica_assignment: Assignment = None,
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config", metavar="KEY=VALUE", help="A topic config (repeatable).", show_default=False
        ),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="An existing topic is no failure.")
    ] = False,
    validate_only: ValidateOnly = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout_ms: TimeoutMs = None,
) -> None:
    """Create topics, and wait until they can be written to.

    Examples:

        klog topics create orders

        klog topics create orders --partitions 6 --config cleanup.policy=compact

        klog topics create orders --replica-assignment 0:1,1:2,2:0
    """
    from klog.admin.kafka_python import admin_client
    from klog.admin.topics import NewTopic, create, parse_assignment
    from klog.commands.wire.assignments import parse_pairs

    assignment = None if replica_assignment is None else parse_assignment(replica_assignment)
    if assignment is not None and (partitions or replication_factor):
        raise UsageError("--replica-assignment already says how many partitions and replicas there are")
    configs = parse_pairs("--config", config or ())
    wanted = [
        NewTopic(name, partitions, replication_factor, assignment, configs) for name in _some(names, topic)
    ]
    with admin_client(connection(bootstrap_server, command_config, timeout_ms)) as admin:
        outcomes = create(admin, wanted, validate_only=validate_only)
    _tell(
        outcomes,
        "could be created" if validate_only else "created",
        "TOPIC_ALREADY_EXISTS" if if_not_exists else "",
    )


@app.command("add-partitions", no_args_is_help=True)
def add_partitions(
    names: Names = None,
    topic: TopicOption = None,
    partitions: Annotated[
        int, typer.Option(min=1, metavar="N", help="How many there shall be in all.", show_default=False)
    ] = ...,  # type: ignore[assignment]  # typer's mark of an option that must be given
    replica_assignment: Assignment = None,
    if_exists: IfExists = False,
    validate_only: ValidateOnly = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout_ms: TimeoutMs = None,
) -> None:
    """Give topics more partitions. They stay where they are, but keys go elsewhere from then on.

    Examples:

        klog topics add-partitions orders --partitions 12
    """
    from klog.admin.connect import partitions_retry
    from klog.admin.kafka_python import admin_client
    from klog.admin.topics import add_partitions as request_partitions
    from klog.admin.topics import parse_assignment

    assignment = None if replica_assignment is None else parse_assignment(replica_assignment)
    wanted = _some(names, topic)
    with admin_client(connection(bootstrap_server, command_config, timeout_ms)) as admin:
        outcomes = request_partitions(
            admin, wanted, partitions, assignment, partitions_retry(), validate_only=validate_only
        )
    done = f"{'could have' if validate_only else 'has'} {partitions} partitions"
    _tell(outcomes, done, "UNKNOWN_TOPIC_OR_PARTITION" if if_exists else "")


@app.command("delete", no_args_is_help=True)
def delete_topics(
    names: Names = None,
    topic: TopicOption = None,
    if_exists: IfExists = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout_ms: TimeoutMs = None,
) -> None:
    """Delete topics with all their records. Asks first; elsewhere than on a terminal it needs --yes.

    Examples:

        klog topics delete orders

        klog topics delete orders --if-exists --yes
    """
    from klog.admin.kafka_python import admin_client
    from klog.admin.topics import delete

    wanted = _some(names, topic)
    settings = connection(bootstrap_server, command_config, timeout_ms)
    if not confirmed(f"Delete {', '.join(wanted)} with all records?", yes=yes):
        raise UsageError("nothing is deleted without a yes", cure="--yes")
    with admin_client(settings) as admin:
        outcomes = delete(admin, wanted)
    _tell(outcomes, "deleted", "UNKNOWN_TOPIC_OR_PARTITION" if if_exists else "")


def _tell(outcomes: Sequence[Outcome], done: str, forgiven: str) -> None:
    """Say on stderr how it went with each topic; exit code 1 where it failed."""
    failed = False
    for outcome in outcomes:
        if outcome.error is None:
            typer.echo(f"{outcome.topic}: {done}", err=True)
        elif outcome.error == forgiven:
            typer.echo(f"{outcome.topic}: nothing to do, {outcome.error}", err=True)
        else:
            failed = True
            said = f": {outcome.message}" if outcome.message else ""
            typer.echo(f"klog: {outcome.topic}: {outcome.error}{said}", err=True)
    if failed:
        raise typer.Exit(1)
