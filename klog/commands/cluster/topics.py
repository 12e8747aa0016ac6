"""`klog topics`: lists, describes, creates, changes and deletes topics of any Kafka.

Options have the names of `kafka-topics`, and its command lines work too.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from klog.commands.cluster.assignments import parse_pairs
from klog.commands.cluster.topic_options import AnyTopics, NewTopics, ShownPartitions, SomeTopics
from klog.commands.kafka_tools.command_lines import AsKafka, tool_app
from klog.commands.shared.changing import ChangeOptions, Outcome
from klog.commands.shared.connection import ConnectionOptions
from klog.commands.shared.messages import print_line, print_lines, print_note
from klog.commands.shared.option_sets import flag, optional, valued
from klog.commands.shared.output import OutputFormat, OutputOptions, WatchOptions
from klog.commands.shared.tables import show_table
from klog.commands.shared.terminal import agree
from klog.commands.shared.usage import missing
from klog.formats.errors import KlogError, UsageError

if TYPE_CHECKING:
    from klog.admin.topic_selection import TopicSelection
    from klog.admin.topics import Partition, Topic
    from klog.client.admin import TopicResult
    from klog.client.cluster import Cluster

app = tool_app(
    "topics",
    "List, describe, create, change and delete topics of any Kafka.",
    {
        "--list": "list",
        "--describe": "describe",
        "--create": "create",
        "--alter": "add-partitions",
        "--delete": "delete",
    },
    (
        "klog topics create orders --partitions 6",
        "klog topics list",
        "klog topics describe orders",
        "klog topics alter orders --set retention.ms=86400000",
        "klog topics delete orders",
    ),
)


_EXCLUDE_INTERNAL: Final = flag("Leave out Kafka's own topics.")
_IF_EXISTS: Final = flag("Accept topics that do not exist.")
_ASSIGNMENT: Final[str | None] = valued("0:1,1:2", "Brokers of each partition, the preferred leader first.")
_CLUSTER_DEFAULT: Final[int | None] = valued("N", "[default: the cluster's]", least=1)


@app.command("list")
def list_topics(
    topics: AnyTopics,
    connection: ConnectionOptions,
    output: WatchOptions,
    exclude_internal: bool = _EXCLUDE_INTERNAL,
    as_kafka: AsKafka = False,
) -> None:
    """Print the names of all topics; on a terminal with their sizes.

    Examples:

        klog topics list
        klog topics list --exclude-internal --json
        klog topics list --topic 'orders.*'
    """
    from klog.admin.topic_selection import select_topics

    # As with Kafka's tool, a list may be empty.
    selection = topics.selection(exclude_internal=exclude_internal, may_miss=True)
    output.over(
        connection, lambda cluster: _list(select_topics(cluster, selection), output, as_kafka=as_kafka)
    )


def _list(found: Sequence[Topic], output: OutputOptions, *, as_kafka: bool) -> None:
    rows = [
        {
            "topic": topic.name,
            "partitions": len(topic.partitions),
            "replicas": topic.replication_factor,
        }
        for topic in found
    ]
    if not output.for_people or (sys.stdout.isatty() and not as_kafka):
        output.show(rows, fields=("topic", "partitions", "replicas"))
    elif found or as_kafka:
        typer.echo("\n".join(topic.name for topic in found))
    if not found and output.for_people and not as_kafka:
        print_note("there are no such topics")


@app.command("describe")
def describe_topics(
    topics: AnyTopics,
    connection: ConnectionOptions,
    shown: ShownPartitions,
    output: WatchOptions,
    exclude_internal: bool = _EXCLUDE_INTERNAL,
    if_exists: bool = _IF_EXISTS,
    as_kafka: AsKafka = False,
) -> None:
    """Show partitions, leaders, replicas and the configs that differ from the defaults.

    In CSV a row is a partition, in JSON an object is a topic.

    Examples:

        klog topics describe orders
        klog topics describe --under-replicated-partitions
        klog topics describe orders --json | jq .configs
        klog topics describe --topic 'orders.*' --topics-with-overrides
    """

    selection = topics.selection(
        exclude_internal=exclude_internal, may_miss=if_exists, topic_id=shown.topic_id
    )
    conditions = shown.conditions()

    def show(cluster: Cluster) -> None:
        found = _described(cluster, selection, shown, as_kafka=as_kafka)
        if output.format is OutputFormat.CSV:
            output.show([row for topic in found for row in _csv_rows(topic)])
        elif not output.for_people:
            output.show([topic.to_json() for topic in found])
        elif as_kafka:
            _print_as_kafka(cluster, found, shown, with_topics=not conditions.any)
        else:
            _show(found)

    output.over(connection, show)


def _described(
    cluster: Cluster, selection: TopicSelection, shown: ShownPartitions, *, as_kafka: bool
) -> list[Topic]:
    """The topics with their configs, and with the partitions to show."""
    from klog.admin.topic_selection import select_partitions, select_topics
    from klog.admin.topics import add_configs
    from klog.client.asking import broker_ids

    conditions = shown.conditions()
    found = add_configs(cluster, select_topics(cluster, selection))
    live_brokers = broker_ids(cluster) if conditions.unavailable else ()
    found = select_partitions(found, conditions, live_brokers)
    if shown.with_overrides:
        found = [topic for topic in found if _has_overrides(topic, as_kafka=as_kafka)]
    return found


def _print_as_kafka(
    cluster: Cluster, found: Sequence[Topic], shown: ShownPartitions, *, with_topics: bool
) -> None:
    from klog.client.admin import describe_eligible_replicas
    from klog.commands.kafka_tools.topics import described

    eligible = describe_eligible_replicas(cluster, [topic.name for topic in found])
    lines = described(found, eligible, with_topics=with_topics, with_partitions=not shown.with_overrides)
    print_lines(lines)


def _csv_rows(topic: Topic) -> list[dict[str, object]]:
    """A row for each partition, with the fields of the JSON."""
    return [{"topic": topic.name, **partition.to_json()} for partition in topic.partitions]


def _has_overrides(topic: Topic, *, as_kafka: bool) -> bool:
    """Whether the topic has configs of its own; Kafka's tool also counts those that brokers have set."""
    if as_kafka:
        return any(not each.is_default for each in topic.settings)
    return bool(topic.configs)


def _show(topics: Sequence[Topic]) -> None:
    for number, topic in enumerate(topics):
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
def create_topics(
    topics: NewTopics,
    connection: ConnectionOptions,
    change: ChangeOptions,
    partitions: int | None = _CLUSTER_DEFAULT,
    replication_factor: int | None = _CLUSTER_DEFAULT,
    replica_assignment: str | None = _ASSIGNMENT,
    config: list[str] | None = valued("KEY=VALUE", "A topic config (repeatable)."),
    if_not_exists: bool = flag("Accept topics that exist already."),
    as_kafka: AsKafka = False,
) -> None:
    """Create topics, and wait until they can be written to.

    Examples:

        klog topics create orders
        klog topics create orders --partitions 6 --config cleanup.policy=compact
        klog topics create orders --replica-assignment 0:1,1:2,2:0
    """
    from klog.admin import connect
    from klog.admin.topics import create, parse_assignment
    from klog.client.admin import CLUSTER_DEFAULT, NewTopic
    from klog.commands.cluster.assignments import parse_pairs

    assignment = None if replica_assignment is None else parse_assignment(replica_assignment)
    if assignment is not None and (partitions or replication_factor):
        raise UsageError("--replica-assignment already says how many partitions and replicas there are")
    configs = parse_pairs("--config", config or ())
    wanted = [
        NewTopic(
            name,
            partitions or CLUSTER_DEFAULT,
            replication_factor or CLUSTER_DEFAULT,
            assignment or {},
            configs,
        )
        for name in topics.required()
    ]
    with connection.cluster() as cluster:
        outcomes = create(cluster, wanted, connect.partitions_retry(), validate_only=change.dry_run)
    if as_kafka:
        for outcome in outcomes:
            if not outcome.error:
                print_line(f"Created topic {outcome.topic}.")
    _report(
        [outcome for outcome in outcomes if outcome.error] if as_kafka else outcomes,
        "could be created" if change.dry_run else "created",
        "TOPIC_ALREADY_EXISTS" if if_not_exists else "",
        change,
    )


@app.command("add-partitions")
def add_partitions(
    topics: SomeTopics,
    connection: ConnectionOptions,
    change: ChangeOptions,
    partitions: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="The new total number of partitions.", show_default=False),
    ] = ...,  # type: ignore[assignment]  # typer's way to require an option
    replica_assignment: str | None = _ASSIGNMENT,
    if_exists: bool = _IF_EXISTS,
    config: list[str] | None = optional(None, "", "--config", "--delete-config", hidden=True),
    as_kafka: AsKafka = False,
) -> None:
    """Add partitions to topics. Records stay where they are, but new records of a key may go elsewhere.

    Examples:

        klog topics add-partitions orders --partitions 12
    """
    from klog.admin import connect
    from klog.admin import topics as admin_topics
    from klog.admin.topic_selection import select_topics

    if config:
        raise UsageError("configs are not changed here", cure="klog topics alter TOPIC --set KEY=VALUE")
    assignment = None if replica_assignment is None else admin_topics.parse_assignment(replica_assignment)
    selection = topics.required(may_miss=if_exists)
    with connection.cluster() as cluster:
        outcomes = []
        for topic in select_topics(cluster, selection):
            # Kafka's tool takes the brokers of all partitions, those included that are there.
            first = len(topic.partitions) if as_kafka else 0
            outcomes += admin_topics.add_partitions(
                cluster,
                [topic.name],
                partitions,
                None if assignment is None else dict(enumerate(list(assignment.values())[first:])),
                connect.partitions_retry(),
                validate_only=change.dry_run,
            )
    done = f"{'could have' if change.dry_run else 'has'} {partitions} partitions"
    _report(outcomes, done, "UNKNOWN_TOPIC_OR_PARTITION" if if_exists else "", change)


@app.command("alter")
def alter_topics(
    topics: SomeTopics,
    connection: ConnectionOptions,
    change: ChangeOptions,
    partitions: int | None = valued("N", "The new total number of partitions.", least=1),
    set_: list[str] | None = valued("KEY=VALUE", "Set a config (repeatable).", "--set"),
    delete_config: list[str] | None = valued("KEY", "Return a config to its default."),
    if_exists: bool = _IF_EXISTS,
) -> None:
    """Change topics: their configs, and how many partitions they have.

    Everything is checked first, for all topics: if something is refused, nothing is changed.

    Examples:

        klog topics alter orders --set retention.ms=86400000 --delete-config cleanup.policy
        klog topics alter orders --partitions 12 --dry-run
    """
    from klog.admin import connect
    from klog.admin.configs import Change, Operation
    from klog.admin.topic_alteration import Alteration, alter_topic
    from klog.admin.topic_selection import select_topics

    changes = [Change(key, Operation.SET, value) for key, value in parse_pairs("--set", set_ or ()).items()]
    changes += [Change(key, Operation.DELETE) for key in delete_config or ()]
    wanted = Alteration(tuple(changes), partitions)
    if not wanted.changes and partitions is None:
        raise missing("--set, --delete-config or --partitions")
    with connection.cluster() as cluster:
        found = select_topics(cluster, topics.required(may_miss=if_exists))

        def errors(*, validate_only: bool) -> list[KlogError | None]:
            return [
                alter_topic(cluster, topic, wanted, connect.partitions_retry(), validate_only=validate_only)
                for topic in found
            ]

        failed = errors(validate_only=True)
        done = "could be changed" if change.dry_run else "not changed, because another topic was refused"
        if not change.dry_run and not any(failed):
            failed, done = errors(validate_only=False), "changed"
    change.conclude([_outcome(topic.name, done, error) for topic, error in zip(found, failed, strict=True)])


@app.command("delete")
def delete_topics(
    topics: SomeTopics,
    connection: ConnectionOptions,
    change: ChangeOptions,
    if_exists: bool = _IF_EXISTS,
    exclude_internal: bool = _EXCLUDE_INTERNAL,
    yes: bool = flag("Delete without asking.", "--yes", "-y"),
    as_kafka: AsKafka = False,
) -> None:
    """Delete topics with all their records. Asks on a terminal; elsewhere it needs --yes.

    `klog topics --delete --topic REGEX` never asks, as kafka-topics.

    Examples:

        klog topics delete orders
        klog topics delete orders --if-exists --yes
    """
    from klog.admin import connect
    from klog.client.admin import delete_topics as delete

    selection = replace(topics.required(may_miss=if_exists), exclude_internal=exclude_internal)
    yes = yes or as_kafka or change.dry_run
    settings = connection.settings()
    by_name = not selection.patterns
    if by_name:
        _agree(selection.names, yes=yes)
    with connect.cluster(settings) as cluster:
        names = selection.names if by_name and not change.dry_run else _selected(cluster, selection)
        if not by_name and names:
            _agree(names, yes=yes)
        if change.dry_run:
            change.conclude([_outcome(name, "would be deleted") for name in names])
            return
        outcomes = delete(cluster, names) if names else []
    _report(outcomes, "deleted", "UNKNOWN_TOPIC_OR_PARTITION" if if_exists else "", change)


def _agree(names: Sequence[str], *, yes: bool) -> None:
    agree(f"Delete {', '.join(names)} with all records?", yes=yes)


def _selected(cluster: Cluster, selection: TopicSelection) -> list[str]:
    from klog.admin.topic_selection import select_topics

    return [topic.name for topic in select_topics(cluster, selection)]


def _report(outcomes: Sequence[TopicResult], done: str, accepted: str, change: ChangeOptions) -> None:
    """Say what became of each topic; exit with 1 if one failed. The error `accepted` is no failure."""
    from klog.client.errors import RefusedError
    from klog.protocol.error_codes import ErrorCode

    rows = []
    for each in outcomes:
        if each.error is ErrorCode.NONE:
            rows.append(_outcome(each.topic, done))
        elif each.error.name == accepted:
            rows.append(_outcome(each.topic, f"nothing to do, {accepted}"))
        else:
            rows.append(
                _outcome(each.topic, done, RefusedError(each.topic, each.error, message=each.message))
            )
    change.conclude(rows)


def _outcome(topic: str, done: str, error: KlogError | None = None) -> Outcome:
    return Outcome(topic, {"topic": topic}, done, error)
