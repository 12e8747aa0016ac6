"""`klog configs`: shows and changes the configs of topics, brokers, groups and client metrics.

Options have the names of `kafka-configs`, and its command lines work too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from klog.commands.cluster.assignments import parse_pairs, split_list, without_brackets
from klog.commands.cluster.config_entities import EntityOptions
from klog.commands.kafka_tools.command_lines import AsKafka, tool_app
from klog.commands.shared.changing import ChangeOptions, Outcome
from klog.commands.shared.connection import ConnectionOptions
from klog.commands.shared.messages import print_line, print_lines, print_note
from klog.commands.shared.option_sets import flag, valued
from klog.commands.shared.output import WatchOptions
from klog.commands.shared.properties import properties_file
from klog.commands.shared.tables import show_table
from klog.commands.shared.usage import missing
from klog.formats.errors import UsageError

if TYPE_CHECKING:
    from klog.admin.configs import Change, ConfigEntity, ConfigEntry
    from klog.client.cluster import Cluster

app = tool_app(
    "configs",
    "Show and change configs of topics and brokers of any Kafka.",
    {"--describe": "describe", "--alter": "alter"},
    (
        "klog configs describe --topic orders",
        "klog configs alter --topic orders --set retention.ms=86400000",
        "klog configs describe --broker 0 --all",
    ),
)


@app.command("describe")
def describe_configs(
    options: EntityOptions,
    connection: ConnectionOptions,
    output: WatchOptions,
    all_: bool = flag("Also show configs that nobody has set."),
    documentation: bool = flag("Show what each config does.", "--documentation", "--doc"),
    as_kafka: AsKafka = False,
) -> None:
    """Show the configs that are set and the values they replace; with --all every config and its source.

    Examples:

        klog configs describe orders
        klog configs describe --topic orders --all --json | jq 'select(.name == "retention.ms")'
        klog configs describe --broker 1 --all
        klog configs describe --topic orders --all --doc
        klog configs describe --entity-type topics
        klog configs describe --group billing
    """
    from klog.admin.configs import describe, entities

    if as_kafka and (parts := options.quota_parts()) is not None:
        from klog.commands.cluster import quota_configs

        with connection.cluster() as cluster:
            quota_configs.describe(cluster, parts)
        return
    entity_type, entity = options.entity_or_type()

    def show(cluster: Cluster) -> None:
        wanted = entities(cluster, entity_type) if entity is None else [entity]
        found = [(each, describe(cluster, each, documentation=documentation)) for each in wanted]
        if as_kafka and output.for_people:
            _print_as_kafka(found, show_all=all_)
            return
        shown = [
            (each, [entry for entry in entries if all_ or entry.is_set(entity_type)])
            for each, entries in found
        ]
        if output.for_people:
            _show_all(shown, titles=entity is None, documentation=documentation)
        else:
            output.show([_to_json(each, entry) for each, entries in shown for entry in entries])

    output.over(connection, show)


def _print_as_kafka(found: Sequence[tuple[ConfigEntity, Sequence[ConfigEntry]]], *, show_all: bool) -> None:
    from klog.commands.kafka_tools.configs import described

    for entity, entries in found:
        print_lines(described(entity, entries, show_all=show_all))


def _show_all(
    found: Sequence[tuple[ConfigEntity, Sequence[ConfigEntry]]], *, titles: bool, documentation: bool
) -> None:
    """Print the configs of each entity, under its name if `titles` is set."""
    for number, (entity, entries) in enumerate(found):
        if titles and entries:
            if number:
                typer.echo()
            print_line(str(entity))
        _show(entity, entries, documentation=documentation)


def _show(entity: ConfigEntity, entries: Sequence[ConfigEntry], *, documentation: bool) -> None:
    if not entries:
        print_note(f"{entity}: nothing is set; --all shows the defaults")
    elif not documentation:
        rows = [_to_row(entry) for entry in entries]
        if not any(row["instead of"] for row in rows):
            rows = [{name: row[name] for name in ("name", "value", "source")} for row in rows]
        show_table(rows, aside="instead of")
    else:
        for entry in entries:
            print_line(f"{entry.name} = {_value(entry)}  ({entry.source})")
            print_line(f"    {entry.documentation or 'The broker has no text about it.'}")


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
        **({} if entry.documentation is None else {"documentation": entry.documentation}),
    }


def _to_row(entry: ConfigEntry) -> dict[str, object]:
    """A row of the table; its last column has the synonyms that the value replaces."""
    others = [f"{synonym.name}={synonym.value} ({synonym.source})" for synonym in entry.synonyms[1:]]
    return {
        "name": entry.name,
        "value": _value(entry),
        "source": entry.source,
        "instead of": "; ".join(others),
    }


def _value(entry: ConfigEntry) -> str | None:
    return "(sensitive)" if entry.is_sensitive else entry.value


@app.command("alter")
def alter_configs(
    options: EntityOptions,
    connection: ConnectionOptions,
    change: ChangeOptions,
    set_: list[str] | None = valued("KEY=VALUE", "Set a config."),
    delete: list[str] | None = valued("KEY", "Return to the default."),
    append: list[str] | None = valued("KEY=VALUE", "Add to a list."),
    subtract: list[str] | None = valued("KEY=VALUE", "Remove from a list."),
    add_config: list[str] | None = valued("K=V,K=[V,V]", "--set, as for kafka-configs."),
    add_config_file: Path | None = valued("FILE", "--set for each property of a file."),
    delete_config: list[str] | None = valued("K,K", "--delete, as for kafka-configs."),
    as_kafka: AsKafka = False,
) -> None:
    """Change configs of a topic, a broker, all brokers or a group. Either all changes are made, or none.

    Examples:

        klog configs alter orders --set retention.ms=86400000
        klog configs alter --topic orders --append cleanup.policy=compact --delete retention.ms
        klog configs alter --broker-defaults --set log.cleaner.threads=2
        klog configs alter --client-metrics slow --set interval.ms=60000
        klog configs --alter --topic orders --add-config cleanup.policy=[compact,delete]
    """
    from klog.admin.configs import alter
    from klog.commands.kafka_tools.configs import changed

    quota_parts = options.quota_parts() if as_kafka else None
    pairs = [*(set_ or ()), *(pair for text in add_config or () for pair in split_list(text))]
    kafka_deleted = [name.strip() for text in delete_config or () for name in split_list(text)]
    if quota_parts is not None:
        _alter_quotas(connection, quota_parts, add_config_file, pairs, kafka_deleted)
        return
    entity = options.entity()
    changes = _changes(
        properties_file(add_config_file),
        pairs,
        [*(delete or ()), *kafka_deleted],
        append or (),
        subtract or (),
    )
    with connection.cluster() as cluster:
        _check_set(cluster, entity, kafka_deleted)
        alter(cluster, entity, changes, validate_only=change.dry_run)
    if as_kafka and change.for_people and not change.dry_run:
        print_line(changed(entity))
        return
    fields = {"entityType": entity.type.value, "entityName": entity.name}
    done = "could be changed" if change.dry_run else "changed"
    change.conclude([Outcome(str(entity), fields, done)])


def _alter_quotas(
    connection: ConnectionOptions,
    parts: Mapping[str, str | None],
    file: Path | None,
    pairs: Sequence[str],
    deleted: Sequence[str],
) -> None:
    """What kafka-configs does for users, clients and IP addresses. Raises UsageError, ClientError."""
    from klog.commands.cluster import quota_configs

    given = {**properties_file(file), **parse_pairs("--add-config", pairs)}
    if None in parts.values() or not parts:
        raise missing("--entity-name or --entity-default")
    if not given and not deleted:
        raise missing("--add-config, --add-config-file or --delete-config")
    with connection.cluster() as cluster:
        quota_configs.alter(cluster, parts, given, deleted)


def _check_set(cluster: Cluster, entity: ConfigEntity, deleted: Sequence[str]) -> None:
    """Raises ClientError if a config of `--delete-config` is not set, as kafka-configs does."""
    from klog.admin.configs import describe
    from klog.client.errors import ClientError
    from klog.commands.kafka_tools.configs import is_shown

    if not deleted:
        return
    known = {entry.name for entry in describe(cluster, entity) if is_shown(entity, entry)}
    unset = [name for name in deleted if name not in known]
    if unset:
        raise ClientError(
            f"{entity}: {', '.join(unset)} cannot be deleted, since nobody has set it",
            cure="`klog configs describe` shows what is set",
        )


def _changes(
    of_file: Mapping[str, str],
    pairs: Sequence[str],
    deleted: Sequence[str],
    append: Sequence[str],
    subtract: Sequence[str],
) -> list[Change]:
    """The changes; what is given in the command line takes precedence over the file."""
    from klog.admin.configs import Change, Operation

    given = parse_pairs("--set", pairs)
    changes = [
        *(Change(key, Operation.SET, value) for key, value in of_file.items() if key not in given),
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
        raise missing("--set, --delete, --append, --subtract or --add-config-file")
    if len({change.name for change in changes}) < len(changes):
        raise UsageError("a config is changed twice")
    return changes
