"""`klog consume`: prints records of topics of any Kafka, alone or as a member of a consumer group.

Options become a `ReadPlan` and a rendering; `klog.admin.consuming` and `klog.admin.group_consuming` do
the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import typer

from klog.commands.cluster.consuming import options
from klog.commands.cluster.consuming.membership import GroupOptions, require_shared, reset_of
from klog.commands.kafka_tools.console_consumer import ConsoleOptions
from klog.commands.shared.connection import ConnectionOptions
from klog.commands.shared.decoding.options import DecodingOptions
from klog.commands.shared.messages import print_note, print_report
from klog.commands.shared.records.selection_options import SelectionOptions
from klog.commands.shared.terminal import count_of
from klog.formats.errors import UsageError

if TYPE_CHECKING:
    from klog.admin.consuming import ReadPlan
    from klog.client.cluster import Cluster
    from klog.client.fetcher import Jumped
    from klog.client.offsets import Isolation
    from klog.commands.cluster.consuming.record_copying import Copying
    from klog.commands.shared.records.problems import Problems
    from klog.formats.names import TopicPartition


def consume(
    topics: options.Topics = None,
    *,
    reading: options.ReadingOptions,
    select: SelectionOptions,
    printing: options.PrintOptions,
    console: ConsoleOptions,
    group: GroupOptions,
    decoding: DecodingOptions,
    connection: ConnectionOptions,
) -> None:
    """Print records of topics of any Kafka, alone or as a member of a consumer group.

    Examples:

        klog consume orders
        klog consume orders --last 10 --follow
        klog consume orders -f '%p:%o %k %s'
        klog consume orders --since 2h --grep 'error|timeout' -f jsonl | jq .value
        klog consume orders --partition 0 --offsets 100..199
        klog consume orders --group billing --follow
        klog consume orders --isolation read_committed
        klog consume --topic orders --from-beginning --timeout-ms 1000 --property print.key=true
        klog consume -t orders -o -10 -e
    """
    from klog.admin import connect
    from klog.admin.consuming import read
    from klog.commands.cluster.consuming.choose_rendering import decoded_rendering
    from klog.commands.cluster.consuming.record_copying import Copying
    from klog.commands.shared.decoding.failures import Failures
    from klog.commands.shared.records.problems import Problems
    from klog.commands.shared.terminal import stdout_bytes
    from klog.commands.shared.visible_output import visible_output

    named = console.topics(topics or ())
    properties = console.consumer_properties()
    idle_timeout_ms = None
    if console.as_kafka:  # whose --timeout-ms limits the wait for records, not for answers
        idle_timeout_ms, connection = connection.timeout_ms, replace(connection, timeout_ms=None)
    settings = connection.settings(properties)
    plan, limit = _plan(reading, select, console, properties, idle_timeout_ms)
    group_id = group.group_id(properties)
    if group_id is None and "stored" in (console.offset or ()):
        raise UsageError("only a group has stored offsets", cure="--group GROUP")
    if group_id is not None:
        require_shared(reading, select)
    problems, failures = Problems(), Failures()
    decoder = decoding.decoder(console.formatter_properties().get("schema.registry.url"))
    out = visible_output(stdout_bytes())
    rendering, buffer = decoded_rendering(out, printing, console, problems, decoder, failures)
    with connect.cluster(settings) as cluster:
        copying = Copying(rendering, buffer, limit, plan)
        try:
            if group_id is not None:
                _copy_in_group(cluster, copying, plan, group, group_id, console, named, properties, problems)
            else:
                names = named or _included(cluster, console.include or "")
                partitions = _partitions(cluster, names, reading.partition or ())
                copying.run(read(cluster, partitions, plan, problems, _report_jump))
        finally:
            if console.as_kafka:
                print_report(f"Processed a total of {copying.count} messages")
    if (error := failures.error()) is not None:
        problems(error)
    raise typer.Exit(problems.exit_code)


def _copy_in_group(
    cluster: Cluster,
    copying: Copying,
    plan: ReadPlan,
    group: GroupOptions,
    group_id: str,
    console: ConsoleOptions,
    named: Sequence[str],
    properties: Mapping[str, str],
    problems: Problems,
) -> None:
    from klog.admin.group_consuming import GroupPlan
    from klog.commands.cluster.consuming.record_copying import copy_in_group, note_lost

    start = console.start(properties.get("auto.offset.reset"), datetime.now(UTC))
    wanted = GroupPlan(
        group_id,
        reset_of(start, properties, console),
        group.commit_interval_ms(properties),
        copying.flush,
        lambda: note_lost(group_id),
    )
    cluster.refresh(named)
    topics = (lambda: named) if named else (lambda: _included(cluster, console.include or ""))
    shared = replace(plan, last=None, start_ms=None, stop_ms=None)
    member = group.member(group_id, properties)
    copy_in_group(cluster, topics, copying, shared, wanted, member, problems, _report_jump)


def _plan(
    reading: options.ReadingOptions,
    select: SelectionOptions,
    console: ConsoleOptions,
    properties: Mapping[str, str],
    idle_timeout_ms: int | None,
) -> tuple[ReadPlan, int | None]:
    """What to read, and how many records at most."""
    from klog.admin.consuming import ReadPlan
    from klog.client.fetcher import FetchSettings

    now = datetime.now(UTC)
    selection = select.selection(now)
    start = console.start(properties.get("auto.offset.reset"), now)
    if start.offset is not None:
        if select.offsets is not None:
            raise UsageError("--offset and --offsets both say what to read")
        selection = replace(selection, first_offset=start.offset)
    last = reading.last if start.last is None else start.last
    is_selected = start.is_given or any(
        each is not None for each in (last, selection.first_offset, selection.last_offset, selection.since_ms)
    )
    if console.as_kafka and not is_selected:
        last = 0
    plan = ReadPlan(
        selection,
        follow=(reading.follow or console.as_kafka or console.as_kcat) and not console.exit_at_end,
        last=last,
        fetch=FetchSettings(_isolation(reading, properties)),
        start_ms=start.start_ms,
        stop_ms=start.stop_ms,
        idle_timeout_ms=idle_timeout_ms,
    )
    limits = [each for each in (selection.limit, console.max_messages) if each is not None and each >= 0]
    return plan, min(limits, default=None)


def _isolation(reading: options.ReadingOptions, properties: Mapping[str, str]) -> Isolation:
    from klog.client.offsets import Isolation

    level = properties.get("isolation.level", "")
    if reading.isolation_level is not None or not level:
        level = reading.isolation_level or options.IsolationLevel.READ_UNCOMMITTED
    if level not in list(options.IsolationLevel):
        raise UsageError(f"isolation.level={level} is unknown", cure=" or ".join(options.IsolationLevel))
    return Isolation[level.upper()]


def _included(cluster: Cluster, pattern: str) -> list[str]:
    """The topics whose names match, internal ones left out, as Kafka's consumer subscribes."""
    from klog.admin.topic_patterns import compiled, matching
    from klog.admin.topics import find_topics
    from klog.client.errors import UnknownTopicError

    topics = [topic.name for topic in find_topics(cluster) if not topic.is_internal]
    found = matching(compiled(pattern), topics)
    if not found:
        raise UnknownTopicError(
            f"no topic matches --include {pattern!r}", cure="`klog topics list` shows what there is"
        )
    return found


def _partitions(cluster: Cluster, topics: Sequence[str], wanted: Sequence[int]) -> list[TopicPartition]:
    from klog.client.errors import UnknownTopicError
    from klog.formats.names import TopicPartition

    cluster.refresh(dict.fromkeys(topics))
    found = []
    for topic in dict.fromkeys(topics):
        known = cluster.partitions(topic)
        for number in wanted:
            if number not in known:
                raise UnknownTopicError(
                    f"topic {topic} has {count_of(len(known), 'partition')}, there is no {number}"
                )
        found += [TopicPartition(topic, number) for number in sorted(wanted or known)]
    return found


def _report_jump(jump: Jumped) -> None:
    topic, partition = jump.partition
    print_note(f"{topic}-{partition} has no offset {jump.from_offset} any more, going on at {jump.to_offset}")
