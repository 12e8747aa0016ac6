"""`klog brokers`: lists brokers, shows their configs, and which versions of which APIs they serve.

`klog brokers api-versions` prints as `kafka-broker-api-versions`, unless another output is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from klog.commands.kafka_tools.command_lines import tool_app
from klog.commands.shared.connection import ConnectionOptions
from klog.commands.shared.messages import print_error
from klog.commands.shared.option_sets import argument, flag, valued
from klog.commands.shared.output import WatchOptions
from klog.formats.errors import KlogError

if TYPE_CHECKING:
    from klog.admin.configs import ConfigEntry
    from klog.admin.requests.cluster_description import ApiRange, BrokerNode
    from klog.client.cluster import Cluster

app = tool_app(
    "brokers",
    "List the brokers of any Kafka, their configs and the APIs that they serve.",
    {},
    (
        "klog brokers",
        "klog brokers configs 0",
        "klog brokers api-versions --broker 0",
        "klog brokers -o json",
    ),
    default="list",
)


@app.command("list")
def list_brokers(connection: ConnectionOptions, output: WatchOptions) -> None:
    """Show the brokers with their addresses, racks and versions, and which is the controller.

    The exit code is 1 if a broker does not answer.

    Examples:

        klog brokers
        klog brokers list -o csv
    """
    from klog.admin.clusters import broker_row, describe

    silent: list[str] = []

    def show(cluster: Cluster) -> None:
        found = describe(cluster).brokers
        silent[:] = [f"broker {each.node.broker_id}: {each.error}" for each in found if each.error]
        output.show(
            [broker_row(each) for each in found],
            columns=("id", "host", "port", "rack", "isController", "isFenced", "version"),
        )
        for error in silent:
            print_error(error)

    output.over(connection, show)
    if silent:
        raise typer.Exit(1)


@app.command("configs")
def show_configs(
    connection: ConnectionOptions,
    output: WatchOptions,
    broker: Annotated[int, typer.Argument(metavar="ID", help="The broker.", min=0)] = ...,  # type: ignore[assignment]  # typer's way to require it
    names: list[str] | None = argument("[CONFIG]...", "Only these configs."),
    all_: bool = flag("Also configs that nobody has set."),
) -> None:
    """Show the configs of a broker: those of its file, and those that were set while it runs.

    Examples:

        klog brokers configs 0
        klog brokers configs 0 log.retention.ms log.dirs
        klog brokers configs 0 --all -o json
    """
    from klog.admin.configs import ConfigEntity, EntityType, describe
    from klog.client.errors import ClientError

    def is_shown(config: ConfigEntry) -> bool:
        return config.name in names if names else all_ or config.source != "DEFAULT_CONFIG"

    def show(cluster: Cluster) -> None:
        found = describe(cluster, ConfigEntity(EntityType.BROKERS, str(broker)))
        if unknown := set(names or ()) - {each.name for each in found}:
            raise ClientError(
                f"broker {broker} has no config {', '.join(sorted(unknown))}",
                cure=f"klog brokers configs {broker} --all shows what it has",
            )
        output.show(
            [
                {
                    "name": each.name,
                    "value": "(sensitive)" if each.is_sensitive and output.for_people else each.value,
                    "source": each.source,
                    "isSensitive": each.is_sensitive,
                    "isReadOnly": each.is_read_only,
                }
                for each in filter(is_shown, found)
            ],
            columns=("name", "value", "source"),
        )

    output.over(connection, show)


@app.command("api-versions")
def show_api_versions(
    connection: ConnectionOptions,
    output: WatchOptions,
    broker: list[int] | None = valued("ID", "Only this broker (repeatable)."),
) -> None:
    """Show the APIs of each broker and the versions that it serves, as kafka-broker-api-versions prints them.

    "usable" is the highest version that clients of Kafka 3.9 use. The exit code is 1 if a broker does not
    answer.

    Examples:

        klog brokers api-versions
        klog brokers api-versions --broker 0 -o csv
    """
    from klog.admin.requests.cluster_description import describe_apis, describe_nodes
    from klog.commands.kafka_tools.api_versions import described

    errors: list[KlogError] = []

    def show(cluster: Cluster) -> None:
        errors.clear()
        found: list[tuple[BrokerNode, Sequence[ApiRange]]] = []
        for node in describe_nodes(cluster).brokers:
            if broker and node.broker_id not in broker:
                continue
            try:
                found.append((node, describe_apis(cluster.connection(node.broker_id)).apis))
            except KlogError as error:
                errors.append(error)
        if output.for_people:
            for node, apis in found:
                typer.echo(described(node, apis))
        else:
            output.show([_api_row(node, each) for node, apis in found for each in apis])
        for each in errors:
            print_error(each)

    output.over(connection, show)
    if errors:
        raise typer.Exit(1)


def _api_row(node: BrokerNode, found: ApiRange) -> dict[str, object]:
    from klog.commands.kafka_tools.api_versions import api_title

    return {
        "broker": node.broker_id,
        "apiKey": found.api_key,
        "name": api_title(found.api_key),
        "minVersion": found.min_version,
        "maxVersion": found.max_version,
    }
