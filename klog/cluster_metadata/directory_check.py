"""Compares a cluster's metadata with the log directories of one of its brokers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from klog.cluster_metadata.consistency import Problem
from klog.cluster_metadata.kraft_log import METADATA_DIRECTORY
from klog.cluster_metadata.kraft_values import UNKNOWN_DIRECTORY
from klog.cluster_metadata.model import Cluster, Partition
from klog.cluster_metadata.zookeeper_form import is_zookeeper_directory
from klog.formats import partition_metadata
from klog.formats.errors import KlogError, UsageError
from klog.formats.meta_properties import MetaProperties
from klog.formats.names import DirectoryState, FileKind, TopicPartition, parse_directory
from klog.storage.files.checkpoint_files import read_identity
from klog.storage.files.files import read_small
from klog.storage.files.kafka_files import partition_directories


class Replica(NamedTuple):
    """A partition's directory, with the topic id in its partition.metadata."""

    path: str
    topic_id: str | None
    directory_id: str | None

    @property
    def log_directory(self) -> str:
        """The log directory that it is in."""
        return os.path.dirname(self.path)


class Scan(NamedTuple):
    """The replicas in the log directories of a broker, and what is wrong with their directories."""

    replicas: dict[TopicPartition, Replica]
    problems: tuple[Problem, ...]


def directory_problems(
    cluster: Cluster, directories: Sequence[str], broker_id: int | None = None
) -> Iterator[Problem]:
    """What differs between the metadata and all log directories of a broker.

    Its id is that of meta.properties if none is given. Raises UsageError without one, `StorageError`.
    """
    identities = {directory: _identity(directory) for directory in directories}
    yield from _identity_problems(cluster, identities)
    ids = {each.node_id for each in identities.values() if isinstance(each, MetaProperties)} - {None}
    broker = broker_id if broker_id is not None else next(iter(ids), None)
    if broker is None:
        raise UsageError("meta.properties has no id of a broker", cure="give it with --broker ID")
    if len(ids) > 1:
        yield Problem(
            ", ".join(directories), f"belong to several brokers: {', '.join(map(str, sorted(ids, key=str)))}"
        )
    directory_ids = {
        directory: each.directory_id if isinstance(each, MetaProperties) else None
        for directory, each in identities.items()
    }
    yield from replica_problems(cluster, scan(directory_ids), broker)


def scan(directory_ids: Mapping[str, str | None]) -> Scan:
    """Looks through all log directories of a broker. Raises StorageError."""
    found: dict[TopicPartition, Replica] = {}
    problems = []
    for directory, directory_id in directory_ids.items():
        for partition, replica, problem in _replicas(directory, directory_id):
            if problem is not None:
                problems.append(problem)
            if partition in found:
                problems.append(Problem(replica.path, f"is {partition}, as {found[partition].path} is, too"))
            found[partition] = replica
    return Scan(found, tuple(problems))


def replica_problems(cluster: Cluster, found: Scan, broker: int) -> Iterator[Problem]:
    """What differs between the metadata and the partitions in the log directories of a broker."""
    yield from found.problems
    yield from _owners(cluster, found.replicas, broker)
    yield from _missing(cluster, found.replicas, broker)


def has_partitions(path: str) -> bool:
    """Whether a path is a log directory with partitions of topics. `version-2` of ZooKeeper is none."""
    if not os.path.isdir(path) or is_zookeeper_directory(path):
        return False
    return any(os.path.basename(each) != METADATA_DIRECTORY for each in partition_directories(path))


def _identity(directory: str) -> MetaProperties | KlogError | None:
    path = os.path.join(directory, FileKind.META_PROPERTIES)
    try:
        return read_identity(path)
    except KlogError as error:
        return error.at(path)


def _identity_problems(
    cluster: Cluster, identities: dict[str, MetaProperties | KlogError | None]
) -> Iterator[Problem]:
    for directory, identity in identities.items():
        if isinstance(identity, KlogError):
            yield Problem(directory, str(identity))
        elif identity is None:
            yield Problem(directory, "has no meta.properties: it belongs to no broker yet")
        elif cluster.cluster_id is not None and identity.cluster_id not in (None, cluster.cluster_id):
            yield Problem(
                directory,
                f"belongs to cluster {identity.cluster_id}, the metadata to {cluster.cluster_id}:"
                " a broker refuses to start",
            )


def _replicas(
    directory: str, directory_id: str | None
) -> Iterator[tuple[TopicPartition, Replica, Problem | None]]:
    for path in partition_directories(directory):
        name = os.path.basename(path)
        found = parse_directory(name)
        if found.state is not DirectoryState.CURRENT or name == METADATA_DIRECTORY:
            continue
        file = os.path.join(path, FileKind.PARTITION_METADATA)
        topic_id, problem = None, None
        if os.path.exists(file):
            try:
                topic_id = partition_metadata.parse(read_small(file)).topic_id
            except KlogError as error:
                problem = Problem(path, str(error.at(file)))
        yield found.partition, Replica(path, topic_id, directory_id), problem


def _owners(cluster: Cluster, found: Mapping[TopicPartition, Replica], broker: int) -> Iterator[Problem]:
    for (name, number), replica in sorted(found.items()):
        topic = cluster.topics.get(name)
        partition = topic.partitions.get(number) if topic is not None else None
        if topic is None or partition is None:
            missing = "there is no such topic" if topic is None else f"the topic has no partition {number}"
            yield Problem(replica.path, f"has no owner: {missing}")
            continue
        if replica.topic_id is not None and topic.topic_id not in (None, replica.topic_id):
            yield Problem(
                replica.path,
                f"has topic id {replica.topic_id}, the metadata {topic.topic_id}: a broker refuses it",
            )
        replicas = partition.assignment.replicas
        if broker not in replicas:
            yield Problem(replica.path, f"has no owner: the replicas are on {','.join(map(str, replicas))}")
            continue
        if len(partition.directories) != len(replicas) or replica.directory_id is None:
            continue
        assigned = partition.directories[replicas.index(broker)]
        if not _is_reserved(assigned) and assigned != replica.directory_id:
            yield Problem(
                replica.path, f"is in directory {replica.directory_id}, the metadata says {assigned}"
            )


def _is_reserved(directory_id: str) -> bool:
    """Whether an id stands for no directory: unknown, unassigned or lost (KIP-858)."""
    return directory_id.startswith(UNKNOWN_DIRECTORY[:20])


def _missing(cluster: Cluster, found: Mapping[TopicPartition, Replica], broker: int) -> Iterator[Problem]:
    for place, partition in cluster.partitions:
        if broker in partition.assignment.replicas and place not in found and not _is_new(partition, broker):
            yield Problem(str(place), f"has no directory on broker {broker}: it would come back empty")


def _is_new(partition: Partition, broker: int) -> bool:
    """Whether a replica is being added and has not caught up: it may have nothing yet."""
    is_in_sync = partition.state is not None and broker in partition.state.isr
    return broker in partition.assignment.adding and not is_in_sync
