"""Rows that `klog backup` shows: backups, topics, partitions, results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from klog.backup.catalogue import Catalogue
from klog.backup.model import Manifest, PartitionRef, Problem
from klog.backup.repository import Repository
from klog.backup.run import Result
from klog.commands.shared.cells import human_bytes, zoned_time
from klog.commands.shared.tables import Row
from klog.commands.shared.terminal import count_of
from klog.formats.errors import FormatError, KlogError, MissingInputError
from klog.formats.names import TopicPartition

OnDamage = Callable[[KlogError], object]


def result_row(result: Result) -> Row:
    """What a run has done."""
    manifest = result.manifest
    return {
        "id": manifest.id,
        "partitions": result.partitions,
        "changedPartitions": result.changed,
        "removedPartitions": result.removed,
        "damagedPartitions": [str(partition) for partition in result.damaged],
        "healedObjects": result.healed,
        "readBytes": manifest.read_bytes,
        "storedBytes": manifest.stored_bytes,
        "durationMs": manifest.end_ms - manifest.begin_ms,
        "problems": [
            {"partition": None if each.partition is None else str(each.partition), "what": each.what}
            for each in manifest.problems
        ],
    }


def problem_lines(problems: Iterable[Problem]) -> Iterator[str]:
    """What is not in a backup: one line for all partitions of a topic of which the same is to be said."""
    alike: dict[tuple[str | None, str], list[Problem]] = {}
    for each in problems:
        topic = None if each.partition is None else each.partition.topic
        alike.setdefault((topic, each.what.replace(str(each.partition), "")), []).append(each)
    for first, *others in alike.values():
        place = "" if first.partition is None else f"{first.partition}: "
        more = f"; so it is with {count_of(len(others), 'other partition')} of the topic" if others else ""
        yield f"{place}{first.what}{more}"


def result_text(result: Result) -> str:
    """The same for people."""
    manifest = result.manifest
    seconds = (manifest.end_ms - manifest.begin_ms) / 1000
    removed = f", {result.removed} removed" if result.removed else ""
    healed = f", {count_of(result.healed, 'damaged object')} stored anew" if result.healed else ""
    return (
        f"backup {manifest.id}: {result.partitions} partitions, {result.changed} changed{removed}, "
        f"{human_bytes(manifest.read_bytes)} read, {human_bytes(manifest.stored_bytes)} stored{healed}, "
        f"{seconds:.1f} s"
    )


def backup_rows(catalogue: Catalogue, *, text: bool) -> Iterator[Row]:
    """One row for each backup."""
    for backup in catalogue.backups:
        yield {
            "id": backup.id,
            "begin": _time(backup.begin_ms, text=text),
            "durationMs": backup.end_ms - backup.begin_ms,
            "topics": backup.topics,
            "partitions": backup.partitions,
            "size": human_bytes(backup.size_bytes) if text else backup.size_bytes,
            "stored": human_bytes(backup.stored_bytes) if text else backup.stored_bytes,
            "problems": backup.problems,
        }


def _time(time_ms: int, *, text: bool) -> object:
    return zoned_time(time_ms) if text else time_ms


def topic_rows(
    repository: Repository, catalogue: Catalogue, on_damage: OnDamage, *, text: bool
) -> Iterator[Row]:
    """From when to when each topic can be restored; partitions, sizes and the end are those of the last
    backup with it.

    `on_damage` receives what is wrong with the manifests of the first and the last backup with a topic.
    """
    chosen = sorted({each for span in catalogue.topics.values() for each in (span.first, span.last)})
    read = dict(zip(chosen, repository.side_by_side(partial(_topics_of, repository), chosen), strict=True))
    for found in read.values():
        if isinstance(found, KlogError):
            on_damage(found)
    for topic, span in sorted(catalogue.topics.items()):
        first, last = (_of_topic(read[each], topic) for each in (span.first, span.last))
        size_bytes = None if last is None else last.size_bytes
        # Of two runs at once the one with the later id may have begun first.
        moments_ms = [each.moment_ms for each in (first, last) if each is not None]
        yield {
            "topic": topic,
            "partitions": None if last is None else last.partitions,
            "from": None if first is None else _time(min(moments_ms), text=text),
            "to": None if last is None else _time(max(moments_ms), text=text),
            "backups": span.backups,
            "size": human_bytes(size_bytes) if text and size_bytes is not None else size_bytes,
            "damaged": None if last is None else last.is_damaged,
        }


@dataclass(slots=True)
class _Topic:
    """A topic in one backup."""

    moment_ms: int
    partitions: int = 0
    size_bytes: int = 0
    is_damaged: bool = False


def _topics_of(repository: Repository, identifier: str) -> dict[str, _Topic] | KlogError:
    """The topics of a backup, or why it cannot be read."""
    try:
        manifest = repository.manifest(identifier)
        refs = repository.partitions(manifest)
    except (FormatError, MissingInputError) as error:
        return error
    topics: dict[str, _Topic] = {}
    for partition, ref in refs.items():
        at_ms = moment_ms(manifest, partition.topic, ref)
        found = topics.setdefault(partition.topic, _Topic(at_ms))
        found.moment_ms = min(found.moment_ms, at_ms)
        found.partitions += 1
        found.size_bytes += ref.size_bytes
        found.is_damaged |= ref.is_damaged
    return topics


def _of_topic(topics: dict[str, _Topic] | KlogError, topic: str) -> _Topic | None:
    return None if isinstance(topics, KlogError) else topics.get(topic)


def moment_ms(manifest: Manifest, topic: str, ref: PartitionRef) -> int:
    """The moment whose log a backup has: that of its run, or of an earlier one if it was carried over."""
    return manifest.begin_ms if manifest.covers(topic, ref) else ref.read_time_ms


def partition_rows(
    manifest: Manifest, refs: Mapping[TopicPartition, PartitionRef], *, text: bool
) -> list[Row]:
    """The partitions of one backup."""
    return [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "logStartOffset": ref.log_start_offset,
            "endOffset": ref.end_offset,
            "size": human_bytes(ref.size_bytes) if text else ref.size_bytes,
            "asOf": _time(moment_ms(manifest, partition.topic, ref), text=text),
            "damaged": ref.is_damaged,
            "source": ref.source,
        }
        for partition, ref in sorted(refs.items())
    ]
