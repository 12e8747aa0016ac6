"""What a whole log directory of the corpora holds, as the rows of an export in their order."""

from __future__ import annotations

from typing import Any

from klog.formats import checkpoints, names
from tests.corpora import LogDirectory, PartitionDirectory
from tests.export.reading import expected_rows


def log_rows(log_dir: LogDirectory) -> list[dict[str, Any]]:
    """The rows of every partition with all columns, by topic, partition and offset: sound batches only, and
    nothing before the log's start.
    """
    starts = log_starts(log_dir)
    found: list[dict[str, Any]] = []
    for partition in log_dir.partitions():
        if not partition.has_expected:
            continue
        directory = names.parse_directory(partition.name)
        if directory.state is not names.DirectoryState.CURRENT:
            continue
        sound = sound_positions(partition)
        for path in partition.files(".log"):
            found += [
                row
                for row in expected_rows(partition, path.name)
                if (path.name, row["batchPosition"]) in sound
                and row["offset"] >= starts.get(directory.partition, 0)
            ]
    return sorted(found, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def sound_positions(partition: PartitionDirectory) -> set[tuple[str, int]]:
    """File and position of every batch whose checksum is good."""
    return {
        (line["file"], line["position"])
        for line in partition.expected_batches()
        if "position" in line and line["valid"]
    }


def log_starts(log_dir: LogDirectory) -> dict[names.TopicPartition, int]:
    """The log start offsets of the checkpoint."""
    path = log_dir.path / "log-start-offset-checkpoint"
    if not path.exists():
        return {}
    return {entry.partition: entry.offset for entry in checkpoints.parse_offsets(path.read_bytes()).entries}


def before_damage(log_dir: LogDirectory, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of each file up to the first thing in it that Kafka stumbles over: what can be saved behind
    it is more than Kafka reads. Without partitions in which a `.swap` takes the place of other segments.
    """
    ends = {
        str(partition.path / path.name): first_damage(partition, path.name)
        for partition in log_dir.partitions()
        for path in partition.files(".log")
        if not partition.files(".swap")
    }
    return [row for row in rows if row["batchPosition"] < ends.get(row["file"], 0)]


def first_damage(partition: PartitionDirectory, file: str) -> int:
    """The position of the first damaged batch of a file, by Kafka's reader or by who damaged it."""
    overwritten = partition.corpus.manifest.get("corruptions", {}).get(partition.name, {})
    positions = [2**62]
    if overwritten.get("file") == file:
        positions += [overwritten[name] for name in ("batch_pos", "zeroed_from") if name in overwritten]
    positions += [
        line["position"]
        for line in partition.expected_batches()
        if line.get("file") == file and "position" in line and not line["valid"]
    ]
    return min(positions)
