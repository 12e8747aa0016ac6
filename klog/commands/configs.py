"""`klog configs`: what is configured for topics and brokers, where it comes from, and changing it.

Names of options are those of `kafka-configs`, whose command lines work too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from klog.commands.wire.admin_options import ValidateOnly
from klog.commands.wire.assignments import parse_pairs, split_list, without_brackets
from klog.commands.wire.connection import BootstrapServer, CommandConfig, TimeoutMs, connection
from klog.commands.wire.groups import ToolGroup
from klog.commands.wire.tables import show_json, show_table
from klog.formats.errors import UsageError

if TYPE_CHECKING:
    from klog.admin.configs import Change, ConfigEntity, ConfigEntry


class _ConfigsGroup(ToolGroup):
    actions: ClassVar = {"--describe": "describe", "--alter": "alter"}


app = typer.Typer(
    cls=_ConfigsGroup,
    name="configs",
    help="Show and change configs of topics and brokers of any Kafka.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)

Topic = Annotated[
    str | None, typer.Option("--topic", metavar="TOPIC", help="Configs of a topic.", show_default=False)
]
Broker = Annotated[
    str | None, typer.Option("--broker", metavar="ID", help="Configs of a broker.", show_default=False)
]
BrokerDefaults = Annotated[
    bool, typer.Option("--broker-defaults", help="What holds for all brokers of the cluster.")
]
EntityTypeOption = Annotated[
    str | None,
    typer.Option(
        "--entity-type", metavar="topics|brokers", help="As kafka-configs has it.", show_default=False
    ),
]
EntityName = Annotated[
    str | None,
    typer.Option("--entity-name", metavar="NAME", help="As kafka-configs has it.", show_default=False),
]
EntityDefault = Annotated[bool, typer.Option("--entity-default", help="As kafka-configs has it.")]


def _entity(
    topic: str | None,
    broker: str | None,
    broker_defaults: bool,
    entity_type: str | None,
    entity_name: str | None,
    entity_default: bool,
) -> ConfigEntity:
    from klog.admin.configs import ConfigEntity, EntityType

    found = []
    if topic is not None:
        found.append(ConfigEntity(EntityType.TOPICS, topic))
    if broker is not None:
        found.append(ConfigEntity(EntityType.BROKERS, broker))
    if broker_defaults:
        found.append(ConfigEntity(EntityType.BROKERS, ""))
    if entity_type is not None:
        if entity_type not in list(EntityType):
            raise UsageError(f"--entity-type {entity_type} has no configs here", cure="topics or brokers")
        if (entity_name is None) != entity_default or (entity_default and entity_type == EntityType.TOPICS):
            raise UsageError("--entity-type needs an --entity-name, or brokers and --entity-default")
        found.append(ConfigEntity(EntityType(entity_type), entity_name or ""))
    if len(found) != 1:
        what = "two things are named" if found else "nothing is named"
        raise UsageError(f"{what} to configure", cure="one of --topic NAME, --broker ID, --broker-defaults")
    return found[0]


@app.command("describe", no_args_is_help=True)
def describe_configs(
    topic: Topic = None,
    broker: Broker = None,
    broker_defaults: BrokerDefaults = False,
    entity_type: EntityTypeOption = None,
    entity_name: EntityName = None,
    entity_default: EntityDefault = False,
    all_: Annotated[bool, typer.Option("--all", help="Not only what somebody has set.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a config on stdout.")] = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout_ms: TimeoutMs = None,
) -> None:
    """What is set, and what it replaces; with --all everything that holds, and where it comes from.

    Examples:

        klog configs describe --topic orders

        klog configs describe --topic orders --all --json | jq 'select(.name == "retention.ms")'

        klog configs describe --broker 1 --all
    """
    from klog.admin.configs import describe
    from klog.admin.kafka_python import admin_client

    entity = _entity(topic, broker, broker_defaults, entity_type, entity_name, entity_default)
    with admin_client(connection(bootstrap_server, command_config, timeout_ms)) as admin:
        entries = [entry for entry in describe(admin, entity) if all_ or entry.is_set(entity.type)]
    if as_json:
        show_json([_to_json(entity, entry) for entry in entries])
    elif entries:
        show_table([_to_row(entry) for entry in entries])
    else:
        typer.echo(f"{entity}: nothing is set; --all shows the defaults", err=True)


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
    """What a value replaces stands behind it: the synonyms after the one that holds."""
    others = [f"{synonym.name}={synonym.value} ({synonym.source})" for synonym in entry.synonyms[1:]]
    value = "(sensitive)" if entry.is_sensitive else entry.value
    return {"name": entry.name, "value": value, "source": entry.source, "instead of": "; ".join(others)}


@app.command("alter", no_args_is_help=True)
def alter_configs(
    topic: Topic = None,
    broker: Broker = None,
    broker_defaults: BrokerDefaults = False,
    entity_type: EntityTypeOption = None,
    entity_name: EntityName = None,
    entity_default: EntityDefault = False,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set a config.", show_default=False)
    ] = None,
    delete: Annotated[
        list[str] | None,
        typer.Option("--delete", metavar="KEY", help="Back to what holds otherwise.", show_default=False),
    ] = None,
    append: Annotated[
        list[str] | None,
        typer.Option("--append", metavar="KEY=VALUE", help="Add to a list.", show_default=False),
    ] = None,
    subtract: Annotated[
        list[str] | None,
        typer.Option("--subtract", metavar="KEY=VALUE", help="Take from a list.", show_default=False),
    ] = None,
    add_config: Annotated[
        list[str] | None,
        typer.Option(
            "--add-config", metavar="K=V,K=[V,V]", help="--set, as kafka-configs has it.", show_default=False
        ),
    ] = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option(
            "--delete-config", metavar="K,K", help="--delete, as kafka-configs has it.", show_default=False
        ),
    ] = None,
    validate_only: ValidateOnly = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout_ms: TimeoutMs = None,
) -> None:
    """Change configs of a topic, a broker or all brokers; of one entity all changes are made, or none.

    Examples:

        klog configs alter --topic orders --set retention.ms=86400000

        klog configs alter --topic orders --append cleanup.policy=compact --delete retention.ms

        klog configs alter --broker-defaults --set log.cleaner.threads=2
    """
    from klog.admin.configs import alter
    from klog.admin.kafka_python import admin_client

    entity = _entity(topic, broker, broker_defaults, entity_type, entity_name, entity_default)
    pairs = [*(set_ or ()), *(pair for text in add_config or () for pair in split_list(text))]
    gone = [*(delete or ()), *(name for text in delete_config or () for name in split_list(text))]
    changes = _changes(pairs, gone, append or (), subtract or ())
    with admin_client(connection(bootstrap_server, command_config, timeout_ms)) as admin:
        alter(admin, entity, changes, validate_only=validate_only)
    typer.echo(f"{entity}: {'could be ' if validate_only else ''}changed", err=True)


def _changes(
    pairs: Sequence[str], gone: Sequence[str], append: Sequence[str], subtract: Sequence[str]
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
        *(Change(key, Operation.DELETE) for key in gone),
    ]
    if not changes:
        raise UsageError("nothing to change", cure="--set, --delete, --append or --subtract")
    if len({change.name for change in changes}) < len(changes):
        raise UsageError("a config is changed twice")
    return changes
