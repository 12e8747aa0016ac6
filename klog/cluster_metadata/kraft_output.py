"""Formats the directories of KRaft nodes with a cluster's metadata, so that real Kafka starts on them.

Each controller gets a snapshot of the metadata log, and no log: Kafka begins one at the snapshot's end.
Brokers without that role fetch the snapshot. Each directory gets a `meta.properties` in version 1, and each
partition without `partition.metadata` the id of its topic, because a KRaft broker sets partitions without
an id aside as stray.

A kill at any moment can be repeated. No node starts before its `meta.properties` are there, which come last;
until the end a file in the metadata directory of the first node says that the work has begun.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence

from klog.cluster_metadata import kraft_records, kraft_snapshot
from klog.cluster_metadata.forms import require_secrets
from klog.cluster_metadata.kraft_layout import Layout, Node, identity
from klog.cluster_metadata.kraft_log import METADATA_DIRECTORY
from klog.cluster_metadata.kraft_snapshot import SnapshotId
from klog.cluster_metadata.model import METADATA_VERSION, Cluster
from klog.formats import meta_properties, partition_metadata
from klog.formats.constants import INT64_MAX
from klog.formats.errors import StorageError, UsageError
from klog.formats.names import DirectoryState, FileKind, TopicPartition, parse_directory
from klog.formats.partition_metadata import PartitionMetadata
from klog.metadata.embedded import FILE_NAME
from klog.storage.files.directory_lock import locked
from klog.storage.files.file_system_sync import can_sync_file_system, sync_file_system
from klog.storage.files.files import atomic_output, storage_error, sync_directory, write_atomically
from klog.storage.files.kafka_files import partition_directories

KEPT_SUFFIX = ".zookeeper"
"""Ends the name of a `meta.properties` that was replaced, and of klog's own tree that no longer counts."""
UNFINISHED = "klog-format.unfinished"
"""The file that says that a cluster's directories are being formatted."""
# SQLite's main file comes first.
_TREE = (FILE_NAME, f"{FILE_NAME}-wal", f"{FILE_NAME}-shm")
# What a process that was killed leaves of `atomic_output`.
_LEFTOVER = re.compile(rf"(.+{re.escape(KEPT_SUFFIX)}|{FileKind.PARTITION_METADATA})\.[0-9]+\.tmp")


def snapshot_of(cluster: Cluster, layout: Layout, now_ms: int) -> tuple[bytes, ...]:
    """The batches of the snapshot that all controllers of a layout get."""
    values = kraft_records.values(cluster)
    return tuple(kraft_snapshot.batches(values, cluster.controller_epoch, now_ms, layout.voters))


def write(
    cluster: Cluster, layout: Layout, *, now_ms: int, snapshot: Sequence[bytes] | None = None
) -> tuple[str, ...]:
    """Formats all directories of a layout, and returns what the metadata version cannot hold.

    The snapshot is that of the cluster; one that was made before may be given.

    The cluster needs an id, a `metadata.version` among its features, and an id for each topic. Directories
    may have partitions, and a meta.properties of a node without KRaft, which is kept beside it. Raises
    UsageError (the cluster lacks something), StorageError (a directory is in use, belongs to another node or
    cluster, or was formatted before; the disk fails), `FormatError`.
    """
    found, losses = _writable(cluster)
    with contextlib.ExitStack() as locks:
        for directory in layout.directories:
            _make(directory)
            locks.enter_context(locked(directory))
        first = layout.nodes[0].metadata_directory
        journal = os.path.join(first, UNFINISHED)
        require_unused(found, layout)
        with _disk_errors(first):
            open(journal, "wb").close()
            sync_directory(first)
            content = snapshot_of(found, layout, now_ms) if snapshot is None else snapshot
            _write_files(found, layout, now_ms, content)
            os.unlink(journal)
            sync_directory(first)
    return losses


def _writable(cluster: Cluster) -> tuple[Cluster, tuple[str, ...]]:
    require_secrets(cluster)
    require_ids(cluster)
    return kraft_records.held(cluster)


def require_ids(cluster: Cluster) -> None:
    """Refuses a cluster without the ids that records need: each topic has its own. Raises UsageError."""
    if cluster.cluster_id is None:
        raise UsageError("the cluster has no id", cure="give it one (kafka-storage random-uuid)")
    if METADATA_VERSION not in cluster.features:
        raise UsageError("the cluster has no metadata.version, which KRaft's records follow from")
    without = [name for name, topic in sorted(cluster.topics.items()) if topic.topic_id is None]
    if without:
        raise UsageError(f"topic {without[0]} has no id, which KRaft needs", cure="give each topic an id")
    owners: dict[str | None, str] = {}
    for name, topic in sorted(cluster.topics.items()):
        owner = owners.setdefault(topic.topic_id, name)
        if owner != name:
            raise UsageError(
                f"topics {owner} and {name} have the same id, {topic.topic_id}: KRaft would have one of them",
                cure="mend it in the JSON form",
            )


def require_unused(cluster: Cluster, layout: Layout) -> None:
    """Raises StorageError if a directory cannot be formatted: another's, formatted before, or in use."""
    has_begun = os.path.exists(os.path.join(layout.nodes[0].metadata_directory, UNFINISHED))
    for directory, node in layout.directories.items():
        _require_same_owner(directory, node, cluster)
        own = identity(directory)
        is_formatted = own is not None and own.version != 0
        log = os.path.join(directory, METADATA_DIRECTORY)
        bootstrap = os.path.join(directory, FileKind.BOOTSTRAP_SNAPSHOT)
        if (is_formatted or os.path.exists(log) or os.path.exists(bootstrap)) and not has_begun:
            raise StorageError(
                "the directory has metadata of KRaft already; nothing was changed",
                file=directory,
                cure="name an empty one; if its metadata is worthless, move it away first",
            )
        if os.path.isdir(log) and any(not _is_snapshot(name) for name in os.listdir(log)):
            raise StorageError(
                "a KRaft node was started on the directory before all were formatted",
                file=log,
                cure="stop all nodes, move this directory away and run the command again",
            )


def _is_snapshot(name: str) -> bool:
    """Whether a file in the metadata log's directory is the snapshot, or what is left of writing it."""
    return f".{FileKind.METADATA_SNAPSHOT}" in name


def _require_same_owner(directory: str, node: Node, cluster: Cluster) -> None:
    found = identity(directory)
    if found is None:
        return
    for what, is_own in (
        (f"cluster {found.cluster_id}", found.cluster_id in (None, cluster.cluster_id)),
        (f"node {found.node_id}", found.node_id in (None, node.node_id)),
    ):
        if not is_own:
            own = f"node {node.node_id} of cluster {cluster.cluster_id}"
            raise StorageError(
                f"the directory belongs to {what}, this is {own}",
                file=directory,
                cure="check node.id and log.dirs",
            )


def _write_files(cluster: Cluster, layout: Layout, now_ms: int, content: Sequence[bytes]) -> None:
    for directory, node in layout.directories.items():
        _remove_leftovers(directory)
        if node.is_broker:
            write_topic_ids(directory, cluster)
    _write_snapshots(layout, snapshot_id(cluster).file_name, content)
    _write_bootstraps(cluster, layout, now_ms)
    # What makes a node start comes last.
    for directory, node in layout.directories.items():
        _write_identity(directory, node, cluster.cluster_id)
    for directory in layout.directories:
        _set_tree_aside(directory)


def _write_snapshots(layout: Layout, file_name: str, content: Iterable[bytes]) -> None:
    for node in layout.nodes:
        log = os.path.join(node.metadata_directory, METADATA_DIRECTORY)
        if os.path.isdir(log):
            shutil.rmtree(log)
        if node.is_controller:
            os.mkdir(log)
            with atomic_output(os.path.join(log, file_name)) as file:
                file.writelines(content)
            sync_directory(node.metadata_directory)


def snapshot_id(cluster: Cluster) -> SnapshotId:
    """The place of the snapshot. It is after the brokers' epochs, which are offsets of the log, too."""
    epochs = (broker.epoch for broker in cluster.brokers.values())
    partitions = sum(len(topic.partitions) for topic in cluster.topics.values())
    return SnapshotId(min(1 + max((partitions, *epochs)), INT64_MAX), cluster.controller_epoch)


def bootstrap_content(cluster: Cluster, now_ms: int) -> bytes:
    """What `kafka-storage format` writes: the features, for a node that has no metadata log."""
    features = Cluster(features=cluster.features)
    return b"".join(kraft_snapshot.batches(kraft_records.values(features), 0, now_ms, {}))


def _write_bootstraps(cluster: Cluster, layout: Layout, now_ms: int) -> None:
    data = bootstrap_content(cluster, now_ms)
    for node in layout.nodes:
        write_atomically(os.path.join(node.metadata_directory, FileKind.BOOTSTRAP_SNAPSHOT), data)


def write_topic_ids(directory: str, cluster: Cluster) -> int:
    """Gives the partitions of a log directory that have none their topics' ids; returns how many.

    Raises StorageError.
    """
    written = []
    for path, partition in partitions_without_id(directory):
        topic = cluster.topics.get(partition.topic)
        if topic is None or topic.topic_id is None:
            continue
        _remove_leftovers(path)
        file = os.path.join(path, FileKind.PARTITION_METADATA)
        data = partition_metadata.build(PartitionMetadata(topic.topic_id))
        write_atomically(file, data, sync=not can_sync_file_system())
        written.append(path)
    if written and can_sync_file_system():
        sync_file_system(directory)
    return len(written)


def partitions_without_id(directory: str) -> Iterator[tuple[str, TopicPartition]]:
    """The directories of partitions that have no partition.metadata. Raises StorageError."""
    for path in partition_directories(directory):
        name = parse_directory(os.path.basename(path))
        is_current = name.state is DirectoryState.CURRENT and os.path.basename(path) != METADATA_DIRECTORY
        if is_current and not os.path.exists(os.path.join(path, FileKind.PARTITION_METADATA)):
            yield path, name.partition


def _write_identity(directory: str, node: Node, cluster_id: str | None) -> None:
    path = os.path.join(directory, FileKind.META_PROPERTIES)
    old = identity(directory)
    if old is not None and old.version == 0:
        write_atomically(path + KEPT_SUFFIX, meta_properties.build(old))
    write_atomically(path, identity_content(directory, node, cluster_id))


def identity_content(directory: str, node: Node, cluster_id: str | None) -> bytes:
    """The `meta.properties` of a node's directory."""
    properties = meta_properties.create(
        1,
        node_id=node.node_id,
        cluster_id=cluster_id,
        directory_id=node.directories[directory],
        comments=("",),
    )
    return meta_properties.build(properties)


def _set_tree_aside(directory: str) -> None:
    """Keeps klog's own tree under another name: as it is, it would count again after `klog adopt`.

    The main file goes first. Without it the others mean nothing, and with them it is whole.
    """
    present = [path for name in _TREE if os.path.exists(path := os.path.join(directory, name))]
    for path in present:
        with open(path, "rb") as source, atomic_output(path + KEPT_SUFFIX) as copy:
            shutil.copyfileobj(source, copy)
    for path in present:
        os.unlink(path)
    if present:
        sync_directory(directory)


def _remove_leftovers(directory: str) -> None:
    for name in os.listdir(directory):
        if _LEFTOVER.fullmatch(name):
            os.unlink(os.path.join(directory, name))


def _make(directory: str) -> None:
    with _disk_errors(directory):
        if not os.path.isdir(directory):
            os.makedirs(directory)
            sync_directory(os.path.dirname(os.path.abspath(directory)))


@contextlib.contextmanager
def _disk_errors(directory: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise storage_error("cannot be formatted", error.filename or directory, error) from error
