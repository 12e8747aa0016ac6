"""`klog consume`: prints records of topics of any Kafka, without a consumer group.

Options become a `ReadPlan` and a rendering; `klog.admin.consuming` does the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import typer

from klog.commands._messages import print_note
from klog.commands.dump.selection_options import SelectionOptions
from klog.commands.option_groups import expand_options
from klog.commands.wire import consume_options as options
from klog.commands.wire.connection import ConnectionOptions
from klog.formats.errors import UsageError

if TYPE_CHECKING:
    from klog.admin.consuming import ReadPlan
    from klog.client.cluster import Cluster
    from klog.client.fetcher import Jumped
    from klog.commands.dump.output_buffer import OutputBuffer
    from klog.commands.dump.plan import Selection
    from klog.commands.wire.rendering import Rendering
    from klog.formats.names import TopicPartition


@expand_options
def consume(
    topics: options.Topics,
    *,
    reading: options.ReadingOptions,
    select: SelectionOptions,
    printing: options.PrintOptions,
    connection: ConnectionOptions,
) -> None:
    """Print records of topics of any Kafka, without a consumer group.

    Examples:

        klog consume orders

        klog consume orders --last 10 --follow

        klog consume orders -f '%p:%o %k %s'

        klog consume orders --since 2h --grep 'error|timeout' -f jsonl | jq .value

        klog consume orders --partition 0 --offsets 100..199
    """
    from klog.admin import connect
    from klog.admin.consuming import ReadPlan
    from klog.client.fetcher import FetchSettings
    from klog.client.offsets import Isolation
    from klog.commands._terminal import stdout_bytes
    from klog.commands.dump.output_buffer import OutputBuffer

    settings = connection.settings()
    selection = select.selection(datetime.now(UTC))
    fetch = FetchSettings(Isolation[reading.isolation_level.name])
    plan = ReadPlan(selection, reading.follow, reading.last, fetch)
    buffer = OutputBuffer(stdout_bytes())
    rendering = _rendering(buffer, printing)
    with connect.cluster(settings) as cluster:
        code = _copy(
            cluster, _partitions(cluster, topics, reading.partition or ()), plan, selection, rendering, buffer
        )
    raise typer.Exit(code)


def _rendering(buffer: OutputBuffer, printing: options.PrintOptions) -> Rendering:
    from klog.commands.wire.rendering import FormattedLines, JsonLines, ValueLines
    from klog.commands.wire.template import LineStyle, Template, unescape

    form, mode, key_delimiter = printing.format_, printing.bytes_, printing.key_delimiter
    style = LineStyle(mode, unescape(printing.null))
    end = unescape(printing.delimiter)
    if form == "jsonl":
        return JsonLines(buffer, mode)
    if form == "value":
        return ValueLines(buffer, style, end, None if key_delimiter is None else unescape(key_delimiter))
    if "%" not in form:
        raise UsageError(f"--format {form!r} is unknown", cure="value, jsonl, or tokens like '%k %s'")
    # Users of kcat end their formats with \n, others do not: both get one record per line.
    return FormattedLines(buffer, Template(form, style), b"" if form.endswith(r"\n") else end)


def _partitions(cluster: Cluster, topics: Sequence[str], wanted: Sequence[int]) -> list[TopicPartition]:
    from klog.client.errors import UnknownTopicError
    from klog.formats.names import TopicPartition

    cluster.refresh(dict.fromkeys(topics))
    found = []
    for topic in dict.fromkeys(topics):
        known = cluster.partitions(topic)
        for number in wanted:
            if number not in known:
                raise UnknownTopicError(f"topic {topic} has {len(known)} partitions, there is no {number}")
        found += [TopicPartition(topic, number) for number in sorted(wanted or known)]
    return found


def _copy(
    cluster: Cluster,
    partitions: Sequence[TopicPartition],
    plan: ReadPlan,
    selection: Selection,
    rendering: Rendering,
    buffer: OutputBuffer,
) -> int:
    """Print the selected records; returns the exit code."""
    from klog.admin.consuming import read
    from klog.commands.dump.problems import Problems
    from klog.commands.dump.rows import keep_matching

    problems = Problems()
    left = selection.limit
    try:
        for run in read(cluster, partitions, plan, problems, _report_jump) if left != 0 else ():
            if selection.by_content:
                keep_matching(selection, run.payload, run.records)
            count = len(run.records) if left is None else min(left, len(run.records))
            rendering.write(run, count)
            if plan.follow:
                buffer.flush()
            else:
                buffer.flush_if_full()
            left = None if left is None else left - count
            if left == 0:
                break
    finally:
        buffer.flush()
    return problems.exit_code


def _report_jump(jump: Jumped) -> None:
    topic, partition = jump.partition
    print_note(f"{topic}-{partition} has no offset {jump.from_offset} any more, going on at {jump.to_offset}")
