"""`klog elect-leader`: makes the preferred replicas the leaders, or elects leaders that are not in sync.

With `--election-type` the options and the output are those of `kafka-leader-election`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from klog.commands.shared.changing import ChangeOptions, Outcome
from klog.commands.shared.connection import ConnectionOptions
from klog.commands.shared.messages import print_error, print_line, print_note, print_report
from klog.commands.shared.option_sets import argument, flag, option_set, optional, valued
from klog.commands.shared.properties import text_of
from klog.commands.shared.terminal import agree
from klog.commands.shared.usage import missing
from klog.formats.errors import KlogError, UsageError
from klog.formats.wording import first_of

if TYPE_CHECKING:
    from klog.admin.requests.elections import Elected
    from klog.client.cluster import Cluster
    from klog.formats.names import TopicPartition
    from klog.protocol.election_type import ElectionType

_NAMED: Final = 10


@option_set("As for kafka-leader-election")
class KafkaOptions:
    """The options of `kafka-leader-election`."""

    election_type: str | None = valued("TYPE", "preferred or unclean.")
    topic: str | None = valued("TOPIC", "A topic.")
    partition: int | None = valued("N", "A partition of --topic.", least=0)
    json_file: Path | None = valued("FILE", "A file that lists partitions as JSON.", "--path-to-json-file")
    all_partitions: bool = flag("All partitions that need it.", "--all-topic-partitions")
    admin_config: Path | None = optional(None, "", "--admin.config", hidden=True)


def elect_leader(
    connection: ConnectionOptions,
    change: ChangeOptions,
    kafka: KafkaOptions,
    partitions: list[str] | None = argument("[TOPIC[:N,...]]...", "Topics, or some of their partitions."),
    preferred: bool = flag("Make the first replica the leader, if it is in sync."),
    unclean: bool = flag(
        "Let a replica lead that is not in sync, where there is no leader. Records are lost."
    ),
    all_: bool = flag("All partitions that need it."),
    yes: bool = flag("Elect uncleanly without asking.", "--yes", "-y"),
) -> None:
    """Elect leaders of partitions: the preferred ones after a restart, or unclean ones after a loss.

    An unclean election loses the records that only the lost replicas have. It asks on a terminal; elsewhere
    it needs --yes. With --election-type it does not ask, and prints as kafka-leader-election does.

    The exit code is 1 if a leader could not be elected.

    Examples:

        klog elect-leader --preferred --all
        klog elect-leader --preferred orders prices:0,2
        klog elect-leader --unclean orders:3
        klog elect-leader --election-type preferred --all-topic-partitions
    """
    from klog.admin.requests.elections import elect_leaders
    from klog.protocol.election_type import ElectionType

    kind = _kind(kafka, preferred=preferred, unclean=unclean)
    _check_one_way(kafka, partitions, all_=all_)
    as_kafka = kafka.election_type is not None
    if kafka.admin_config is not None:
        connection = replace(connection, command_config=kafka.admin_config)
    with connection.cluster() as cluster:
        wanted = _wanted(cluster, kafka, partitions)
        if kind is ElectionType.UNCLEAN and (not as_kafka or change.dry_run):
            wanted = _agreed(cluster, wanted, yes=yes or change.dry_run)
        if change.dry_run:
            change.conclude(_due(cluster, kind, wanted))
            return
        outcomes = elect_leaders(cluster, kind, wanted)
    if not as_kafka:
        _tell(outcomes, change)
    elif _tell_as_kafka(kind, outcomes):
        raise typer.Exit(1)


def _kind(kafka: KafkaOptions, *, preferred: bool, unclean: bool) -> ElectionType:
    from klog.protocol.election_type import ElectionType

    if preferred + unclean + (kafka.election_type is not None) > 1:
        raise UsageError("--preferred, --unclean and --election-type exclude each other")
    if kafka.election_type is not None:
        try:
            return ElectionType[kafka.election_type.upper()]
        except KeyError as error:
            raise UsageError(
                f"--election-type {kafka.election_type} is unknown", cure="preferred or unclean"
            ) from error
    if not preferred and not unclean:
        raise missing("--preferred or --unclean")
    return ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED


def _check_one_way(kafka: KafkaOptions, partitions: Sequence[str] | None, *, all_: bool) -> None:
    """Raise UsageError unless there is just one way in which partitions are named."""
    ways = [
        bool(partitions),
        all_ or kafka.all_partitions,
        kafka.topic is not None,
        kafka.json_file is not None,
    ]
    if not any(ways):
        raise missing("TOPIC[:N,...] (or --all, or --path-to-json-file FILE)")
    if sum(ways) > 1:
        raise UsageError("partitions are named in several ways", cure="name them, or give --all, or a file")
    if (kafka.topic is None) != (kafka.partition is None):
        raise missing("--topic and --partition (both or none)")


def _wanted(
    cluster: Cluster, kafka: KafkaOptions, partitions: Sequence[str] | None
) -> list[TopicPartition] | None:
    """The partitions, None for all."""
    from klog.admin.elections import parse_json
    from klog.admin.groups import parse_partitions
    from klog.formats.names import TopicPartition

    if partitions:
        return parse_partitions(cluster, partitions)
    if kafka.topic is not None and kafka.partition is not None:
        return [TopicPartition(kafka.topic, kafka.partition)]
    file = kafka.json_file
    if file is None:
        return None
    return parse_json(text_of(file), str(file))


def _agreed(cluster: Cluster, wanted: Sequence[TopicPartition] | None, *, yes: bool) -> list[TopicPartition]:
    """Those of the partitions that have no leader, if the user agrees to lose records. Exits if not."""
    from klog.admin.elections import without_leader
    from klog.admin.topics import find_topics
    from klog.client.asking import broker_ids

    names = None if wanted is None else sorted({each.topic for each in wanted})
    found = without_leader(find_topics(cluster, names), broker_ids(cluster))
    lost = [each for each in found if wanted is None or each in wanted]
    if not lost:
        print_note("nothing was changed: each of these partitions has a leader")
        raise typer.Exit(0)
    named = first_of(lost, _NAMED)
    agree(f"Elect leaders that are not in sync, and lose records of {named}?", yes=yes)
    return lost


def _due(cluster: Cluster, kind: ElectionType, wanted: Sequence[TopicPartition] | None) -> list[Outcome]:
    """The partitions that would get another leader; preferred: those that another replica leads."""
    from klog.admin.topics import find_topics
    from klog.formats.names import TopicPartition
    from klog.protocol.election_type import ElectionType

    if kind is ElectionType.UNCLEAN:
        return [_outcome(each, "would be elected a leader") for each in wanted or ()]
    names = None if wanted is None else sorted({each.topic for each in wanted})
    due = [
        TopicPartition(topic.name, each.partition)
        for topic in find_topics(cluster, names)
        for each in topic.partitions
        if each.replicas and each.leader != each.replicas[0]
    ]
    return [_outcome(each, "would be elected a leader") for each in due if wanted is None or each in wanted]


def _outcome(partition: TopicPartition, done: str, error: KlogError | None = None) -> Outcome:
    fields = {"topic": partition.topic, "partition": partition.partition}
    return Outcome(str(partition), fields, done, error)


def _tell(outcomes: Mapping[TopicPartition, Elected], change: ChangeOptions) -> None:
    """Say what became of each partition; exit with 1 if one failed."""
    from klog.client.errors import RefusedError
    from klog.protocol.error_codes import ErrorCode

    rows = []
    for partition, outcome in sorted(outcomes.items()):
        if outcome.error is ErrorCode.NONE:
            rows.append(_outcome(partition, "has a new leader"))
        elif outcome.error is ErrorCode.ELECTION_NOT_NEEDED:
            rows.append(_outcome(partition, "nothing to do"))
        else:
            error = RefusedError(str(partition), outcome.error, message=outcome.message)
            rows.append(_outcome(partition, "failed", error))
    if not outcomes and change.for_people:
        print_report("nothing to do: all partitions have their leaders")
    change.conclude(rows)


def _tell_as_kafka(kind: ElectionType, outcomes: Mapping[TopicPartition, Elected]) -> bool:
    """Print the lines of `kafka-leader-election`; return whether one failed."""
    from klog.commands.kafka_tools.java_errors import java_text
    from klog.protocol.error_codes import ErrorCode

    by_error: dict[ErrorCode, list[str]] = {}
    for partition, outcome in outcomes.items():
        by_error.setdefault(outcome.error, []).append(str(partition))
    if done := by_error.pop(ErrorCode.NONE, []):
        print_line(f"Successfully completed leader election ({kind.name}) for partitions {', '.join(done)}")
    if valid := by_error.pop(ErrorCode.ELECTION_NOT_NEEDED, []):
        print_line(f"Valid replica already elected for partitions {', '.join(valid)}")
    failed = [(each, outcome) for each, outcome in outcomes.items() if outcome.error in by_error]
    for partition, outcome in failed:
        said = java_text(outcome.error, outcome.message)
        print_line(f"Error completing leader election ({kind.name}) for partition: {partition}: {said}")
    if failed:
        print_error(f"{len(failed)} replica(s) could not be elected")
    return bool(failed)
