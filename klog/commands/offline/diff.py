"""`klog diff`: compares two replicas or backups of partitions, and says which one Kafka would keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from klog.commands.offline.moments import RepositoryOptions, files_of, numbers_of
from klog.commands.shared.key_options import KeyOptions
from klog.commands.shared.messages import print_error, print_line, print_note
from klog.commands.shared.option_sets import flag, optional, valued
from klog.commands.shared.output import OutputOptions
from klog.commands.shared.terminal import count_of, note_slowness, progress
from klog.formats.constants import INT64_MAX

if TYPE_CHECKING:
    from klog.formats.names import TopicPartition
    from klog.replicas.compare_partitions import PartitionDiff, PartitionPair, Selection
    from klog.replicas.replica_files import Found

_PANEL: Final = "Selection"


@dataclass(frozen=True, slots=True)
class DiffOptions:
    """What to compare, and how much to show."""

    topic: list[str] | None = valued("TOPIC", "Only this topic (repeatable).", panel=_PANEL)
    partitions: str | None = valued("NUMBER,...", "Only partitions with these numbers.", panel=_PANEL)
    offsets: str | None = valued(
        "A..B", "Only these offsets, both included: 5..9, 5.., ..9, 5.", panel=_PANEL
    )
    records: bool = flag("Show each record that differs, as it is in A and in B.")
    limit: int = optional(
        100, "Show so many ranges, and so many records, of each partition.", metavar="N", least=1
    )
    quiet: bool = flag("Show no progress.", "--quiet", "-q")

    def wants_topic(self, topic: str) -> bool:
        """Whether partitions of a topic are compared."""
        return not self.topic or topic in self.topic

    def selection(self) -> Selection:
        """What the options select. Raises UsageError."""
        from klog.commands.shared.arguments import parse_offsets
        from klog.replicas.compare_partitions import Selection

        numbers = numbers_of(self.partitions)
        first, last = parse_offsets(self.offsets)

        def wants(partition: TopicPartition) -> bool:
            return self.wants_topic(partition.topic) and (not numbers or partition.partition in numbers)

        return Selection(
            wants,
            first or 0,
            INT64_MAX if last is None else min(last + 1, INT64_MAX),
            self.limit,
            self.limit if self.records else 0,
        )


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="A directory, a segment or an object store's URI.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    options: DiffOptions,
    moments: RepositoryOptions,
    keys: KeyOptions,
    output: OutputOptions,
) -> None:
    """Compare two replicas or backups offset by offset, and say which one Kafka would keep.

    Reads log directories, partition directories, segments, gzipped copies and object stores, as klog export
    does. A may also be a backup repository, and so may B: --at names its moment, and what is selected is
    copied into the directory for temporary files. Changes nothing and takes no lock. The same records in
    other batches, as klog convert writes them, are no difference. Kafka keeps the replica with the highest
    leader epoch, and among those the longest. The exit code is 0 if all records are the same, else 1.

    Examples:

        klog diff /mnt/broker1/orders-0 /mnt/broker2/orders-0
        klog diff /var/lib/kafka s3://backup/kafka --topic orders --partitions 0,3
        klog diff a/orders-0 b/orders-0 --offsets 1000..2000 --records
        klog diff /var/lib/kafka /backup/kafka -o jsonl

        klog diff s3://backups/cluster s3://backups/cluster --at 2h --at 1h --topic orders
    """
    from klog.replicas.compare_partitions import find_pairs

    selection = options.selection()
    with files_of((a, b), moments, keys, options.wants_topic, selection.wants) as (ours, theirs):
        pairs, found = find_pairs(ours, theirs, selection)
        _tell(found)
        same = _compare(pairs, options, output)
    if not same or found.problems:
        raise typer.Exit(1)


def _tell(found: Found) -> None:
    for problem in found.problems:
        print_error(problem)
    for path, reason in sorted(set(found.skipped)):
        print_note(f"{path} is not compared: {reason}")


def _compare(pairs: Sequence[PartitionPair], options: DiffOptions, output: OutputOptions) -> bool:
    """Compare and print; returns whether all partitions are the same."""
    from klog.commands.offline.comparing.rows import row
    from klog.replicas.compare_partitions import compare_pair

    selection = options.selection()
    total = sum(pair.size_bytes for pair in pairs)
    note_slowness(total, quiet=options.quiet)
    rows, diffs = [], []
    for pair in pairs:
        _tell_torn_ends(pair)
    with progress("Comparing", total, quiet=options.quiet) as advance:
        for pair in pairs:
            found = None
            if pair.a is not None and pair.b is not None:
                found = compare_pair(pair, selection, advance)
                _tell_damage(found, options.limit)
            diffs.append(found)
            rows.append(row(pair, found))
    if output.for_people:
        _show(pairs, diffs)
    else:
        output.show(rows)
    return all(found is not None and found.is_same for found in diffs)


def _tell_torn_ends(pair: PartitionPair) -> None:
    from klog.replicas.replica_batches import is_torn_end

    for name, contents in (("A", pair.a), ("B", pair.b)):
        for lost in () if contents is None else contents.lost:
            if contents is not None and is_torn_end(contents, lost):
                place = f"{lost.file} at byte {lost.start_bytes}"
                print_note(f"{name} ends at offset {lost.first_offset}: {place}: {lost.reason}")


def _tell_damage(found: PartitionDiff, limit: int) -> None:
    for name, ranges in zip("AB", found.damage, strict=True):
        for lost in ranges[:limit]:
            place = lost.file if lost.start_bytes is None else f"{lost.file} at byte {lost.start_bytes}"
            print_error(f"{name} is damaged: {place} (from offset {lost.first_offset} on): {lost.reason}")


def _show(pairs: Sequence[PartitionPair], diffs: Sequence[PartitionDiff | None]) -> None:
    from klog.commands.offline.comparing.diff_text import show_diff, show_one_sided

    for pair, found in zip(pairs, diffs, strict=True):
        if found is None:
            show_one_sided(pair)
        else:
            details = len(pairs) == 1 or not found.is_same
            show_diff(found, details=details)
            if details and len(pairs) > 1:
                print_line("")
    if len(pairs) > 1:
        same = sum(found is not None and found.is_same for found in diffs)
        print_line(
            f"{count_of(len(pairs), 'partition')}: {same} with the same records, {len(pairs) - same} not"
        )
