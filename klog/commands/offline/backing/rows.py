"""Rows that `klog backup` shows: backups, topics, partitions, results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from klog.backup.model import Manifest, PartitionRef
from klog.backup.repository import Repository
from klog.backup.run import Result
from klog.commands.shared.cells import human_bytes, human_time
from klog.commands.shared.tables import Row
from klog.formats.names import TopicPartition


def result_row(result: Result) -> Row:
    """What a run has done."""
    manifest = result.manifest
    return {
        "id": manifest.id,
        "partitions": result.partitions,
        "changedPartitions": result.changed,
        "removedPartitions": result.removed,
        "damagedPartitions": [str(partition) for partition in result.damaged],
        "readBytes": manifest.read_bytes,
        "storedBytes": manifest.stored_bytes,
        "durationMs": manifest.end_ms - manifest.begin_ms,
        "problems": [
            {"partition": None if each.partition is None else str(each.partition), "what": each.what}
            for each in manifest.problems
        ],
    }


def result_text(result: Result) -> str:
    """The same for people."""
    manifest = result.manifest
    seconds = (manifest.end_ms - manifest.begin_ms) / 1000
    removed = f", {result.removed} removed" if result.removed else ""
    return (
        f"backup {manifest.id}: {result.partitions} partitions, {result.changed} changed{removed}, "
        f"{human_bytes(manifest.read_bytes)} read, {human_bytes(manifest.stored_bytes)} stored, "
        f"{seconds:.1f} s"
    )


def backup_rows(repository: Repository, manifests: Iterable[Manifest], *, text: bool) -> Iterator[Row]:
    """One row for each backup."""
    for manifest in manifests:
        refs = repository.partitions(manifest)
        size_bytes = sum(ref.size_bytes for ref in refs.values())
        yield {
            "id": manifest.id,
            "begin": _time(manifest.begin_ms, text=text),
            "durationMs": manifest.end_ms - manifest.begin_ms,
            "topics": len({partition.topic for partition in refs}),
            "partitions": len(refs),
            "size": human_bytes(size_bytes) if text else size_bytes,
            "stored": human_bytes(manifest.stored_bytes) if text else manifest.stored_bytes,
            "problems": len(manifest.problems),
        }


def _time(time_ms: int, *, text: bool) -> object:
    return human_time(time_ms) if text else time_ms


@dataclass(slots=True)
class _Topic:
    first_ms: int
    last_ms: int
    backups: int = 0
    partitions: int = 0
    size_bytes: int = 0
    is_damaged: bool = False


def topic_rows(repository: Repository, manifests: Iterable[Manifest], *, text: bool) -> list[Row]:
    """From when to when each topic can be restored; partitions and sizes are those of the last backup with
    it."""
    topics: dict[str, _Topic] = {}
    for manifest in manifests:
        refs = repository.partitions(manifest)
        for topic in {partition.topic for partition in refs}:
            of_topic = [ref for partition, ref in refs.items() if partition.topic == topic]
            moments = [moment_ms(manifest, topic, ref) for ref in of_topic]
            found = topics.setdefault(topic, _Topic(min(moments), min(moments)))
            found.last_ms = max(found.last_ms, min(moments))
            found.backups += 1
            found.partitions = len(of_topic)
            found.size_bytes = sum(ref.size_bytes for ref in of_topic)
            found.is_damaged = any(ref.is_damaged for ref in of_topic)
    return [
        {
            "topic": topic,
            "partitions": found.partitions,
            "from": _time(found.first_ms, text=text),
            "to": _time(found.last_ms, text=text),
            "backups": found.backups,
            "size": human_bytes(found.size_bytes) if text else found.size_bytes,
            "damaged": found.is_damaged,
        }
        for topic, found in sorted(topics.items())
    ]


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
