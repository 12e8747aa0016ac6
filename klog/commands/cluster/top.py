"""`klog top`: one screen of a running cluster that refreshes: health, rates of topics, lag of groups."""

from __future__ import annotations

import itertools
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import typer

from klog.commands.shared.connection import ConnectionOptions
from klog.commands.shared.messages import BOLD, RED, columns_of, print_error, print_line
from klog.commands.shared.option_sets import flag, optional
from klog.commands.shared.output import HOME_AND_CLEAR, OutputFormat, OutputOptions
from klog.commands.shared.terminal import count_of
from klog.formats.errors import KlogError, UsageError

if TYPE_CHECKING:
    from klog.admin.health import ClusterState, Problem
    from klog.admin.rates import Sample

_PROBLEMS: Final = 3
_LEAST_ROWS: Final = 3
_LINES_AROUND: Final = 6  # two titles, two blank lines, two lines of what is left out


@dataclass(frozen=True, slots=True)
class TopOptions:
    """What `klog top` shows, and how often."""

    interval_s: float = optional(
        2.0, "The seconds between two looks.", "--interval", "-i", panel="Output", metavar="SECONDS"
    )
    count: int | None = optional(
        None, "End after so many looks. [default: at Ctrl-C]", panel="Output", metavar="N", least=1
    )
    include_internal: bool = flag("Show Kafka's own topics, too.", panel="Output")


def top(shown: TopOptions, connection: ConnectionOptions, output: OutputOptions) -> None:
    """Show what a cluster does now: its health, what is written to topics, and how far groups are behind.

    Rates come from the growth of offsets and files between two looks, so the first look has none. Records
    out are those that groups have committed, from one commit to a later one of the last 30 seconds. With
    -o jsonl there is one object for each look, with all topics and groups. On a terminal the busiest topics
    and the groups with the most lag are shown, as many as fit.

    Examples:

    klog top

    klog top --interval 10 --include-internal

    klog top --count 2 -o jsonl | jq '.groups[] | select(.lag > 1000)'
    """
    from klog.admin import connect
    from klog.admin.rates import recent, take_sample

    if shown.interval_s <= 0:
        raise UsageError(f"--interval {shown.interval_s:g} is no time", cure="seconds above 0")
    if output.format in (OutputFormat.CSV, OutputFormat.JSON):
        raise UsageError(f"klog top does not print {output.format.value}", cure="-o jsonl, or a table")
    clock = connect.SYSTEM_CLOCK
    samples: list[Sample] = []
    with connection.cluster() as cluster:
        for number in itertools.count(1):
            started_s = clock.monotonic_s()
            try:
                sample = take_sample(cluster, started_s)
                samples = recent(samples, started_s)
                _show(samples, sample, clock.wall_ms(), shown, output)
                samples.append(sample)
            except KlogError as error:
                if not samples or number == shown.count:
                    raise
                print_error(error)
            if number == shown.count:
                return
            clock.sleep_s(max(0.0, shown.interval_s - (clock.monotonic_s() - started_s)))


def _show(
    earlier: Sequence[Sample], after: Sample, now_ms: int, shown: TopOptions, output: OutputOptions
) -> None:
    from klog.admin.health import problems
    from klog.admin.rates import group_rates, topic_rates

    found = problems(after.state, now_ms)
    internal = {topic.name for topic in after.state.topics if topic.is_internal}
    topics = [
        each.to_json()
        for each in topic_rates(earlier, after)
        if shown.include_internal or each.topic not in internal
    ]
    groups = [each.to_json() for each in group_rates(earlier, after)]
    if not output.for_people:
        problem_rows = [each.to_json() for each in found]
        output.show([{"time": now_ms, "problems": problem_rows, "topics": topics, "groups": groups}])
    else:
        _show_screen(after.state, found, topics, groups, now_ms)
    sys.stdout.flush()


def _show_screen(
    state: ClusterState,
    found: Sequence[Problem],
    topics: Sequence[dict[str, object]],
    groups: Sequence[dict[str, object]],
    now_ms: int,
) -> None:
    from klog.admin.health import by_cause

    rows: int | None = None
    if columns_of(sys.stdout) is not None:
        sys.stdout.write(HOME_AND_CLEAR)
        causes = len(by_cause(found))
        used = 1 + min(causes, _PROBLEMS) + (causes > _PROBLEMS) + _LINES_AROUND
        rows = max(2 * _LEAST_ROWS, shutil.get_terminal_size().lines - used)
    _show_health(state, found, now_ms)
    group_rows = len(groups) if rows is None else min(len(groups), max(_LEAST_ROWS, rows // 3))
    topic_rows = len(topics) if rows is None else rows - group_rows
    for title, entries, most in (("topic", topics, topic_rows), ("group", groups, group_rows)):
        if entries:
            typer.echo()
            _show_rows(title, entries, most)


def _show_health(state: ClusterState, found: Sequence[Problem], now_ms: int) -> None:
    from klog.admin.health import by_cause, is_healthy

    word = "healthy" if is_healthy(found) else "unhealthy"
    at = time.strftime("%H:%M:%S", time.localtime(now_ms / 1000))
    partitions = sum(len(topic.partitions) for topic in state.topics)
    print_line(
        f"{word}  {at}  {count_of(len(state.nodes.brokers), 'broker')}  "
        f"{count_of(len(state.topics), 'topic')}  {count_of(partitions, 'partition')}",
        word=word,
        style=BOLD if word == "healthy" else RED,
    )
    causes = by_cause(found)
    for each, *others in causes[:_PROBLEMS]:
        place = each.partition if each.partition is not None else ""
        place = f"broker {each.broker_id}" if each.partition is None and each.broker_id is not None else place
        more = f" and {len(others)} more" if others else ""
        print_line(f"  {each.check.value}  {place}{more}  {each.what}".rstrip())
    if len(causes) > _PROBLEMS:
        print_line(f"  and {len(causes) - _PROBLEMS} more (klog cluster health)")


def _show_rows(title: str, entries: Sequence[dict[str, object]], most: int) -> None:
    from klog.commands.shared.tables import show_table

    show_table([_readable(each) for each in entries[:most]])
    if len(entries) > most:
        print_line(f"and {count_of(len(entries) - most, title)} more")


def _readable(row: dict[str, object]) -> dict[str, object]:
    """The row with whole rates and sizes in units."""
    from klog.commands.shared.cells import human_bytes

    shown: dict[str, object] = {}
    for name, value in row.items():
        number = value if isinstance(value, int | float) else None
        text: object = value
        if number is not None:
            in_bytes = name in ("size", "bytesInPerSec")
            text = human_bytes(number) if in_bytes else round(number)
        shown[name.replace("PerSec", "/s")] = text
    return shown
