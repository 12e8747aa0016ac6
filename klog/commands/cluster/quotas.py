"""`klog quotas`: shows and changes the quotas of users, client ids and IP addresses of any Kafka.

The command lines of `kafka-configs` with the entity types users, clients and ips work too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from klog.commands.cluster.assignments import parse_pairs, split_list
from klog.commands.kafka_tools.command_lines import AsKafka, tool_app
from klog.commands.shared.changing import ChangeOptions, Outcome
from klog.commands.shared.connection import ConnectionOptions
from klog.commands.shared.messages import print_line
from klog.commands.shared.option_sets import argument, flag, option_set, valued
from klog.commands.shared.output import WatchOptions
from klog.commands.shared.usage import missing
from klog.formats.errors import UsageError

if TYPE_CHECKING:
    from klog.admin.requests.client_quotas import QuotaEntity, QuotaFilter
    from klog.client.cluster import Cluster

app = tool_app(
    "quotas",
    "Show and change the quotas of users, client ids and IP addresses of any Kafka.",
    {"--describe": "list", "--alter": "alter"},
    (
        "klog quotas list",
        "klog quotas alter --user alice --set producer_byte_rate=1048576",
        "klog quotas alter --client-id-defaults --delete consumer_byte_rate",
    ),
)

_KAFKAS_TYPES: Final = {"users": "user", "clients": "client-id", "ips": "ip"}
_TITLES: Final = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
_DEFAULT: Final = ""


@option_set("Whose quota")
class Whose:
    """A user, a client id, both together, or an IP address; by name, or the default of all others."""

    user: str | None = valued("NAME", "The same.")
    user_defaults: bool = flag("All users without a quota of their own.")
    client_id: str | None = valued("ID", "A client id.", "--client-id", "--client")
    client_id_defaults: bool = flag("All other client ids.", "--client-id-defaults", "--client-defaults")
    ip: str | None = valued("ADDRESS", "An IP address.")
    ip_defaults: bool = flag("All other IP addresses.")
    entity_type: list[str] | None = valued("TYPE", "", hidden=True)
    entity_name: list[str] | None = valued("NAME", "", hidden=True)
    entity_default: bool = flag("", hidden=True)
    name: str | None = argument("[USER]", "A user.")

    def parts(self) -> dict[str, str | None]:
        """The types with their names: the empty text for a default, None for any of the type.

        Raises UsageError.
        """
        if self.name is not None and self.user is not None:
            raise UsageError("two users are named", cure="name one")
        found: dict[str, str | None] = {}
        for kind, name, is_default in (
            ("user", self.user if self.name is None else self.name, self.user_defaults),
            ("client-id", self.client_id, self.client_id_defaults),
            ("ip", self.ip, self.ip_defaults),
        ):
            if name is not None and is_default:
                raise UsageError(f"--{kind} and --{kind}-defaults exclude each other")
            if name is not None or is_default:
                found[kind] = name or _DEFAULT
        names: Iterator[str | None] = iter(self.entity_name or ())
        for kafkas in self.entity_type or ():
            if kafkas not in _KAFKAS_TYPES:
                raise UsageError(
                    f"--entity-type {kafkas} has no quotas", cure=f"one of {', '.join(_KAFKAS_TYPES)}"
                )
            found[_KAFKAS_TYPES[kafkas]] = next(names, _DEFAULT if self.entity_default else None)
        if "ip" in found and len(found) > 1:
            raise UsageError("the quota of an IP address has neither a user nor a client id")
        return found


@app.command("list")
def list_quotas(
    connection: ConnectionOptions,
    output: WatchOptions,
    whose: Whose,
    as_kafka: AsKafka = False,
) -> None:
    """Show quotas: all, or those of a user, a client id or an IP address.

    Rates are bytes a second, for each broker; request_percentage is the share of a thread.

    Examples:

        klog quotas list
        klog quotas list --user alice -o json
    """
    from klog.admin.requests.client_quotas import describe_quotas

    filters = list(filters_of(whose.parts()))

    def show(cluster: Cluster) -> None:
        found = describe_quotas(cluster, filters, strict=as_kafka and bool(filters))
        if as_kafka and output.for_people:
            print_as_kafka(found)
            return
        output.show(
            [
                {
                    "user": _shown(entity.name_of("user")),
                    "clientId": _shown(entity.name_of("client-id")),
                    "ip": _shown(entity.name_of("ip")),
                    "key": key,
                    "value": int(value) if value.is_integer() else value,
                }
                for entity, values in found.items()
                for key, value in values.items()
            ],
            fields=("user", "clientId", "ip", "key", "value"),
            none="there are no such quotas" if filters else "there are no quotas",
        )

    output.over(connection, show)


def _shown(name: str | None) -> str | None:
    return "<default>" if name == _DEFAULT else name


def print_as_kafka(found: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
    """Print quotas as kafka-configs does."""
    for entity, values in found.items():
        given = ", ".join(f"{key}={value}" for key, value in values.items())
        print_line(f"Quota configs for {_title(entity)} are {given}")


def filters_of(parts: Mapping[str, str | None]) -> Iterator[QuotaFilter]:
    """What the entities must have whose quotas are meant; None is any name."""
    from klog.admin.requests.client_quotas import Match, QuotaFilter

    for kind, name in parts.items():
        if name is None:
            yield QuotaFilter(kind, Match.ANY)
        elif name == _DEFAULT:
            yield QuotaFilter(kind, Match.DEFAULT)
        else:
            yield QuotaFilter(kind, Match.EXACT, name)


def _title(entity: QuotaEntity) -> str:
    """The entity in the words of kafka-configs."""
    return ", ".join(
        f"the default {_TITLES[kind]}" if name is None else f"{_TITLES[kind]} '{name}'"
        for kind, name in entity.parts
    )


@app.command("alter")
def alter_quotas(
    connection: ConnectionOptions,
    change: ChangeOptions,
    whose: Whose,
    set_: list[str] | None = valued("KEY=VALUE", "Set a quota (repeatable)."),
    delete: list[str] | None = valued("KEY", "Remove a quota (repeatable)."),
    add_config: list[str] | None = valued("K=V,K=V", "", hidden=True),
    delete_config: list[str] | None = valued("K,K", "", hidden=True),
    as_kafka: AsKafka = False,
) -> None:
    """Set and remove quotas of one entity: all of the changes are made, or none.

    Keys: producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate, and
    connection_creation_rate for IP addresses.

    Examples:

        klog quotas alter alice --set producer_byte_rate=1048576
        klog quotas alter alice --client-id loader --set consumer_byte_rate=500000
        klog quotas alter --ip-defaults --set connection_creation_rate=10
    """
    from klog.admin.requests.client_quotas import QuotaEntity
    from klog.admin.requests.client_quotas import alter_quotas as alter

    parts = whose.parts()
    if not parts or None in parts.values():
        raise missing("USER, --client-id or --ip with a name (or --user-defaults, ...)")
    pairs = [*(set_ or ()), *(pair for text in add_config or () for pair in split_list(text))]
    names = [*(delete or ()), *(name for text in delete_config or () for name in split_list(text))]
    changes: dict[str, float | None] = {**dict.fromkeys(names), **values_of(parse_pairs("--set", pairs))}
    if not changes:
        raise missing("--set KEY=VALUE or --delete KEY")
    if len(changes) < len(pairs) + len(names):
        raise UsageError("a quota is changed twice")
    entity = QuotaEntity(tuple((kind, name or None) for kind, name in parts.items()))
    with connection.cluster() as cluster:
        alter(cluster, entity, changes, validate_only=change.dry_run)
    if as_kafka and change.for_people:
        print_line(completed(entity))
        return
    done = "could be changed" if change.dry_run else "changed"
    change.conclude([Outcome(_title(entity), {"entity": dict(entity.parts)}, done)])


def values_of(pairs: Mapping[str, str]) -> dict[str, float]:
    """The values as numbers. Raises UsageError."""
    found = {}
    for key, text in pairs.items():
        try:
            found[key] = float(text)
        except ValueError as error:
            raise UsageError(f"--set {key}={text} is no number") from error
    return found


def completed(entity: QuotaEntity) -> str:
    """The line of kafka-configs after a change."""
    kind, name = entity.parts[0]
    kafkas = next(each for each, own in _KAFKAS_TYPES.items() if own == kind)
    if name is None:
        return f"Completed updating default config for {kafkas} in the cluster."
    return f"Completed updating config for {kafkas.removesuffix('s')} {name}."
