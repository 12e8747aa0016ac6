"""The rows of `klog diff` for programs: one object for each partition."""

from __future__ import annotations

from typing import Any

from klog.formats.checkpoints import EpochEntry
from klog.replicas.compare_logs import OffsetRange, RangeState
from klog.replicas.compare_partitions import OF_RECORDS, DifferentRecord, PartitionDiff, PartitionPair, Record
from klog.replicas.replica_contents import ReplicaContents
from klog.replicas.splits import LostRange


def result(diff: PartitionDiff) -> str:
    """The result of a comparison in a word or three."""
    states = diff.states.keys()
    if diff.first_difference is not None:
        return "different"
    if any(diff.damage):
        return "damaged"
    if RangeState.CLEANED in states:
        return "cleaned"
    return "other batches" if RangeState.OTHER_BATCHES in states else "same"


def only_in(pair: PartitionPair) -> str | None:
    """Which of the two has the partition, None if both have."""
    if pair.a is None:
        return "only in B"
    return "only in A" if pair.b is None else None


def row(pair: PartitionPair, diff: PartitionDiff | None) -> dict[str, Any]:
    """The row of a partition; `diff` is None if only one side has it."""
    kept = None if diff is None else diff.kept
    epochs_a, epochs_b = ((), ()) if diff is None else diff.epochs
    return {
        "topic": pair.partition.topic,
        "partition": pair.partition.partition,
        "result": only_in(pair) if diff is None else result(diff),
        "firstDifference": None if diff is None else diff.first_difference,
        "kept": None if kept is None else kept.name,
        "reason": None if kept is None else kept.reason,
        "lastCommonEpoch": None if kept is None else kept.last_common_epoch,
        "truncationOffset": None if kept is None else kept.truncation_offset,
        "a": _side(pair.a, epochs_a),
        "b": _side(pair.b, epochs_b),
        "rangeCount": 0 if diff is None else diff.range_count,
        "ranges": [] if diff is None else list(map(_range, diff.ranges)),
        "recordCount": 0 if diff is None else diff.record_count,
        "records": [] if diff is None else list(map(_record_pair, diff.records)),
        "damage": [] if diff is None else _damage(diff),
    }


def _side(contents: ReplicaContents | None, epochs: tuple[EpochEntry, ...]) -> dict[str, Any] | None:
    if contents is None:
        return None
    return {
        "partitionDirectory": contents.replica.directory,
        "logStartOffset": contents.log_start_offset,
        "logEndOffset": contents.end_offset,
        "highWatermark": contents.replica.high_watermark,
        "leaderEpoch": contents.leader_epoch,
        "leaderEpochs": [{"epoch": each.epoch, "startOffset": each.start_offset} for each in epochs],
    }


def _range(one: OffsetRange) -> dict[str, Any]:
    return {
        "state": str(one.state),
        "firstOffset": one.first_offset,
        "lastOffset": one.last_offset,
        "sameRecords": one.same_records,
        "differentRecords": one.different_records,
        "onlyInA": one.only_in_a,
        "onlyInB": one.only_in_b,
        "reason": one.reason,
    }


def _record_pair(one: DifferentRecord) -> dict[str, Any]:
    return {
        "offset": one.offset,
        "fields": list(one.fields),
        "a": _compared(one.a),
        "b": _compared(one.b),
    }


def _compared(record: Record | None) -> Record | None:
    return None if record is None else {name: record[name] for name in OF_RECORDS}


def _damage(diff: PartitionDiff) -> list[dict[str, Any]]:
    return [
        {"replica": name, **_lost(lost)}
        for name, ranges in zip("AB", diff.damage, strict=True)
        for lost in ranges
    ]


def _lost(lost: LostRange) -> dict[str, Any]:
    return {
        "file": lost.file,
        "startBytes": lost.start_bytes,
        "endBytes": lost.end_bytes,
        "firstOffset": lost.first_offset,
        "endOffset": lost.end_offset,
        "reason": lost.reason,
    }
