"""Plans what directories of KRaft nodes get, so that a given Kafka starts on them: see `kraft_output`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from klog.cluster_metadata import kraft_output, kraft_records, node_properties
from klog.cluster_metadata.consistency import Problem, problems_of
from klog.cluster_metadata.conversion_plan import Plan, Step, Target
from klog.cluster_metadata.directory_check import Scan, replica_problems, scan
from klog.cluster_metadata.forms import Reading, require_secrets, require_stopped
from klog.cluster_metadata.kraft_layout import Layout, Node, identity
from klog.cluster_metadata.kraft_log import METADATA_DIRECTORY
from klog.cluster_metadata.kraft_preparation import KAFKA_4, prepared
from klog.cluster_metadata.kraft_replay import KRAFT_VERSION
from klog.cluster_metadata.kraft_snapshot import KRAFT_VERSION_OF_VOTERS
from klog.cluster_metadata.kraft_values import UNKNOWN_DIRECTORY
from klog.cluster_metadata.log_sizes import LogSize, log_size, partitions_by_directory
from klog.cluster_metadata.metadata_versions import LATEST, level_of
from klog.cluster_metadata.model import METADATA_VERSION, Cluster
from klog.cluster_metadata.translated_files import with_files
from klog.formats import partition_metadata
from klog.formats.errors import UsageError
from klog.formats.names import FileKind
from klog.formats.partition_metadata import PartitionMetadata
from klog.storage.files.directory_lock import require_no_holder

_PARTITION_METADATA_BYTES: Final = len(partition_metadata.build(PartitionMetadata(UNKNOWN_DIRECTORY)))


def plan(reading: Reading, target: Target) -> Plan:
    """The plan for the nodes whose properties files are given.

    Raises UsageError, StorageError (a directory cannot be formatted), `FormatError`.
    """
    if not target.configs or target.place is not None:
        raise UsageError(
            "--to kraft needs the properties files of the new nodes, and no other target",
            cure="--config FILE, once for each node whose directories are here",
        )
    require_secrets(reading.cluster)
    require_stopped(reading)
    nodes = [node_properties.read(file, target.node) for file in target.configs]
    layout = node_properties.layout_of(nodes, target.random_bytes)
    level = level_of(target.metadata_version or LATEST)
    scans = {node.node_id: scan(_present(node)) for node in layout.nodes if node.is_broker}
    found, changes = prepared(
        reading.cluster,
        layout,
        {broker: each.replicas for broker, each in scans.items()},
        {**target.features, METADATA_VERSION: level},
        next((each.password_secret for each in nodes if each.password_secret), None),
        target.random_bytes,
    )
    kraft_output.require_ids(found)
    held, losses = kraft_records.held(found)
    kraft_output.require_unused(held, layout)
    _require_no_holder(layout)
    snapshot = kraft_output.snapshot_of(held, layout, target.now_ms)
    controllers = tuple(node.metadata_directory for node in layout.nodes if node.is_controller)
    plan = Plan(
        tuple(_steps(held, layout, scans, sum(map(len, snapshot)), target.now_ms)),
        partial(kraft_output.write, held, layout, now_ms=target.now_ms, snapshot=snapshot),
        _read_back(held, layout),
        losses,
        changes,
        tuple(_problems(held, scans)),
        tuple(_logs(scans, looks_for_old=level >= KAFKA_4)),
        places=controllers,
        look_again=partial(_problems_after, held, layout),
    )
    return with_files(plan, [each.translation for each in nodes if each.translation])


def _read_back(cluster: Cluster, layout: Layout) -> Cluster:
    """The cluster as the snapshot has it, with the voters of a dynamic quorum."""
    if not layout.voters:
        return cluster
    features = {**cluster.features, KRAFT_VERSION: KRAFT_VERSION_OF_VOTERS}
    return replace(cluster, voters=layout.voters, features=features)


def _problems_after(cluster: Cluster, layout: Layout) -> Iterator[Problem]:
    """What is wrong in the directories of nodes that have been formatted."""
    for node in layout.nodes:
        for directory, directory_id in node.directories.items():
            found = identity(directory)
            own = (1, node.node_id, cluster.cluster_id, directory_id)
            if found is None or (found.version, found.node_id, found.cluster_id, found.directory_id) != own:
                yield Problem(directory, f"meta.properties is not that of node {node.node_id}")
        if node.is_broker:
            yield from replica_problems(cluster, scan(node.directories), node.node_id)
            for directory in node.directories:
                for path, partition in kraft_output.partitions_without_id(directory):
                    if partition.topic in cluster.topics:
                        yield Problem(path, "has no partition.metadata: a broker takes it for stray")


def _present(node: Node) -> dict[str, str | None]:
    return {path: each for path, each in node.directories.items() if os.path.isdir(path)}


def _require_no_holder(layout: Layout) -> None:
    for directory in layout.directories:
        if os.path.isdir(directory):
            require_no_holder(directory, "stop all nodes of the cluster first")


def _logs(scans: Mapping[int, Scan], *, looks_for_old: bool) -> Iterator[LogSize]:
    for node_id, each in scans.items():
        paths = (replica.path for replica in each.replicas.values())
        for directory, partitions in sorted(partitions_by_directory(paths).items()):
            yield log_size(directory, node_id, partitions, looks_for_old=looks_for_old)


def _problems(cluster: Cluster, scans: Mapping[int, Scan]) -> Iterator[Problem]:
    yield from problems_of(cluster)
    for broker, each in scans.items():
        yield from replica_problems(cluster, each, broker)


def _steps(
    cluster: Cluster, layout: Layout, scans: Mapping[int, Scan], snapshot_bytes: int, now_ms: int
) -> Iterator[Step]:
    bootstrap_bytes = len(kraft_output.bootstrap_content(cluster, now_ms))
    snapshot = os.path.join(METADATA_DIRECTORY, kraft_output.snapshot_id(cluster).file_name)
    topics = f"{len(cluster.topics):,} topics, {len(list(cluster.partitions)):,} partitions"
    for node in layout.nodes:
        roles = " and ".join(sorted(node.roles))
        for directory in node.directories:
            own = identity(directory)
            kept = f"; the old one becomes meta.properties{kraft_output.KEPT_SUFFIX}" if own else ""
            path = os.path.join(directory, FileKind.META_PROPERTIES)
            content = kraft_output.identity_content(directory, node, cluster.cluster_id)
            yield Step(path, f"{roles} {node.node_id}{kept}", len(content), node.node_id)
        if node.is_controller:
            path = os.path.join(node.metadata_directory, snapshot)
            yield Step(path, topics, snapshot_bytes, node.node_id)
        path = os.path.join(node.metadata_directory, FileKind.BOOTSTRAP_SNAPSHOT)
        yield Step(path, "features", bootstrap_bytes, node.node_id)
    for node_id, each in scans.items():
        without = [
            replica.log_directory
            for partition, replica in each.replicas.items()
            if replica.topic_id is None and partition.topic in cluster.topics
        ]
        for directory in sorted(set(without)):
            count = without.count(directory)
            what = f"partition.metadata with the topic id in {count:,} partitions"
            yield Step(directory, what, count * _PARTITION_METADATA_BYTES, node_id, count)
