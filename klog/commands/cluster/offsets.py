"""`klog offsets`: where partitions begin and end, offsets of a time, and what a group has committed.

Without TOPIC arguments the options and the output are those of `kafka-get-offsets`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import typer

from klog.commands.shared.connection import ConnectionOptions
from klog.commands.shared.messages import print_error
from klog.commands.shared.option_sets import argument, flag, option_set, optional, valued
from klog.commands.shared.output import OutputOptions, WatchOptions
from klog.formats.errors import UsageError

if TYPE_CHECKING:
    from klog.admin.offsets import Filter
    from klog.client.cluster import Cluster
    from klog.formats.names import TopicPartition

_COLUMNS: Final = ("topic", "partition", "leader", "logStartOffset", "logEndOffset", "offsets")
_WITH_GROUP: Final = ("topic", "partition", "logStartOffset", "logEndOffset", "currentOffset", "lag")


@option_set("As for kafka-get-offsets")
class KafkaSelection:
    """Partitions as `kafka-get-offsets` selects them."""

    topic: str | None = valued("REGEX", "Topics whose whole name matches.")
    partitions: str | None = valued("N,...", "Partitions by number. [default: all]")
    topic_partitions: str | None = valued(
        "REGEX:RANGE,...",
        "Patterns of topics with ranges, like orders:0-3,prices:2,:5- (the end is not included).",
    )
    exclude_internal: bool = flag("Leave out Kafka's own topics.", "--exclude-internal-topics")
    broker_list: str | None = optional(None, "", hidden=True)

    @property
    def is_given(self) -> bool:
        """Whether one of the options is."""
        return bool(self.topic or self.partitions or self.topic_partitions or self.exclude_internal)

    def filter(self) -> Filter:
        """Which partitions are meant. Raises UsageError."""
        from klog.admin.offsets import parse_filter, parse_partition_rules

        if self.topic_partitions is None:
            return parse_filter(self.topic, self.partitions)
        if self.topic is not None or self.partitions is not None:
            raise UsageError("--topic-partitions cannot be used with --topic or --partitions")
        return parse_partition_rules(self.topic_partitions)


def offsets(
    connection: ConnectionOptions,
    output: WatchOptions,
    selection: KafkaSelection,
    topics: list[str] | None = argument("[TOPIC[:N,...]]...", "Topics, or some of their partitions."),
    group: str | None = valued("GROUP", "Also what this group has committed, and its lag.", "--group", "-g"),
    time: str | None = valued(
        "TIME",
        "The offset of a time instead: ISO 8601, epoch ms, a span like 2h (that long ago), "
        "latest (-1), earliest (-2), max-timestamp (-3), earliest-local (-4) or latest-tiered (-5).",
    ),
) -> None:
    """Show where partitions begin and end, and what a group has committed, or the offsets of a time.

    With options of kafka-get-offsets, and for pipes if no topic is named, the output is as that tool prints
    it: TOPIC:PARTITION:OFFSET.

    The exit code is 1 if the offset of a partition cannot be had.

    Examples:

        klog offsets orders
        klog offsets orders:0,2 prices --group billing
        klog offsets orders --time 2026-11-21T09:30:00Z --json
        klog offsets --topic 'orders.*' --time -2
    """
    from klog.protocol.offset_times import LATEST

    if topics and selection.is_given:
        raise UsageError("TOPIC arguments and options of kafka-get-offsets exclude each other")
    if group is not None and time is not None:
        raise UsageError("--group and --time exclude each other")
    wanted = selection.filter()
    at = _moment(time)
    as_kafka = _as_kafka(topics, selection, group, time, output)
    if selection.broker_list and connection.bootstrap_server is None:
        from dataclasses import replace

        connection = replace(connection, bootstrap_server=selection.broker_list)
    failed = False

    def show(cluster: Cluster) -> None:
        nonlocal failed
        partitions = _partitions(cluster, topics, wanted, selection)
        if as_kafka or at is not None:
            position = LATEST if at is None else at
            failed = _show_time(cluster, partitions, position, None if as_kafka else output)
        else:
            failed = _show_ranges(cluster, partitions, group, output)

    output.over(connection, show)
    if failed and not as_kafka:
        raise typer.Exit(1)


def _moment(text: str | None) -> int | None:
    """A time in ms, or Kafka's number of one that has a name. Raises UsageError."""
    from datetime import UTC, datetime

    from klog.admin.offsets import NAMED_TIMES
    from klog.commands.shared.arguments import parse_time

    if text is not None and text in NAMED_TIMES:
        return NAMED_TIMES[text]
    try:
        return parse_time("--time", text, datetime.now(UTC))
    except UsageError as error:
        raise UsageError(
            f"--time {text!r} is not a time", cure=f"{error.cure}, or one of {', '.join(NAMED_TIMES)}"
        ) from error


def _as_kafka(
    topics: list[str] | None,
    selection: KafkaSelection,
    group: str | None,
    time: str | None,
    output: OutputOptions,
) -> bool:
    """Whether to print as kafka-get-offsets: for its options, and for pipes."""
    if topics or group is not None or not output.for_people:
        return False
    return selection.is_given or time is not None or not sys.stdout.isatty()


def _partitions(
    cluster: Cluster, topics: list[str] | None, wanted: Filter, selection: KafkaSelection
) -> list[TopicPartition]:
    from klog.admin.groups import parse_partitions
    from klog.admin.offsets import select_partitions

    if topics:
        return parse_partitions(cluster, topics)
    return select_partitions(cluster, wanted, exclude_internal=selection.exclude_internal)


def _show_time(
    cluster: Cluster, partitions: list[TopicPartition], time: int, output: OutputOptions | None
) -> bool:
    """Print the offsets of a time, as Kafka's tool without `output`; return whether one failed."""
    from klog.client.offsets import NOT_FOUND, try_list_offsets
    from klog.formats.errors import KlogError

    found = try_list_offsets(cluster, dict.fromkeys(partitions, time))
    failed = False
    rows: list[dict[str, object]] = []
    # Kafka's tool sorts them as text: partition 10 is before partition 2.
    for partition in sorted(partitions, key=str) if output is None else partitions:
        offset = found[partition]
        if isinstance(offset, KlogError):
            failed = True
            print_error(f"Skip getting offsets for topic-partition {partition} due to error: {offset}")
        elif output is not None:
            rows.append(
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "offset": None if offset == NOT_FOUND else offset,
                }
            )
        elif offset != NOT_FOUND:
            typer.echo(f"{partition.topic}:{partition.partition}:{offset}")
    if output is not None:
        output.show(rows)
    return failed


def _show_ranges(
    cluster: Cluster, partitions: list[TopicPartition], group: str | None, output: OutputOptions
) -> bool:
    """Print where partitions begin and end; return whether one failed."""
    from klog.admin.offsets import ranges

    found = ranges(cluster, partitions, group)
    columns = _COLUMNS if group is None else _WITH_GROUP
    output.show([each.to_json() for each in found], columns=columns)
    errors = [each.error for each in found if each.error is not None]
    for error in errors:
        print_error(error)
    return bool(errors)
