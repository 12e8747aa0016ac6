"""Finds what a backup holds: one log for each partition, merged from all replicas that are there.

`klog.export` finds and merges the replicas, so that an export and a broker give the same records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from klog.cluster_metadata.forms import Reading
from klog.formats import meta_properties
from klog.formats.errors import KlogError
from klog.formats.names import FileKind, TopicPartition
from klog.replicas.concurrency import map_concurrently
from klog.replicas.discover import discover, nothing_found
from klog.replicas.files import is_remote, join, parent, read_small
from klog.replicas.replica_files import Found, Replica
from klog.replicas.replicas import MergedLog, merge
from klog.replicas.splits import LostRange
from klog.server.read_only.kraft_metadata import read_metadata, why_unowned
from klog.storage.log.directory_loading import METADATA_TOPIC

_NO_BROKER_ID = -1
_MAX_CONCURRENT_PARTITIONS = 8


@dataclass(frozen=True, slots=True)
class Backup:
    """The partitions of a backup. `cluster_id` is None if the directories do not say it, or not the same.

    `skipped` are paths that hold nothing that is served, with the reason; `problems` what cannot be read.
    `metadata` is what the metadata log of KRaft says, if one is there; then `logs` are partitions of it.
    """

    logs: Mapping[TopicPartition, MergedLog]
    cluster_id: str | None
    broker_id: int
    skipped: tuple[tuple[str, str], ...]
    problems: tuple[KlogError, ...]
    metadata: Reading | None = None

    def damage(self) -> list[str]:
        """What cannot be served, a line each: file, position, reason, and the offsets that are lost."""
        lost = [one for _, log in sorted(self.logs.items()) for one in log.lost]
        said = {(one.file, one.reason) for one in lost}
        others = [str(problem) for problem in self.problems if (problem.file, problem.what) not in said]
        return [*others, *map(_described, lost)]

    def differences(self) -> list[str]:
        """Where replicas have different records, a line each."""
        return [
            f"{partition}: {each.other} has other records at offsets {each.first_offset} to"
            f" {each.end_offset} than {each.chosen}, which is served: {each.reason}"
            for partition, log in sorted(self.logs.items())
            for each in log.divergences
        ]


def _described(lost: LostRange) -> str:
    place = lost.file if lost.start_bytes is None else f"{lost.file} at byte {lost.start_bytes}"
    if lost.first_offset is None:
        return f"{place}: {lost.reason}"
    end = "on" if lost.end_offset is None else f"to {lost.end_offset - 1}"
    partition = TopicPartition(lost.topic, lost.partition)
    return f"{place}: {lost.reason}; offsets of {partition} from {lost.first_offset} {end} are not served"


def find_backup(paths: Sequence[str]) -> Backup:
    """What is below the paths: log directories, partition directories or what holds them, also remote ones.

    Raises MissingInputError if no partition is there.
    """
    found = discover(paths)
    metadata = read_metadata(found.replicas)
    groups: dict[TopicPartition, list[Replica]] = {}
    for replica in found.replicas:
        if replica.partition.topic == METADATA_TOPIC:
            continue
        why = None if metadata is None else why_unowned(replica, metadata.cluster)
        if why is None:
            groups.setdefault(replica.partition, []).append(replica)
        else:
            found.skipped.append((replica.directory, why))
    if not groups:
        raise nothing_found(found, paths)
    logs = _merged(groups, found)
    cluster_id, broker_id = _identity({parent(replica.directory) for replica in found.replicas})
    skipped, problems = tuple(sorted(set(found.skipped))), tuple(found.problems)
    return Backup(logs, cluster_id, broker_id, skipped, problems, metadata)


def _merged(
    groups: Mapping[TopicPartition, Sequence[Replica]], found: Found
) -> dict[TopicPartition, MergedLog]:
    def look(partition: TopicPartition) -> tuple[MergedLog, Found]:
        own = Found()
        return merge(groups[partition], own, include_deleted=False), own

    remote = any(is_remote(replica.directory) for replicas in groups.values() for replica in replicas)
    logs = {}
    partitions = sorted(groups)
    looked = map_concurrently(look, partitions, remote=remote, most=_MAX_CONCURRENT_PARTITIONS)
    for partition, (log, own) in zip(partitions, looked, strict=True):
        logs[partition] = log
        found.problems += own.problems
        found.skipped += own.skipped
    return logs


def _identity(log_directories: Iterable[str]) -> tuple[str | None, int]:
    """The cluster's id and the broker's, if all directories agree."""
    clusters, brokers = set(), set()
    for directory in log_directories:
        with suppress(KlogError):
            properties = meta_properties.parse(read_small(join(directory, FileKind.META_PROPERTIES)))
            clusters.add(properties.cluster_id)
            brokers.add(properties.node_id)
    clusters.discard(None)
    brokers.discard(None)
    cluster_id = clusters.pop() if len(clusters) == 1 else None
    broker_id = brokers.pop() if len(brokers) == 1 else None
    return cluster_id, _NO_BROKER_ID if broker_id is None else broker_id
