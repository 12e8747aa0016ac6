"""`klog log-dirs`: the size and lag of replicas in the log directories of brokers, and what is unbalanced.

With `--describe` the options and the output are those of `kafka-log-dirs`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

import typer

from klog.commands.shared.connection import ConnectionOptions
from klog.commands.shared.messages import print_error, print_line, print_lines, print_note
from klog.commands.shared.option_sets import argument, flag, option_set, valued
from klog.commands.shared.output import OutputOptions, WatchOptions
from klog.formats.errors import KlogError, UsageError

if TYPE_CHECKING:
    from klog.client.cluster import Cluster
    from klog.client.log_dirs import LogDir, LogDirs

_COLUMNS: Final = ("broker", "replicas", "size", "usableBytes", "lagging", "future", "logDir")
_REPLICA_COLUMNS: Final = ("topic", "partition", "broker", "size", "offsetLag", "isFuture", "logDir")


@option_set("As for kafka-log-dirs")
class KafkaOptions:
    """The options of `kafka-log-dirs`."""

    describe: bool = flag("Print the JSON of kafka-log-dirs.")
    topic_list: str | None = valued("TOPIC,...", "Only these topics.")
    broker_list: str | None = valued("ID,...", "Only these brokers.")

    def topics(self) -> list[str]:
        """The topics that are named."""
        return [each for each in (self.topic_list or "").split(",") if each]

    def brokers(self) -> list[int]:
        """The brokers that are named. Raises UsageError."""
        try:
            return [int(each) for each in (self.broker_list or "").split(",") if each]
        except ValueError as error:
            raise UsageError(
                f"--broker-list {self.broker_list!r} are no ids", cure="--broker-list 0,2"
            ) from error


def log_dirs(
    connection: ConnectionOptions,
    output: WatchOptions,
    kafka: KafkaOptions,
    topics: list[str] | None = argument("[TOPIC]...", "Only these topics. [default: all]"),
    broker: list[int] | None = valued("ID", "Only this broker (repeatable)."),
    replicas: bool = flag("Show each replica, the largest first."),
) -> None:
    """Show what each log directory of each broker holds: sizes, free space, replicas behind, moves.

    With --replicas, or for some topics, it shows the replicas. Notes say which brokers and directories have
    10 % more than the mean. The exit code is 1 if a broker does not answer or a directory is offline.

    Examples:

        klog log-dirs
        klog log-dirs orders
        klog log-dirs --broker 2 --replicas -o csv
        klog log-dirs --describe --topic-list orders --broker-list 0,1
    """

    names = [*(topics or ()), *kafka.topics()]
    brokers = [*(broker or ()), *kafka.brokers()]
    as_kafka = kafka.describe and output.for_people
    failed = False

    def show(cluster: Cluster) -> None:
        nonlocal failed
        _check_known(cluster, brokers)
        if as_kafka:
            from klog.commands.kafka_tools.log_dirs import querying

            print_line(querying())
        found = _described(cluster, brokers, names, may_miss=as_kafka)
        if as_kafka:
            _show_as_kafka(found)
        elif replicas or names:
            output.show(_replica_rows(found.dirs), columns=_REPLICA_COLUMNS)
        else:
            _show_dirs(found.dirs, output)
        failed = _tell_failures(found)

    output.over(connection, show)
    if failed:
        raise typer.Exit(1)


def _check_known(cluster: Cluster, wanted: Collection[int]) -> None:
    """Raises ClientError if the cluster does not have the brokers, in the words of Kafka's tool."""
    from klog.client.asking import broker_ids
    from klog.client.errors import ClientError

    known = broker_ids(cluster)
    if unknown := [each for each in wanted if each not in known]:
        raise ClientError(
            "ERROR: The given brokers do not exist from --broker-list: "
            f"{','.join(map(str, unknown))}. Current existent brokers: {','.join(map(str, known))}"
        )


def _described(
    cluster: Cluster, brokers: Collection[int], names: Sequence[str], *, may_miss: bool
) -> LogDirs:
    """The directories, with the replicas of the named topics or with all.

    Raises UnknownTopicError unless topics may be missing, which then are left out.
    """
    from klog.admin.topics import find_topics
    from klog.client.log_dirs import describe_log_dirs
    from klog.formats.names import TopicPartition

    if not names:
        return describe_log_dirs(cluster, brokers or None)
    topics = find_topics(cluster, None if may_miss else names)
    partitions = [
        TopicPartition(topic.name, part.partition)
        for topic in topics
        if topic.name in names
        for part in topic.partitions
    ]
    return describe_log_dirs(cluster, brokers or None, partitions)


def _show_as_kafka(found: LogDirs) -> None:
    from klog.commands.kafka_tools.log_dirs import described

    brokers = sorted({each.broker_id for each in found.dirs})
    print_lines(described(brokers, found.dirs))


def _replica_rows(dirs: Sequence[LogDir]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = [
        {
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "broker": found.broker_id,
            "logDir": found.path,
            "size": each.size_bytes,
            "offsetLag": each.offset_lag,
            "isFuture": each.is_future,
        }
        for found in dirs
        for each in found.replicas
    ]
    return sorted(rows, key=lambda row: -int(str(row["size"])))


def _show_dirs(dirs: Sequence[LogDir], output: OutputOptions) -> None:
    from klog.admin.log_dirs import summaries, unbalanced
    from klog.commands.shared.cells import human_bytes

    found = summaries(dirs)
    rows = [each.to_json() for each in found]
    if not output.for_people:
        output.show(rows)
        return
    for row in rows:
        for name in ("size", "usableBytes"):
            value = row[name]
            row[name] = human_bytes(value) if isinstance(value, int) else None
    output.show(rows, columns=_COLUMNS)
    for sentence in unbalanced(found):
        print_note(sentence)


def _tell_failures(found: LogDirs) -> bool:
    """Print what is offline or did not answer; return whether there is any."""
    from klog.client.errors import ClientError
    from klog.protocol.error_codes import ErrorCode

    errors: list[KlogError] = [
        ClientError(
            f"{each.path} of broker {each.broker_id} is offline: {each.error.name}",
            cure="see the broker's log; klog cluster health",
        )
        for each in found.dirs
        if each.error is not ErrorCode.NONE
    ]
    errors += found.failures.values()
    for error in errors:
        print_error(error)
    return bool(errors)
