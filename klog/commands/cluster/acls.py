"""`klog acls`: lists, adds and removes access control lists (ACLs) of any Kafka.

Options have the names of `kafka-acls`, and its command lines work too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from klog.commands.kafka_tools.command_lines import AsKafka, tool_app
from klog.commands.shared.changing import ChangeOptions, Outcome, exit_if_failed
from klog.commands.shared.connection import ConnectionOptions
from klog.commands.shared.messages import print_line, print_report
from klog.commands.shared.option_sets import argument, flag, option_set, optional, valued
from klog.commands.shared.output import WatchOptions
from klog.commands.shared.tables import Fields, row_of
from klog.commands.shared.terminal import agree, count_of
from klog.commands.shared.usage import did_you_mean
from klog.formats.errors import UsageError

if TYPE_CHECKING:
    from klog.admin.acls import Wanted
    from klog.client.cluster import Cluster
    from klog.protocol.acls import Acl, AclOperation, AclResourceType, PatternType

app = tool_app(
    "acls",
    "List, add and remove access control lists (ACLs) of any Kafka.",
    {"--list": "list", "--add": "add", "--remove": "remove"},
    (
        "klog acls list orders",
        "klog acls add --allow-principal User:billing --consumer --topic orders --group billing",
        "klog acls remove orders",
    ),
)

_WHO: Final = "Who and what"
_CURRENT: Final = "Current ACLs for resource"


def _resource(metavar: str, summary: str) -> Any:  # noqa: ANN401 (of the field's type)
    return valued(metavar, f"{summary} (repeatable).")


def _entry(metavar: str, summary: str) -> Any:  # noqa: ANN401 (of the field's type)
    return valued(metavar, summary, panel=_WHO)


@option_set("Resources")
class Resources:
    """The resources that ACLs are about."""

    names: list[str] | None = argument("[TOPIC]...", "Topics, as --topic.")
    topic: list[str] | None = _resource("TOPIC", "A topic; * for all")
    group: list[str] | None = _resource("GROUP", "A consumer group")
    cluster: bool = flag("The cluster itself.")
    transactional_id: list[str] | None = _resource("ID", "A transactional id")
    delegation_token: list[str] | None = _resource("ID", "A delegation token")
    user_principal: list[str] | None = _resource("User:NAME", "A user, for tokens")
    pattern_type: str = optional(
        "literal",
        "literal or prefixed; to list and remove also any, or match: all that apply to the name.",
        "--resource-pattern-type",
        metavar="TYPE",
    )

    def found(self) -> tuple[tuple[AclResourceType, str], ...]:
        """The types and names that are given."""
        from klog.protocol.acls import CLUSTER_NAME, AclResourceType

        named = (
            (AclResourceType.TOPIC, [*(self.names or ()), *(self.topic or ())]),
            (AclResourceType.GROUP, self.group),
            (AclResourceType.CLUSTER, [CLUSTER_NAME] if self.cluster else None),
            (AclResourceType.TRANSACTIONAL_ID, self.transactional_id),
            (AclResourceType.DELEGATION_TOKEN, self.delegation_token),
            (AclResourceType.USER, self.user_principal),
        )
        return tuple((kind, name.strip()) for kind, names in named for name in names or ())

    def pattern(self) -> PatternType:
        """The pattern type. Raises UsageError."""
        from klog.protocol.acls import PatternType

        try:
            return PatternType[self.pattern_type.upper()]
        except KeyError as error:
            known = ", ".join(each.name.lower() for each in PatternType)
            raise UsageError(
                f"--resource-pattern-type {self.pattern_type} is unknown", cure=f"one of {known}"
            ) from error


@option_set(_WHO)
class Entries:
    """Who may do what from where."""

    allow_principal: list[str] | None = _entry("User:NAME", "Who may (repeatable).")
    deny_principal: list[str] | None = _entry("User:NAME", "Who may not (repeatable).")
    allow_host: list[str] | None = _entry("IP", "From where. [default: *]")
    deny_host: list[str] | None = _entry("IP", "From where not. [default: *]")
    operation: list[str] | None = _entry("NAME", "Read, Write, ... [default: All]")
    producer: bool = flag("What a producer needs, with --topic.")
    consumer: bool = flag("What a consumer needs, with --topic and --group.")
    idempotent: bool = flag("With --producer: idempotent writes, for Kafka before 2.8.")

    def wanted(self, resources: Resources) -> Wanted:
        """What the options say. Raises UsageError."""
        from klog.admin.acls import Wanted
        from klog.protocol.acls import AclOperation

        return Wanted(
            resources.found(),
            resources.pattern(),
            tuple(self.allow_principal or ()),
            tuple(self.deny_principal or ()),
            tuple(self.allow_host or ()),
            tuple(self.deny_host or ()),
            tuple(map(_operation, self.operation or ())) or (AclOperation.ALL,),
            self.producer,
            self.consumer,
            self.idempotent,
        )


def _operation(text: str) -> AclOperation:
    """An operation by its name, `AlterConfigs` or `ALTER_CONFIGS`. Raises UsageError."""
    from klog.protocol.acls import AclOperation

    plain = text.replace("_", "").lower()
    known = {each.name.replace("_", "").lower(): each for each in AclOperation if each.name != "ANY"}
    if plain not in known:
        names = [each.name.title().replace("_", "") for each in known.values()]
        raise UsageError(
            f"--operation {text} is unknown", cure=did_you_mean(text.title(), names) or ", ".join(names)
        )
    return known[plain]


_FORCE: Final = flag("Do it without asking.", "--yes", "-y", "--force")


@app.command("list")
def list_acls(
    connection: ConnectionOptions,
    output: WatchOptions,
    resources: Resources,
    principal: list[str] | None = _entry("User:NAME", "Only ACLs of this principal."),
    as_kafka: AsKafka = False,
) -> None:
    """Show the ACLs of resources and principals, or all.

    Examples:

        klog acls list
        klog acls list orders --resource-pattern-type match
        klog acls list --principal User:billing -o csv
    """
    from klog.admin.acls import Wanted, filters_to_list
    from klog.admin.requests.acls import describe_acls

    filters = filters_to_list(Wanted(resources.found(), resources.pattern()), principal or ())

    def show(cluster: Cluster) -> None:
        found = list(dict.fromkeys(acl for each in filters for acl in describe_acls(cluster, each)))
        if not as_kafka or not output.for_people:
            none = "there are no such ACLs" if resources.found() or principal else "there are no ACLs"
            output.show([row_of(_FIELDS, each) for each in found], fields=_FIELDS, none=none)
            return
        if not principal:
            _print_as_kafka(_CURRENT, found)
        for name in principal or ():
            print_line(f"ACLs for principal `{name}`")
            _print_as_kafka(_CURRENT, [each for each in found if each.principal == name])

    output.over(connection, show)


_FIELDS: Final[Fields[Acl]] = {
    "principal": lambda acl: acl.principal,
    "permissionType": lambda acl: acl.permission.name,
    "operation": lambda acl: acl.operation.name,
    "resourceType": lambda acl: acl.pattern.resource_type.name,
    "resourceName": lambda acl: acl.pattern.name,
    "patternType": lambda acl: acl.pattern.pattern_type.name,
    "host": lambda acl: acl.host,
}


def _print_as_kafka(title: str, acls: Iterable[Acl]) -> None:
    from klog.admin.acls import by_pattern

    for pattern, group in by_pattern(acls).items():
        print_line(f"{title} `{pattern}`: ")
        print_line(" " + "\n".join(f"\t{acl}" for acl in group) + " ")
        print_line("")


@app.command("add")
def add_acls(
    connection: ConnectionOptions,
    change: ChangeOptions,
    resources: Resources,
    entries: Entries,
    force: bool = flag("", hidden=True),  # noqa: ARG001 (as kafka-acls)
    as_kafka: AsKafka = False,
) -> None:
    """Add ACLs. Adding one that is there already changes nothing.

    Where no ACL names a resource, all may use it if allow.everyone.if.no.acl.found is set: the first ACL then
    closes it for all others.

    Examples:

        klog acls add orders --allow-principal User:shop --producer
        klog acls add --allow-principal User:billing --consumer --topic orders --group billing
        klog acls add --allow-principal User:ops --operation Describe --topic shop.
            --resource-pattern-type prefixed
    """
    from klog.admin.acls import acls_of
    from klog.admin.requests.acls import create_acls

    wanted = [acl for group in acls_of(entries.wanted(resources)).values() for acl in group]
    if as_kafka:
        _print_as_kafka("Adding ACLs for resource", wanted)
    with connection.cluster() as cluster:
        errors = [None] * len(wanted) if change.dry_run else create_acls(cluster, wanted)
    if as_kafka and change.for_people:
        exit_if_failed(errors)
        return
    done = "would be added" if change.dry_run else "added"
    outcomes = [
        Outcome(str(acl), row_of(_FIELDS, acl), done, error)
        for acl, error in zip(wanted, errors, strict=True)
    ]
    added = errors.count(None)
    change.conclude(outcomes, summary=f"{count_of(added, 'ACL')} {done}" if added else "")


@app.command("remove")
def remove_acls(
    connection: ConnectionOptions,
    change: ChangeOptions,
    resources: Resources,
    entries: Entries,
    yes: bool = _FORCE,
    as_kafka: AsKafka = False,
) -> None:
    """Remove ACLs of resources: all of them, or those of principals. It shows them and asks first.

    Without a terminal it needs --yes (--force, as for kafka-acls).

    Examples:

        klog acls remove orders
        klog acls remove --allow-principal User:billing --operation Read --topic orders --yes
    """
    from klog.admin.acls import filters_to_remove
    from klog.admin.requests.acls import delete_acls, describe_acls

    filters = filters_to_remove(entries.wanted(resources))
    with connection.cluster() as cluster:
        found = list(dict.fromkeys(acl for each in filters for acl in describe_acls(cluster, each)))
        if not found:
            print_report("there are no such ACLs")
        elif change.for_people and not as_kafka:
            change.show([row_of(_FIELDS, each) for each in found])
        if found:
            agree(f"Remove {count_of(len(found), 'ACL')}?", yes=yes or change.dry_run)
        removed = delete_acls(cluster, filters) if found and not change.dry_run else found
    if not as_kafka or not change.for_people:
        done = "would be removed" if change.dry_run else "removed"
        outcomes = [Outcome(str(each), row_of(_FIELDS, each), done) for each in removed]
        change.conclude(outcomes, summary=f"{count_of(len(removed), 'ACL')} {done}" if removed else "")
