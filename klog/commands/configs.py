"""`klog configs`: shows and changes the configs of topics and brokers, and where their values come from.

Options have the names of `kafka-configs`, and its command lines work too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from typer.models import OptionInfo

from klog.commands._messages import print_note, print_report
from klog.commands._usage import missing
from klog.commands.option_groups import expand_options, option
from klog.commands.wire.assignments import parse_pairs, split_list, without_brackets
from klog.commands.wire.connection import ConnectionOptions, ValidateOnly
from klog.commands.wire.groups import tool_app
from klog.commands.wire.tables import show_json, show_table
from klog.formats.errors import UsageError

if TYPE_CHECKING:
    from klog.admin.configs import Change, ConfigEntity, ConfigEntry

app = tool_app(
    "configs",
    "Show and change configs of topics and brokers of any Kafka.",
    {"--describe": "describe", "--alter": "alter"},
)


def _option(name: str, metavar: str, summary: str) -> OptionInfo:
    """An option whose default is not shown."""
    return option(None, summary, name, metavar=metavar, show_default=False)


@dataclass(frozen=True, slots=True)
class EntityOptions:
    """The topic or broker whose configs are meant, also as kafka-configs names it."""

    topic: Annotated[str | None, _option("--topic", "TOPIC", "Configs of a topic.")] = None
    broker: Annotated[str | None, _option("--broker", "ID", "Configs of a broker.")] = None
    broker_defaults: Annotated[
        bool, typer.Option("--broker-defaults", help="Configs for all brokers of the cluster.")
    ] = False
    entity_type: Annotated[
        str | None, _option("--entity-type", "topics|brokers", "As for kafka-configs.")
    ] = None
    entity_name: Annotated[str | None, _option("--entity-name", "NAME", "As for kafka-configs.")] = None
    entity_default: Annotated[bool, typer.Option("--entity-default", help="As for kafka-configs.")] = False

    def entity(self) -> ConfigEntity:
        """The entity that the options name. Raises UsageError, or typer's, unless it is exactly one."""
        from klog.admin.configs import ConfigEntity, EntityType

        found = []
        if self.topic is not None:
            found.append(ConfigEntity(EntityType.TOPICS, self.topic))
        if self.broker is not None:
            found.append(ConfigEntity(EntityType.BROKERS, self.broker))
        if self.broker_defaults:
            found.append(ConfigEntity(EntityType.BROKERS, ""))
        if self.entity_type is not None:
            found.append(self._named_entity(self.entity_type))
        if len(found) != 1:
            choice = "--topic NAME, --broker ID or --broker-defaults"
            raise UsageError(f"more than one of {choice} is given") if found else missing(choice)
        return found[0]

    def _named_entity(self, entity_type: str) -> ConfigEntity:
        from klog.admin.configs import ConfigEntity, EntityType

        if entity_type not in list(EntityType):
            raise UsageError(f"--entity-type {entity_type} is not supported", cure="topics or brokers")
        is_topic = entity_type == EntityType.TOPICS
        if (self.entity_name is None) != self.entity_default or (self.entity_default and is_topic):
            raise UsageError("--entity-type needs an --entity-name, or brokers and --entity-default")
        return ConfigEntity(EntityType(entity_type), self.entity_name or "")


@app.command("describe")
@expand_options
def describe_configs(
    options: EntityOptions,
    connection: ConnectionOptions,
    all_: Annotated[bool, typer.Option("--all", help="Also show configs that nobody has set.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per config.")] = False,
) -> None:
    """Show the configs that are set and the values they replace; with --all every config and its source.

    Examples:

        klog configs describe --topic orders

        klog configs describe --topic orders --all --json | jq 'select(.name == "retention.ms")'

        klog configs describe --broker 1 --all
    """
    from klog.admin import connect
    from klog.admin.configs import describe

    entity = options.entity()
    with connect.cluster(connection.settings()) as cluster:
        entries = [entry for entry in describe(cluster, entity) if all_ or entry.is_set(entity.type)]
    if as_json:
        show_json([_to_json(entity, entry) for entry in entries])
    elif entries:
        show_table([_to_row(entry) for entry in entries], aside="instead of")
    else:
        print_note(f"{entity}: nothing is set; --all shows the defaults")


def _to_json(entity: ConfigEntity, entry: ConfigEntry) -> dict[str, object]:
    return {
        "entityType": entity.type.value,
        "entityName": entity.name,
        "name": entry.name,
        "value": entry.value,
        "source": entry.source,
        "isSensitive": entry.is_sensitive,
        "isReadOnly": entry.is_read_only,
        "synonyms": [synonym._asdict() for synonym in entry.synonyms],
    }


def _to_row(entry: ConfigEntry) -> dict[str, object]:
    """A row of the table; its last column has the synonyms that the value replaces."""
    others = [f"{synonym.name}={synonym.value} ({synonym.source})" for synonym in entry.synonyms[1:]]
    value = "(sensitive)" if entry.is_sensitive else entry.value
    return {"name": entry.name, "value": value, "source": entry.source, "instead of": "; ".join(others)}


@app.command("alter")
@expand_options
def alter_configs(
    options: EntityOptions,
    connection: ConnectionOptions,
    set_: Annotated[list[str] | None, _option("--set", "KEY=VALUE", "Set a config.")] = None,
    delete: Annotated[list[str] | None, _option("--delete", "KEY", "Return to the default.")] = None,
    append: Annotated[list[str] | None, _option("--append", "KEY=VALUE", "Add to a list.")] = None,
    subtract: Annotated[list[str] | None, _option("--subtract", "KEY=VALUE", "Remove from a list.")] = None,
    add_config: Annotated[
        list[str] | None, _option("--add-config", "K=V,K=[V,V]", "--set, as for kafka-configs.")
    ] = None,
    delete_config: Annotated[
        list[str] | None, _option("--delete-config", "K,K", "--delete, as for kafka-configs.")
    ] = None,
    validate_only: ValidateOnly = False,
) -> None:
    """Change configs of a topic, a broker or all brokers. Either all changes are made, or none.

    Examples:

        klog configs alter --topic orders --set retention.ms=86400000

        klog configs alter --topic orders --append cleanup.policy=compact --delete retention.ms

        klog configs alter --broker-defaults --set log.cleaner.threads=2
    """
    from klog.admin import connect
    from klog.admin.configs import alter

    entity = options.entity()
    pairs = [*(set_ or ()), *(pair for text in add_config or () for pair in split_list(text))]
    deleted = [*(delete or ()), *(name for text in delete_config or () for name in split_list(text))]
    changes = _changes(pairs, deleted, append or (), subtract or ())
    with connect.cluster(connection.settings()) as cluster:
        alter(cluster, entity, changes, validate_only=validate_only)
    print_report(f"{entity}: {'could be ' if validate_only else ''}changed")


def _changes(
    pairs: Sequence[str], deleted: Sequence[str], append: Sequence[str], subtract: Sequence[str]
) -> list[Change]:
    from klog.admin.configs import Change, Operation

    changes = [
        *(
            Change(key, operation, without_brackets(value))
            for option, operation, texts in (
                ("--set", Operation.SET, pairs),
                ("--append", Operation.APPEND, append),
                ("--subtract", Operation.SUBTRACT, subtract),
            )
            for key, value in parse_pairs(option, texts).items()
        ),
        *(Change(key, Operation.DELETE) for key in deleted),
    ]
    if not changes:
        raise missing("--set, --delete, --append or --subtract")
    if len({change.name for change in changes}) < len(changes):
        raise UsageError("a config is changed twice")
    return changes
