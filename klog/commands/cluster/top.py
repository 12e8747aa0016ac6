"""`klog top`: one screen of a running cluster that refreshes: health, rates of topics, lag of groups."""

from __future__ import annotations

import itertools
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

import typer

from klog.commands.cluster.top_view import (
    View,
    arranged,
    column_of,
    footer,
    kind_of,
    name_of,
    press,
    selected_row,
    window,
)
from klog.commands.shared.connection import ConnectionOptions
from klog.commands.shared.keyboard import RESUMED, Keyboard, keyboard
from klog.commands.shared.messages import BOLD, RED, columns_of, print_error, print_line, print_lines
from klog.commands.shared.option_sets import flag, option_set, optional, valued
from klog.commands.shared.output import HOME_AND_CLEAR, OutputFormat, OutputOptions
from klog.commands.shared.terminal import count_of
from klog.formats.errors import KlogError, UsageError

if TYPE_CHECKING:
    from klog.admin.health import ClusterState, Problem
    from klog.admin.rates import Sample
    from klog.client.retry import Clock
    from klog.commands.cluster.top_rows import Look
    from klog.commands.shared.tables import Row

_PROBLEMS: Final = 3
_LEAST_ROWS: Final = 3
_LINES_AROUND: Final = 6  # two titles, two blank lines, two lines of what is left out
_LINES_OF_KEYS: Final = 4  # a blank line, two of the footer, and the line of the cursor


@option_set("Output")
class TopOptions:
    """What `klog top` shows, and how often."""

    interval_s: float = optional(2.0, "The seconds between two looks.", "--interval", "-i", metavar="SECONDS")
    count: int | None = valued("N", "End after so many looks. [default: at q or Ctrl-C]", least=1)
    include_internal: bool = flag("Show Kafka's own topics, too.")


def top(shown: TopOptions, connection: ConnectionOptions, output: OutputOptions) -> None:
    """Show what a cluster does now: its health, what is written to topics, and how far groups are behind.

    Rates come from the growth of offsets and files between two looks, so the first look has none. Records
    out are those that groups have committed, from one commit to a later one of the last 30 seconds. With
    -o jsonl there is one object for each look, with all topics and groups. On a terminal the busiest topics
    and the groups with the most lag are shown, as many as fit. There, keys sort and filter the table, list
    brokers or groups instead of topics, and open the one that is selected; the last line names them.

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
    look: Look | None = None
    with connection.cluster() as cluster, _keys(output) as keys:
        screen = _Screen(output, keys, clock)
        for number in itertools.count(1):
            started_s = clock.monotonic_s()
            try:
                sample = take_sample(cluster, started_s)
                samples = recent(samples, started_s)
                look = _look(samples, sample, clock.wall_ms(), shown)
                screen.show(look)
                samples.append(sample)
            except KlogError as error:
                if look is None or number == shown.count:
                    raise
                print_error(error)
            if number == shown.count or not screen.wait(look, started_s + shown.interval_s):
                return


def _keys(output: OutputOptions) -> AbstractContextManager[Keyboard | None]:
    on_screen = output.for_people and columns_of(sys.stdout) is not None
    return keyboard() if on_screen else nullcontext()


def _look(earlier: Sequence[Sample], after: Sample, now_ms: int, shown: TopOptions) -> Look:
    from klog.admin.health import problems
    from klog.admin.rates import group_rates, topic_rates
    from klog.commands.cluster.top_rows import Look

    internal = {topic.name for topic in after.state.topics if topic.is_internal}
    topics = [
        each.to_json()
        for each in topic_rates(earlier, after)
        if shown.include_internal or each.topic not in internal
    ]
    groups = [each.to_json() for each in group_rates(earlier, after)]
    return Look(now_ms, after, problems(after.state, now_ms), topics, groups)


class _Screen:
    """Shows looks, and turns to another view of the last one when keys are pressed."""

    def __init__(self, output: OutputOptions, keys: Keyboard | None, clock: Clock) -> None:
        self._output = output
        self._keys = keys
        self._clock = clock
        self._view = View()

    def show(self, look: Look) -> None:
        """Print a look."""
        if self._output.for_people:
            _show_screen(look, self._view, with_keys=self._keys is not None)
        else:
            problems = [each.to_json() for each in look.problems]
            self._output.show(
                [{"time": look.now_ms, "problems": problems, "topics": look.topics, "groups": look.groups}]
            )
        sys.stdout.flush()

    def wait(self, look: Look, until_s: float) -> bool:
        """Wait for the next look, and obey keys. Returns False at the key that ends all."""
        from klog.commands.cluster.top_rows import rows_of

        while True:
            left_s = max(0.0, until_s - self._clock.monotonic_s())
            if self._keys is None:
                self._clock.sleep_s(left_s)
                return True
            pressed = self._keys.wait(left_s)
            for key in pressed:
                if key == RESUMED:
                    continue
                self._view = press(self._view, key, arranged(self._view, rows_of(self._view, look)))
            if self._view.is_over:
                return False
            if pressed:
                self.show(look)
            elif left_s <= 0 or self._clock.monotonic_s() >= until_s:
                return True


def _show_screen(look: Look, view: View, *, with_keys: bool) -> None:
    from klog.admin.health import by_cause
    from klog.commands.cluster.top_rows import groups_beside, rows_of

    entries, groups = arranged(view, rows_of(view, look)), groups_beside(view, look)
    rows: int | None = None
    if columns_of(sys.stdout) is not None:
        sys.stdout.write(HOME_AND_CLEAR)
        causes = len(by_cause(look.problems))
        used = 1 + min(causes, _PROBLEMS) + (causes > _PROBLEMS) + _LINES_AROUND
        used += _LINES_OF_KEYS if with_keys else 0
        rows = max(2 * _LEAST_ROWS, shutil.get_terminal_size().lines - used)
    _show_health(look.sample.state, look.problems, look.now_ms)
    group_rows = len(groups) if rows is None else min(len(groups), max(_LEAST_ROWS, rows // 3))
    most = len(entries) if rows is None else rows - group_rows
    at = selected_row(view, entries)
    shown = [_readable(row) for row in window(entries, at, most)]
    if with_keys:
        shown = [_marked(row, is_selected=name_of(row) == name_of(entries[at])) for row in shown]
    _show_rows(kind_of(view), shown, len(entries))
    _show_rows("group", [_readable(row) for row in groups[:group_rows]], len(groups))
    print_lines(("", *footer(view)) if with_keys else ())


def _marked(row: Row, *, is_selected: bool) -> Row:
    first = next(iter(row))
    return {**row, first: f"{'>' if is_selected else ' '} {row[first]}"}


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


def _show_rows(title: str, rows: Sequence[Row], count: int) -> None:
    from klog.commands.shared.tables import show_table

    if not rows:
        return
    typer.echo()
    show_table(rows)
    if count > len(rows):
        print_line(f"and {count_of(count - len(rows), title)} more")


def _readable(row: Row) -> Row:
    """The row with whole rates and sizes in units."""
    from klog.commands.shared.cells import human_bytes

    shown: dict[str, object] = {}
    for name, value in row.items():
        number = value if isinstance(value, int | float) else None
        text: object = value
        if number is not None:
            in_bytes = name in ("size", "bytesInPerSec")
            text = human_bytes(number) if in_bytes else round(number)
        shown[column_of(name)] = text
    return shown
