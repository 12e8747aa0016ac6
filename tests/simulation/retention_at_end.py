"""What must be gone by the end: records that are too old or too many, and what DeleteRecords has deleted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from klog.formats.names import TopicPartition
from klog.replication.partition import Partition
from klog.storage.log.partition_log import PartitionLog
from tests.simulation.disk import RETENTION_MS
from tests.simulation.faults import delete_records
from tests.simulation.scheduler import US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.world import World

# Faults set clocks by less.
_LATER_MS: Final = 1_000_000
_REACHES_FOLLOWERS_MS: Final = 1_500


def check_retention(world: World) -> None:
    """Let an administrator delete the older half of some logs, and set the clocks of all brokers ahead.

    Look at what is left when each broker has checked its logs.
    """
    logs = [log for broker in world.brokers.values() for log in broker.logs.logs()]
    has_segments = {log.partition for log in logs if log.config.delete and len(log.segments) > 1}
    if not has_segments and not any(world.has_retention(log.partition.topic) for log in logs):
        return
    for key in sorted(has_segments):
        delete_records(world, key)
    ends = {log: log.log_end_offset for log in logs}
    for broker in world.brokers.values():
        broker.wall_ahead_ms += _LATER_MS
    _go_on(world, RETENTION_MS + _REACHES_FOLLOWERS_MS)
    if _kept_longer(world) or any(_segment_below_start(each.log) for _, _, each in _replicas(world)):
        # A preferred leader was elected just now, and its followers learned late where it begins.
        _go_on(world, _REACHES_FOLLOWERS_MS + RETENTION_MS)
    for broker_id, key, partition in _replicas(world):
        who = f"b{broker_id}: {key}"
        _check_log(world, partition.log, who)
        # Otherwise a marker has come, which is young.
        if ends.get(partition.log) == partition.log.log_end_offset:
            _check_age(world, partition.log, who)
    assert not _kept_longer(world), _kept_longer(world)


def _go_on(world: World, for_ms: int) -> None:
    world.scheduler.run_until(world.scheduler.now_us + for_ms * US_PER_MS)


def _kept_longer(world: World) -> str:
    """A replica that has records that its leader has deleted; empty if there is none."""
    for broker_id, key, partition in _replicas(world):
        start = partition.log.log_start_offset
        led_from = world.brokers[partition.state.leader].replicas.partitions[key].log.log_start_offset
        if start < led_from:
            return f"b{broker_id} keeps {key} from {start} on, its leader from {led_from} on"
    return ""


def _replicas(world: World) -> Iterator[tuple[int, TopicPartition, Partition]]:
    """Those of all brokers, with the brokers' ids. A broker that was not told that its replica has moved away
    keeps it, and nobody tells it what to delete.
    """
    for broker in world.brokers.values():
        for (topic, number), partition in broker.replicas.partitions.items():
            key = TopicPartition(topic, number)
            if not world.is_stray(key, broker.broker_id):
                yield broker.broker_id, key, partition


def _check_log(world: World, log: PartitionLog, who: str) -> None:
    config, start = log.config, log.log_start_offset
    for offset in world.deletions.get(log, ()):
        assert start >= offset, f"{who} begins at {start}: DeleteRecords had deleted what is below {offset}"
    assert not _segment_below_start(log), f"{who} has a segment that ends where it begins, at {start}"
    sizes_bytes = [segment.size for segment in log.segments]
    if config.delete and config.retention_bytes >= 0 and len(sizes_bytes) > 1:
        newer_bytes = sum(sizes_bytes[1:])
        assert newer_bytes < config.retention_bytes, (
            f"{who} has {newer_bytes} bytes after its first segment, but retention.bytes is"
            f" {config.retention_bytes}"
        )


def _segment_below_start(log: PartitionLog) -> bool:
    """Whether the first segment has no record that may be read."""
    return len(log.segments) > 1 and log.segments.end_of(0, log.log_end_offset) <= log.log_start_offset


def _check_age(world: World, log: PartitionLog, who: str) -> None:
    config, start, end = log.config, log.log_start_offset, log.log_end_offset
    if not config.delete or not world.keeps_shortly(config):
        return
    assert not any(segment.size for segment in log.segments), (
        f"{who} has records from {start} to {end - 1}, but all are older than retention.ms"
        f" ({config.retention_ms})"
    )
    assert start == end, f"{who} begins at {start} and ends at {end}, but has no records"
