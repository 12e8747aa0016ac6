"""`klog delete-records`: deletes the records of partitions before an offset.

`--offset-json-file` takes the files of `kafka-delete-records`, and then the output is as by that tool.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from klog.commands.shared.changing import ChangeOptions, Outcome
from klog.commands.shared.connection import ConnectionOptions
from klog.commands.shared.messages import print_line, print_note
from klog.commands.shared.option_sets import argument, flag, valued
from klog.commands.shared.properties import text_of
from klog.commands.shared.terminal import confirmed, count_of
from klog.commands.shared.usage import missing
from klog.formats.errors import KlogError, UsageError

if TYPE_CHECKING:
    from klog.admin.record_deletion import Deletion
    from klog.formats.names import TopicPartition


def delete_records(
    connection: ConnectionOptions,
    change: ChangeOptions,
    targets: list[str] | None = argument(
        "TOPIC:PARTITION:OFFSET...", "Delete what is before this offset; -1 deletes all records."
    ),
    offset_json_file: Path | None = valued("FILE", "A file of kafka-delete-records."),
    yes: bool = flag("Delete without asking.", "--yes", "-y"),
) -> None:
    """Delete the records of partitions before an offset, on all replicas. They cannot be brought back.

    It shows first what goes, then asks on a terminal; elsewhere it needs --yes. With --offset-json-file and
    without a terminal it does not ask and prints as kafka-delete-records does.

    Disks have the space back when whole segments have gone, file.delete.delay.ms (1 minute) later.

    Examples:

        klog delete-records orders:0:1000 --dry-run
        klog delete-records orders:0:-1 orders:1:-1 --yes
        klog delete-records --offset-json-file offsets.json
    """
    from klog.admin.record_deletion import plan
    from klog.admin.requests.record_deletion import delete_records as delete

    before = _before(targets, offset_json_file)
    in_a_script = not (sys.stdin.isatty() and sys.stderr.isatty())
    as_kafka = (
        offset_json_file is not None and change.for_people and in_a_script and not (yes or change.dry_run)
    )
    with connection.cluster() as cluster:
        planned = plan(cluster, before)
        if not as_kafka and not _agreed(planned, change, yes=yes):
            raise typer.Exit(0 if change.dry_run else 1)
        if as_kafka:
            print_line("Executing records delete operation")
        outcomes = delete(cluster, before)
    if as_kafka:
        _tell_as_kafka(outcomes)
    else:
        change.conclude([_outcome(*each) for each in sorted(outcomes.items())])


def _before(targets: list[str] | None, file: Path | None) -> Mapping[TopicPartition, int]:
    """The offset of each partition that is given."""
    from klog.admin.record_deletion import parse_json, parse_targets

    if targets and file is not None:
        raise UsageError("TOPIC:PARTITION:OFFSET and --offset-json-file exclude each other")
    if file is None:
        if not targets:
            raise missing("TOPIC:PARTITION:OFFSET (or --offset-json-file FILE)")
        return parse_targets(targets)
    return parse_json(text_of(file), str(file))


def _agreed(planned: list[Deletion], change: ChangeOptions, *, yes: bool) -> bool:
    """Show what goes and ask. Raises ClientError if a partition cannot be asked."""
    if change.for_people or change.dry_run:
        change.show([each.to_json() for each in planned])
        sys.stdout.flush()
    for each in planned:
        if each.error is not None:
            raise each.error
    if change.dry_run:
        print_note("nothing was changed (--dry-run)")
        return False
    records = sum(each.records or 0 for each in planned)
    partitions = count_of(len(planned), "partition")
    return confirmed(f"Delete {count_of(records, 'offset')} of {partitions} for ever?", yes=yes)


def _outcome(partition: TopicPartition, found: int | KlogError) -> Outcome:
    """What became of a partition: where it begins now, or why it was refused."""
    error, start = (found, None) if isinstance(found, KlogError) else (None, found)
    fields = {"topic": partition.topic, "partition": partition.partition, "logStartOffset": start}
    return Outcome(str(partition), fields, f"begins at offset {start}", error)


def _tell_as_kafka(outcomes: Mapping[TopicPartition, int | KlogError]) -> None:
    from klog.client.errors import RefusedError
    from klog.commands.kafka_tools.java_errors import java_text

    print_line("Records delete operation completed:")
    for partition, outcome in outcomes.items():
        if isinstance(outcome, KlogError):
            said = java_text(outcome.code) if isinstance(outcome, RefusedError) else str(outcome)
            print_line(f"partition: {partition}\terror: {said}")
        else:
            print_line(f"partition: {partition}\tlow_watermark: {outcome}")
