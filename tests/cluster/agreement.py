"""Compares the replicas of partitions on disk, batch by batch, after their brokers have stopped."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import klog
from klog.formats.names import TopicPartition
from klog.storage.files.checkpoint_files import read_offsets
from tests.checker import checks
from tests.checker.histories import Acknowledged, Logs
from tests.cluster.members import Member
from tests.cluster.tree import Partition


class StoredBatch(NamedTuple):
    """What must be equal in all replicas. The checksum covers everything but offset and leader epoch."""

    base_offset: int | None
    last_offset: int
    leader_epoch: int
    checksum: int
    size_bytes: int


class Replica(NamedTuple):
    """A partition's directory, and what its broker's checkpoint says about it."""

    broker_id: int
    path: Path
    high_watermark: int

    def batches(self) -> Iterator[StoredBatch]:
        for each in klog.open_partition(self.path).batches():
            yield StoredBatch(
                each.base_offset,
                each.last_offset,
                each.partition_leader_epoch,
                each.checksum,
                each.size_bytes,
            )


def replica_of(member: Member, partition: Partition) -> Replica:
    topic, number = partition
    (directory,) = [each for each in member.log_directories if (each / f"{topic}-{number}").is_dir()]
    high_watermarks = read_offsets(directory / "replication-offset-checkpoint")
    return Replica(
        member.broker_id, directory / f"{topic}-{number}", high_watermarks.get(TopicPartition(*partition), 0)
    )


def differences(members: Collection[Member], ends: Mapping[Partition, int]) -> Iterator[str]:
    """What differs between the replicas of partitions below the high watermark.

    `ends` has an offset for each partition below which all records were acknowledged: up to there the
    replicas must be equal whatever the checkpoints say. Only for partitions that are not compacted.
    """
    for partition, acknowledged_end in ends.items():
        replicas = [replica_of(member, partition) for member in members]
        end = max(acknowledged_end, min(each.high_watermark for each in replicas))
        start = max(klog.open_partition(each.path).log_start_offset for each in replicas)
        first, *others = replicas
        for other in others:
            for mine, its in zip_longest(_between(first, start, end), _between(other, start, end)):
                if mine != its:
                    yield f"{partition}: {first.broker_id} has {mine}, {other.broker_id} has {its}"
                    break


def check_acknowledged(acknowledged: Iterable[Acknowledged], logs: Logs) -> None:
    """Checks that acknowledged records are there, and where the broker said.

    It does not say where if a producer repeats a batch that is older than the last five: then the answer is
    DUPLICATE_SEQUENCE_NUMBER, which is success without an offset.
    """
    everything = list(acknowledged)
    assert list(checks.lost((each for each in everything if each.offset is not None), logs)) == []
    elsewhere = [each for each in everything if each.offset is None]
    there = {partition: set(log.values()) for partition, log in logs.items()}
    assert [each for each in elsewhere if each.record not in there[each.partition]] == []


def _between(replica: Replica, start: int, end: int) -> list[StoredBatch]:
    return [each for each in replica.batches() if each.last_offset >= start and (each.base_offset or 0) < end]
