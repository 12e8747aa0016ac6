"""`klog groups`: lists and describes consumer groups of any Kafka, resets their offsets, deletes them.

Options have the names of `kafka-consumer-groups`, and its command lines work too.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from klog.commands.cluster.group_options import DescribeOptions, Groups, OneGroup, ResetRules, ResetScope
from klog.commands.kafka_tools.command_lines import AsKafka, tool_app
from klog.commands.shared.changing import ChangeOptions, Outcome, exit_if_failed
from klog.commands.shared.connection import ConnectionOptions
from klog.commands.shared.messages import print_line, print_lines, print_note, print_report
from klog.commands.shared.option_sets import flag, valued
from klog.commands.shared.output import OutputFormat, OutputOptions, WatchOptions
from klog.commands.shared.tables import Fields, row_of, show_table
from klog.commands.shared.terminal import agree
from klog.commands.shared.usage import did_you_mean, missing
from klog.formats.errors import KlogError, UsageError
from klog.formats.wording import first_of

if TYPE_CHECKING:
    from klog.admin.groups import Group, GroupFailure
    from klog.admin.offset_reset import Rule
    from klog.admin.settings import ClientSettings
    from klog.client.cluster import Cluster
    from klog.client.groups import ListedGroup
    from klog.formats.names import TopicPartition

_NAMED_PARTITIONS: Final = 5

app = tool_app(
    "groups",
    "List and describe consumer groups of any Kafka with their lag, reset their offsets, delete them.",
    {
        "--list": "list",
        "--describe": "describe",
        "--reset-offsets": "reset-offsets",
        "--delete": "delete",
        "--delete-offsets": "delete-offsets",
    },
    (
        "klog groups list",
        "klog groups describe billing",
        "klog groups reset-offsets billing --all-topics --to-earliest --execute",
        "klog groups delete billing",
    ),
)


@dataclass(frozen=True, slots=True)
class GroupConnection(ConnectionOptions):
    """With Kafka's name of `--timeout-ms`, too."""

    timeout: int | None = valued("MS", "", hidden=True)

    def settings(self, more: Mapping[str, str] | None = None) -> ClientSettings:
        """The settings that the options make. Raises UsageError."""
        given = self if self.timeout is None else replace(self, timeout_ms=self.timeout)
        return ConnectionOptions.settings(given, more)


@app.command("list")
def list_groups(
    connection: GroupConnection,
    output: WatchOptions,
    state: str | None = valued(
        "STATE,...",
        "Only groups in these states: Empty, Stable, PreparingRebalance, CompletingRebalance, Dead.",
        without_value={"--state": ""},
    ),
    type_: str | None = valued(
        "TYPE,...", "Only groups of these types: classic, consumer.", without_value={"--type": ""}
    ),
    topic: list[str] | None = valued(
        "TOPIC", "Only groups that read this topic or have offsets of it (repeatable)."
    ),
    as_kafka: AsKafka = False,
) -> None:
    """Print the names of all consumer groups; on a terminal with their types and states.

    Examples:

        klog groups list
        klog groups list --topic orders
        klog groups list --state Empty,Dead
        klog groups list --json | jq -r .group
    """
    from klog.admin import groups as admin
    from klog.commands.kafka_tools.consumer_groups import listed

    states, types = _words("--state", state, admin.STATES), _words("--type", type_, admin.TYPES)
    failures: list[GroupFailure] = []

    def show(cluster: Cluster) -> None:
        found = admin.list_groups(cluster, states=states, types=types)
        if topic:
            found, failures[:] = admin.readers_of(cluster, found, topic)
        if output.for_people and (as_kafka or not sys.stdout.isatty()):
            print_lines(listed(found, types=type_ is not None, states=state is not None))
        else:
            output.show(
                [row_of(_LISTED, each) for each in found],
                columns=("group", "type", "state"),
                fields=_LISTED,
            )
        if not found and output.for_people and not as_kafka:
            print_note("there are no such groups" if states or types or topic else "there are no groups")

    output.over(connection, show)
    exit_if_failed(failure.error for failure in failures)


_LISTED: Final[Fields[ListedGroup]] = {
    "group": lambda group: group.group_id,
    "type": lambda group: group.type,
    "state": lambda group: group.state,
    "protocolType": lambda group: group.protocol_type,
}


def _words(option: str, text: str | None, known: Sequence[str]) -> list[str]:
    """The words of a list with commas. Raises UsageError for one that is not known."""
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    for word in words:
        if word.lower() not in [each.lower() for each in known]:
            cure = did_you_mean(word, known) or f"known are {', '.join(known)}"
            raise UsageError(f"{option} {word} is unknown", cure=cure)
    return words


@app.command("describe")
def describe_groups(
    groups: Groups,
    shown: DescribeOptions,
    connection: GroupConnection,
    output: WatchOptions,
    as_kafka: AsKafka = False,
) -> None:
    """Show committed offsets and lag by partition and member, or the members, or the state.

    In CSV a row is a partition, or a member with --members; in JSON an object is a group.

    Examples:

        klog groups describe billing
        klog groups describe billing --members --verbose
        klog groups describe --all-groups --state
        klog groups describe billing --json | jq '[.offsets[].lag] | add'
    """
    from klog.admin import groups as admin

    shown.check()
    given = groups.given()
    offsets = not output.for_people or not (shown.members or shown.state)
    failures: list[GroupFailure] = []

    def show(cluster: Cluster) -> None:
        names = given or _all_names(cluster)
        found, failures[:] = admin.describe_groups(cluster, names, offsets=offsets)
        if not output.for_people:
            output.show(_described_rows(found, shown, output))
        elif as_kafka:
            _print_as_kafka(found, shown)
        else:
            _show_described(found, shown)

    output.over(connection, show)
    exit_if_failed([failure.error for failure in failures])


def _described_rows(
    found: Sequence[Group], shown: DescribeOptions, output: OutputOptions
) -> list[dict[str, object]]:
    """The groups for programs; in CSV their partitions or members."""
    if output.format is not OutputFormat.CSV or shown.state:
        return [group.to_json() for group in found]
    return [
        {"group": group.group_id, "state": group.state, **each.to_json()}
        for group in found
        for each in (group.members if shown.members else group.partitions)
    ]


def _print_as_kafka(found: Sequence[Group], shown: DescribeOptions) -> None:
    from klog.commands.cluster import group_tables
    from klog.commands.kafka_tools import consumer_groups

    for group in found:
        group_tables.note_state(group)
        if shown.members:
            lines = consumer_groups.members(group, verbose=shown.verbose)
        else:
            lines = consumer_groups.state(group) if shown.state else consumer_groups.offsets(group)
        print_lines(lines)


def _show_described(found: Sequence[Group], shown: DescribeOptions) -> None:
    from klog.commands.cluster import group_tables

    for number, group in enumerate(found):
        group_tables.note_state(group)
        if not shown.state:
            group_tables.show(group, shown, first=not number)
    if shown.state:
        show_table([group_tables.state_row(group) for group in found])


@app.command("reset-offsets")
def reset_offsets(
    groups: Groups,
    scope: ResetScope,
    rules: ResetRules,
    connection: GroupConnection,
    output: OutputOptions,
    as_kafka: AsKafka = False,
) -> None:
    """Show the offsets that a rule gives, and set them with --execute. The groups must have no members.

    Offsets outside the log become its first or its end offset.

    Examples:

        klog groups reset-offsets billing --topic orders --to-earliest
        klog groups reset-offsets billing --topic orders:0,2 --shift-by -100 --execute
        klog groups reset-offsets billing --all-topics --by-duration PT1H --execute
        klog groups reset-offsets billing --all-topics --to-current --export > billing.csv
        klog groups reset-offsets billing --from-file billing.csv --execute
    """
    from klog.admin import connect, offset_reset
    from klog.commands.cluster import group_tables
    from klog.commands.kafka_tools.consumer_groups import reset

    scope.check(from_file=rules.from_file is not None)
    names = groups.given()
    if groups.all_groups and rules.from_file is not None:
        raise missing("GROUP (--from-file needs names)")
    rule = rules.rule(connect.SYSTEM_CLOCK.wall_ms())
    from_file = rules.offsets_of(names) if rules.from_file is not None else {}
    planned: dict[str, dict[TopicPartition, int]] = {}
    errors: list[KlogError] = []
    with connection.cluster() as cluster:
        for name in names or _all_names(cluster):
            try:
                planned[name] = _planned(cluster, name, scope, rule, from_file.get(name, {}))
                if scope.execute:
                    offset_reset.set_offsets(cluster, name, planned[name])
            except KlogError as error:
                planned.pop(name, None)
                errors.append(error)
    if scope.export:
        typer.echo(offset_reset.to_csv(planned), nl=as_kafka)
    elif as_kafka and output.for_people:
        print_lines(reset(planned))
    else:
        output.show(list(group_tables.reset_rows(planned)))
    if not (scope.execute or scope.export or as_kafka) and any(planned.values()):
        print_report("nothing was changed (--execute sets these offsets)")
    exit_if_failed(errors)


def _all_names(cluster: Cluster) -> list[str]:
    from klog.admin.groups import list_groups as all_groups

    return [each.group_id for each in all_groups(cluster)]


def _planned(
    cluster: Cluster,
    group: str,
    scope: ResetScope,
    rule: Rule | None,
    from_file: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """The new offsets of a group; without a rule, those of the file."""
    from klog.admin import offset_reset
    from klog.admin.groups import parse_partitions

    if rule is None:
        return offset_reset.plan_reset(cluster, group, offset_reset.from_file(from_file), list(from_file))
    partitions = parse_partitions(cluster, scope.topic) if scope.topic else None
    return offset_reset.plan_reset(cluster, group, rule, partitions)


@app.command("delete")
def delete_groups(
    groups: Groups,
    connection: GroupConnection,
    change: ChangeOptions,
    yes: bool = flag("Delete without asking.", "--yes", "-y"),
    as_kafka: AsKafka = False,
) -> None:
    """Delete groups without members, with their offsets. Asks on a terminal; elsewhere it needs --yes.

    `klog groups --delete --group GROUP` never asks, as kafka-consumer-groups.

    Examples:

        klog groups delete billing
        klog groups delete billing shipping --yes
    """
    from klog.client import groups as client

    names = groups.given()
    agreed = yes or as_kafka or change.dry_run
    if names:
        agree(f"Delete the offsets of {', '.join(names)}?", yes=agreed)
    with connection.cluster() as cluster:
        if not names and (names := _all_names(cluster)):
            agree(f"Delete the offsets of {', '.join(names)}?", yes=agreed)
        outcomes = _deletable(cluster, names) if change.dry_run else client.delete_groups(cluster, names)
    deleted = [name for name, error in outcomes.items() if error is None]
    if as_kafka and change.for_people and not change.dry_run:
        if deleted:
            names_text = ", ".join(f"'{name}'" for name in deleted)
            print_line(f"Deletion of requested consumer groups ({names_text}) was successful.")
        exit_if_failed(outcomes.values())
        return
    done = "would be deleted" if change.dry_run else "deleted"
    change.conclude([Outcome(name, {"group": name}, done, error) for name, error in outcomes.items()])


def _deletable(cluster: Cluster, names: Sequence[str]) -> dict[str, KlogError | None]:
    """What deleting groups would give: groups with members, and those that are not there, are refused."""
    from klog.admin.groups import describe_groups
    from klog.client.errors import RefusedError
    from klog.protocol.error_codes import ErrorCode

    found, failures = describe_groups(cluster, names, offsets=False)
    outcomes: dict[str, KlogError | None] = {failure.group_id: failure.error for failure in failures}
    for group in found:
        refused = RefusedError(f"group {group.group_id}", ErrorCode.NON_EMPTY_GROUP)
        outcomes[group.group_id] = refused if group.members else None
    return outcomes


@app.command("delete-offsets")
def delete_offsets(
    group: OneGroup,
    connection: GroupConnection,
    change: ChangeOptions,
    topic: Annotated[
        list[str],
        typer.Option(
            "--topic",
            metavar="TOPIC[:N,...]",
            help="A topic, or some of its partitions, like orders:0,2 (repeatable).",
            show_default=False,
        ),
    ] = ...,  # type: ignore[assignment]  # typer's way to require an option
    yes: bool = flag("Delete without asking.", "--yes", "-y"),
    as_kafka: AsKafka = False,
) -> None:
    """Delete committed offsets of topics that no member of the group reads. Asks; elsewhere it needs --yes.

    `klog groups --delete-offsets` never asks, as kafka-consumer-groups.

    Examples:

        klog groups delete-offsets billing --topic orders
        klog groups delete-offsets billing --topic orders:0,2 --topic prices --yes
    """
    from klog.admin.groups import parse_partitions
    from klog.client import groups as client
    from klog.client.errors import RefusedError
    from klog.protocol.error_codes import ErrorCode

    name = group.required()
    with connection.cluster() as cluster:
        partitions = parse_partitions(cluster, topic)
        question = f"Delete the offsets of {name} for {first_of(partitions, _NAMED_PARTITIONS)}?"
        agree(question, yes=yes or as_kafka or change.dry_run)
        outcomes = (
            dict.fromkeys(partitions, ErrorCode.NONE)
            if change.dry_run
            else client.delete_offsets(cluster, name, partitions)
        )
    if as_kafka and change.for_people:
        print_line(f"Request succeeded for deleting offsets from group {name}.")
    done = "would be deleted" if change.dry_run else "deleted"
    change.conclude(
        [
            Outcome(
                str(partition),
                {"group": name, "topic": partition.topic, "partition": partition.partition},
                done,
                None
                if code is ErrorCode.NONE
                else RefusedError(f"offset of group {name} for {partition}", code),
            )
            for partition, code in sorted(outcomes.items())
        ]
    )
