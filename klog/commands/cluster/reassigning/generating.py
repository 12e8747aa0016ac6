"""`klog reassign generate`: proposes an assignment as `kafka-reassign-partitions --generate` does."""

from __future__ import annotations

import random
from pathlib import Path

import typer

from klog.commands.cluster.reassigning.app import app
from klog.commands.cluster.reassigning.plan_options import broker_list
from klog.commands.kafka_tools.command_lines import AsKafka
from klog.commands.shared.connection import ConnectionOptions
from klog.commands.shared.option_sets import argument, flag, valued
from klog.commands.shared.usage import missing


@app.command("generate")
def generate_assignment(
    connection: ConnectionOptions,
    topics: list[str] | None = argument("[TOPIC]...", "The topics."),
    topics_to_move_json_file: Path | None = valued(
        "FILE", "A file of topics, as for kafka-reassign-partitions."
    ),
    brokers: str | None = valued("1,2,3", "The brokers to use.", "--broker-list"),
    disable_rack_aware: bool = flag("Place replicas without regard to racks."),
    as_kafka: AsKafka = False,  # noqa: ARG001 (both forms are the same)
) -> None:
    """Propose an assignment of topics to brokers as kafka-reassign-partitions does, from a random start.

    It spreads the number of replicas, and regards neither where they are nor how large they are. `klog
    reassign plan` moves less.

    Examples:

        klog reassign generate orders --broker-list 1,2,3
        klog reassign --generate --topics-to-move-json-file topics.json --broker-list 1,2,3
    """
    from klog.admin.reassign.generate import check_topics, current_assignment, generate, racks_to_use
    from klog.admin.reassign.json_files import format_assignments
    from klog.admin.reassign.reading import read_brokers, read_partitions

    wanted = [*(topics or ()), *_topics_of(topics_to_move_json_file)]
    if not wanted:
        raise missing("TOPIC or --topics-to-move-json-file")
    if brokers is None:
        raise missing("--broker-list")
    with connection.cluster() as cluster:
        alive = read_brokers(cluster)
        known = [part for part in read_partitions(cluster) if part.partition.topic in wanted]
    check_topics(wanted, {part.partition.topic for part in known})
    racks = racks_to_use(alive, broker_list("--broker-list", brokers), rack_aware=not disable_rack_aware)
    proposed = generate(known, racks, random.randrange)
    typer.echo(
        f"Current partition replica assignment\n{format_assignments(current_assignment(known))}\n\n"
        f"Proposed partition reassignment configuration\n{format_assignments(proposed)}"
    )


def _topics_of(file: Path | None) -> list[str]:
    """The topics of a file, none without one. Raises FormatError, MissingInputError."""
    from klog.admin.reassign.json_files import parse_topics
    from klog.formats.errors import MissingInputError

    if file is None:
        return []
    try:
        text = file.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise MissingInputError(f"cannot be read: {error.strerror}", file=str(file)) from error
    return parse_topics(text, str(file))
