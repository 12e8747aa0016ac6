"""What `klog restore` prints: a row for each partition, and what came back in words."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from klog.commands.shared.cells import human_bytes, zoned_time
from klog.commands.shared.interrupts import Interrupts
from klog.commands.shared.messages import print_line, print_note
from klog.commands.shared.output import OutputOptions
from klog.commands.shared.tables import Row
from klog.commands.shared.terminal import count_of, progress
from klog.formats.names import CONSUMER_OFFSETS

if TYPE_CHECKING:
    from klog.backup.model import Manifest
    from klog.backup.repository import Repository
    from klog.backup.restoring.completeness import Compacted
    from klog.backup.restoring.plan import PlannedPartition, RestorePlan
    from klog.backup.restoring.request import RestoreRequest, Selected


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, what it was made of, and how long that took."""

    repository: Repository
    plan: RestorePlan
    manifest: Manifest
    read_s: float


@contextmanager
def working(title: str, total_bytes: int, *, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """A progress bar that several threads advance. At Ctrl-C or SIGTERM each of them ends when it next
    advances it: partitions that were begun are not finished first.
    """
    lock = threading.Lock()
    with Interrupts() as interrupts, progress(title, total_bytes, quiet=quiet) as advance:

        def advance_alone(size_bytes: int) -> None:
            interrupts.check()
            with lock:
                advance(size_bytes)

        yield advance_alone


@contextmanager
def saying_what_stays(directory: str, selected: Selected, request: RestoreRequest) -> Iterator[None]:
    """Say what a signal that ends the block leaves in the target, and what to do."""
    from klog.backup.restoring.target import is_incomplete

    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        if is_incomplete(directory):
            print_note(
                f"interrupted: {directory} is not complete, and no broker starts on it; the same command"
                f" with {moment_option(selected, request)} goes on with the partitions that are not done"
            )
        raise


def moment_option(selected: Selected, request: RestoreRequest) -> str:
    """The option that asks for the same moment at any time: `2h` will be another, and so will the newest."""
    if request.at_ms is not None:
        return f"--at {request.at_ms}"
    return f"--backup {selected.manifest.id}"


def row_of(planned: PlannedPartition, *, text: bool) -> Row:
    """What comes back of a partition."""
    cut = planned.cut
    row: dict[str, object] = {
        "topic": planned.target.topic,
        "partition": planned.target.partition,
        "logStartOffset": planned.view.log_start_offset,
        "endOffset": cut.end_offset,
        "basis": str(cut.basis),
        "movedBy": cut.end_offset - cut.rule_end,
        "completed": sum(not each.marker.aborted for each in cut.added),
        "aborted": sum(each.marker.aborted for each in cut.added),
        "size": human_bytes(planned.size_bytes) if text else planned.size_bytes,
    }
    if planned.target.topic != planned.view.partition.topic:
        row["topic"] = f"{planned.target.topic} ({planned.view.partition.topic})" if text else row["topic"]
    if not text:
        row["originalTopic"] = planned.view.partition.topic
        row["damage"] = [each.what for each in planned.view.damage if each.first_offset < cut.end_offset]
    return row


def say_what_would(plan: RestorePlan, read_s: float, output: OutputOptions, rows: Sequence[Row]) -> None:
    """Print what a restore would do, after the table; `read_s` is how long the plan took."""
    if not output.for_people:
        output.show(rows)
        return
    print_line(
        f"{summary(plan)}, {human_bytes(plan.size_bytes)}, would come back as of"
        f" {zoned_time(plan.moment_ms)}; reading it took {read_s:.1f} s, and a restore reads it again"
    )
    note_damage(plan)


def note_moment(selected: Selected) -> None:
    """Say so if the moment is not between two backups, or not for all partitions."""
    if selected.is_before_all:
        begin = zoned_time(selected.manifest.begin_ms)
        print_note(
            f"the moment is before the first backup, of {begin}: what was removed by then is not there"
        )
    elif selected.is_after_all:
        last = zoned_time(selected.last_ms)
        print_note(f"the moment is after the newest backup, of {last}: what came later is not there")
    elif selected.behind:
        count, total = len(selected.behind), len(selected.views)
        first = selected.behind[0]
        print_note(
            f"no run has looked at {count} of {count_of(total, 'partition')} since the moment, at"
            f" {first.partition} since {zoned_time(first.read_ms)}: what came later is not there"
        )


def note_damage(plan: RestorePlan) -> None:
    """Say what the backup does not have because its source was damaged."""
    for each in plan.partitions:
        for damage in each.view.damage:
            if damage.first_offset < each.cut.end_offset:
                print_note(
                    f"{each.target}: the records from offset {damage.first_offset} on were damaged at their"
                    f" source, and are not in the backup"
                )


def note_compacted(found: Iterable[Compacted]) -> None:
    """Say for which partitions the last record of each key at the moment is not known."""
    for each in found:
        what = "commits of groups" if each.partition.topic == CONSUMER_OFFSETS else "the last records of keys"
        print_note(
            f"{each.partition}: {count_of(each.records, 'record')} with offsets from {each.first_offset} to"
            f" {each.end_offset - 1} were compacted away before a run read them, perhaps because of records"
            f" after the moment: {what} may be missing, or older than they were"
        )


def summary(plan: RestorePlan) -> str:
    """How many topics and partitions come back."""
    topics = len({each.target.topic for each in plan.partitions})
    return f"{count_of(topics, 'topic')} with {count_of(len(plan.partitions), 'partition')}"
