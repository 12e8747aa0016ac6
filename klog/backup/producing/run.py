"""Carries out a restore into a running cluster: topics, records, the file of offsets, offsets of groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from queue import SimpleQueue

from klog.backup.moment.aborted import AbortedBatches
from klog.backup.producing.batches import Producible, ProducibleBatches
from klog.backup.producing.groups import (
    GroupOffsets,
    GroupsRestored,
    commit_groups,
    is_of_brokers,
    old_offsets,
    require_right_to_commit,
    translated_offsets,
)
from klog.backup.producing.mapping_file import MappingFile, RestoreHeader
from klog.backup.producing.offset_map import OffsetMap
from klog.backup.producing.topics import Targets, TargetTopic, create_topics, target_topics
from klog.backup.producing.writing import (
    OthersWriteError,
    PartitionProducer,
    producer_id,
    require_right_to_write,
)
from klog.backup.restoring.batches import PieceSource, read_batches
from klog.backup.restoring.histories import OnBytes, ignore_bytes
from klog.backup.restoring.plan import PlannedPartition, RestorePlan
from klog.backup.restoring.request import identity
from klog.client.cluster import Cluster
from klog.client.producer_id import ProducerId
from klog.cluster_metadata.model import Cluster as ClusterMetadata
from klog.formats.names import TopicPartition
from klog.jobs.threads import side_by_side

OpenCluster = Callable[[], AbstractContextManager[Cluster]]


@dataclass(frozen=True, slots=True)
class ProducingOptions:
    """How to restore into a cluster. `mapping` is the path of the file of offsets. `jobs` partitions are
    written at a time, each with a connection of its own.
    """

    mapping: str
    replication_factor: int
    jobs: int = 1


@dataclass(frozen=True, slots=True)
class Produced:
    """The offsets of each partition, the groups, and in words what could not come back. `records` are all,
    `found_records` those of them that were there before.
    """

    maps: Mapping[TopicPartition, OffsetMap]
    groups: GroupsRestored
    losses: tuple[str, ...]
    records: int
    found_records: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """The topics that a restore fills, the old offsets of groups for them, the producer of its records, and
    what a killed one has left.
    """

    topics: list[TargetTopic]
    groups: GroupOffsets
    cluster_id: str
    producer: ProducerId
    header: RestoreHeader | None


def look_first(
    cluster: Cluster, targets: Targets, known: ClusterMetadata | None, options: ProducingOptions
) -> None:
    """Make those checks of `prepare` that need no plan: the cluster can be reached, its topics can be made
    and filled. So a mistake costs seconds, however long a plan takes.

    Raises `UsageError` if the restore is not possible, `KlogError`.
    """
    header = MappingFile(options.mapping).of_cluster(_cluster_id(cluster))
    _topics(cluster, targets, known, options, goes_on=header is not None)


def prepare(
    cluster: Cluster,
    source: PieceSource,
    plan: RestorePlan,
    known: ClusterMetadata | None,
    options: ProducingOptions,
) -> Prepared:
    """Look whether a restore is possible: topics, rights, configs, what brokers take. Nothing is made.

    Raises `UsageError` if it is not, `KlogError`.
    """
    cluster_id = _cluster_id(cluster)
    header = MappingFile(options.mapping).unfinished(identity(plan), cluster_id)
    targets = {each.view.partition: each.target for each in plan.partitions}
    topics = _topics(cluster, targets, known, options, goes_on=header is not None)
    for topic in topics:
        fills = [each for each in plan.partitions if each.target.topic == topic.name]
        topic.accepting.require(cluster, fills)
    groups = old_offsets(source, plan.partitions)
    require_right_to_commit(cluster, groups, [topic.name for topic in topics if topic.exists])
    if header is not None:
        producer = ProducerId(header.producer_id, header.producer_epoch)
    else:
        producer = producer_id(cluster)
    return Prepared(topics, groups, cluster_id, producer, header)


def _topics(
    cluster: Cluster,
    targets: Targets,
    known: ClusterMetadata | None,
    options: ProducingOptions,
    *,
    goes_on: bool,
) -> list[TargetTopic]:
    topics = target_topics(cluster, targets, known, options.replication_factor, goes_on=goes_on)
    require_right_to_write(cluster, [topic.name for topic in topics])
    return topics


def run_producing(
    open_cluster: OpenCluster,
    source: PieceSource,
    plan: RestorePlan,
    known: ClusterMetadata | None,
    options: ProducingOptions,
    on_bytes: OnBytes = ignore_bytes,
) -> Produced:
    """Produce what a plan says; `known` is the backup's metadata. The same call goes on after it was killed.

    `on_bytes` may be called by several threads. Raises `UsageError` if a topic has other records, and other
    `KlogError`s.
    """
    file = MappingFile(options.mapping)
    planned = [each for each in plan.partitions if not is_of_brokers(each.view.partition.topic)]
    with ExitStack() as stack:
        cluster = stack.enter_context(open_cluster())
        prepared = prepare(cluster, source, plan, known, options)
        topics, producer = prepared.topics, prepared.producer
        header = prepared.header or file.begin(identity(plan), prepared.cluster_id, *producer)
        create_topics(cluster, topics, options.replication_factor)
        idle: SimpleQueue[Cluster] = SimpleQueue()
        for _ in range(min(options.jobs, len(planned))):
            idle.put(stack.enter_context(open_cluster()))
        writing = _Writing(idle, source, {topic.name: topic for topic in topics}, producer, on_bytes)
        made = list(side_by_side(options.jobs, writing.partition, planned))
        maps = {each.target: found for each, found in zip(planned, made, strict=True)}
        groups = commit_groups(cluster, translated_offsets(prepared.groups, maps))
        originals = {each.target.topic: each.view.partition.topic for each in planned}
        file.write_ranges(replace(header, is_complete=not groups.failures), maps, originals)
    losses = [loss for topic in topics for loss in topic.losses]
    records = sum(each.new_end for each in maps.values())
    found = sum(sum((topic.new_ends or {}).values()) for topic in topics)
    return Produced(maps, groups, tuple(losses), records, found)


class _Writing:
    """The partitions that are being written, by several threads with one of the `idle` clusters each."""

    def __init__(
        self,
        idle: SimpleQueue[Cluster],
        source: PieceSource,
        topics: Mapping[str, TargetTopic],
        producer: ProducerId,
        on_bytes: OnBytes,
    ) -> None:
        self._idle = idle
        self._source = source
        self._topics = topics
        self._producer = producer
        self._on_bytes = on_bytes

    def partition(self, planned: PlannedPartition) -> OffsetMap:
        """Write the records of a partition that are not there yet."""
        cluster = self._idle.get()
        try:
            return self._write(cluster, planned)
        finally:
            self._idle.put(cluster)

    def _write(self, cluster: Cluster, planned: PlannedPartition) -> OffsetMap:
        target = planned.target
        there = (self._topics[target.topic].new_ends or {}).get(target.partition, 0)
        cluster.refresh([target.topic])
        producer = PartitionProducer(cluster, target, self._producer, there)
        offsets = OffsetMap()
        for batch in self._batches(planned):
            offsets.note(batch.offsets)
            if offsets.new_end > there:
                if offsets.new_end - len(batch.offsets) != producer.written:
                    raise _others(target, there)
                producer.write(batch.data, len(batch.offsets))
        if offsets.new_end != producer.written:
            raise _others(target, there)
        return offsets

    def _batches(self, planned: PlannedPartition) -> Iterator[Producible]:
        sets_time = self._topics[planned.target.topic].accepting.sets_time
        aborted, start = AbortedBatches(planned.aborted), planned.view.log_start_offset
        making = ProducibleBatches(aborted, start, keeps_append_time=not sets_time)
        for rows in read_batches(self._source, planned.view.parts, planned.cut.end_offset, checked=True):
            yield from making.take(rows)
            self._on_bytes(len(rows.span()))
        yield from making.finish()


def _others(partition: TopicPartition, end_offset: int) -> OthersWriteError:
    return OthersWriteError(
        f"{partition} ends at offset {end_offset}, where no batch of this restore ends",
        cure="delete its topic, and restore it again",
    )


def _cluster_id(cluster: Cluster) -> str:
    return str(getattr(cluster.metadata(()), "cluster_id", None) or "")
