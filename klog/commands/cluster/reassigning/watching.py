"""`klog reassign watch`: how far each copy is, until nothing moves any more."""

from __future__ import annotations

import sys
import time
from enum import StrEnum

import typer

from klog.commands.cluster.reassigning.app import app
from klog.commands.cluster.reassigning.options import AssignmentFile
from klog.commands.shared.connection import ConnectionOptions
from klog.commands.shared.messages import columns_of, print_note, print_report
from klog.commands.shared.option_sets import optional

_HOME_AND_CLEAR = "\x1b[H\x1b[2J\x1b[3J"


class WatchFormat(StrEnum):
    """How copies are printed."""

    TABLE = "table"
    JSONL = "jsonl"


@app.command("watch")
def watch_reassignments(
    file: AssignmentFile,
    connection: ConnectionOptions,
    interval_s: float = optional(2.0, "How often to look.", "--interval", metavar="SECONDS", least=0.1),
    output: WatchFormat | None = optional(
        None,
        "table: for people. jsonl: one object per copy. [default: table on a terminal, else jsonl]",
        "--output",
        "-o",
    ),
) -> None:
    """Show how far each copy is, its rate, the time left and the lag, until nothing moves any more.

    With FILE it shows and waits for the partitions in it only. Copies between log directories are shown too.

    Examples:

        klog reassign watch
        klog reassign watch plan.json --interval 10
        klog reassign watch -o jsonl | jq .secondsLeft
    """
    from klog.admin.reassign.progress import Meter
    from klog.commands.cluster.reassigning.progress_view import json_row, summary, table_rows
    from klog.commands.shared.tables import show_json, show_table

    on_screen = columns_of(sys.stdout) is not None
    as_json = output is WatchFormat.JSONL or (output is None and not on_screen)
    targets = None if file.name is None else [each.partition for each in file.read(as_kafka=False)]
    if targets == []:
        return
    down: frozenset[int] = frozenset()
    with connection.cluster() as cluster:
        for progress in Meter(cluster, targets).measurements():
            if on_screen and not as_json:
                sys.stdout.write(_HOME_AND_CLEAR)
            for broker in sorted(frozenset(progress.failures) - (frozenset() if on_screen else down)):
                print_note(f"broker {broker} does not answer: {progress.failures[broker]}")
            down = frozenset(progress.failures)
            if progress.is_done:
                print_report("nothing is moving")
                return
            if as_json:
                show_json([json_row(copy, time.time_ns() // 1_000_000) for copy in progress.copies])
            elif progress.copies:
                typer.echo(summary(progress.copies))
                show_table(table_rows(progress.copies), aside="logDir")
            else:
                typer.echo("replicas are being removed")
            sys.stdout.flush()
            cluster.clock.sleep_s(interval_s)
