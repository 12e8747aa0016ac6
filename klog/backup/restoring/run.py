"""Carries out a restore: log directories by a plan, and the metadata that its brokers start with."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from klog.backup.model import Manifest
from klog.backup.repository import Repository
from klog.backup.restoring.cluster import Replicas, assigned, index_settings, restored_cluster
from klog.backup.restoring.histories import OnBytes, ignore_bytes
from klog.backup.restoring.log_directories import Layout, Written, write_log_directories
from klog.backup.restoring.plan import RestorePlan
from klog.backup.restoring.request import identity, metadata_of
from klog.backup.restoring.selection import RepositoryPieces
from klog.backup.restoring.target import RestoreTarget
from klog.cluster_metadata import json_form, tree_output
from klog.cluster_metadata.model import Cluster
from klog.formats.errors import StorageError, UsageError
from klog.formats.names import TopicPartition
from klog.metadata.embedded import FILE_NAME, EmbeddedStore
from klog.metadata.store import MetadataStore
from klog.storage.files.files import write_atomically

if TYPE_CHECKING:
    from klog.backup.restoring.kraft import KraftTarget

METADATA_FILE: Final = "cluster-metadata.json"


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """Where to, and for which brokers. Without `brokers` they are those of the backup, with their old
    assignment if it is known. `new_cluster_id` is used if the backup does not say the old one. `open_tree`
    opens the metadata tree of the new cluster, and `kraft` makes nodes of KRaft; without both, one broker
    gets klog's embedded tree, and several get a file in the JSON form. `moment` is the option that asks for
    the same moment at any time.
    """

    directory: str
    new_cluster_id: str
    brokers: tuple[int, ...] = ()
    replication_factor: int = 1
    open_tree: Callable[[], MetadataStore] | None = None
    kraft: KraftTarget | None = None
    jobs: int = 1
    moment: str = ""


@dataclass(frozen=True, slots=True)
class Restored:
    """What was written, the directory of each node, and in words what could not come back, or was changed."""

    written: Written
    directories: dict[int, str]
    losses: tuple[str, ...]
    changes: tuple[str, ...] = ()


def run_restore(
    repository: Repository,
    plan: RestorePlan,
    manifest: Manifest,
    options: TargetOptions,
    on_bytes: OnBytes = ignore_bytes,
) -> Restored:
    """Write what a plan says. Raises `UsageError` (a target that holds something else), `StorageError`, and
    other `KlogError`s; what was done stays, and the same call goes on there.
    """
    known = metadata_of(repository, manifest)
    replicas = _replicas(plan, known, manifest, options)
    brokers = sorted({broker for each in replicas.values() for broker in each} | set(options.brokers))
    if options.kraft is not None:
        from klog.backup.restoring.kraft import require_new_formats

        require_new_formats(plan, options.kraft, known)
    names = _directory_names(brokers, options.kraft)
    cluster_id = manifest.cluster_id or options.new_cluster_id
    layout = Layout(
        {broker: names[broker] for broker in brokers},
        replicas,
        cluster_id if options.kraft is None else None,
        index_settings(known, {each.view.partition.topic for each in plan.partitions}),
    )
    target = RestoreTarget(options.directory, identity(plan), options.moment)
    require_space(plan, replicas, target.path)
    directories = {node: os.path.join(target.path, name) for node, name in names.items()}
    losses: list[str] = []
    changes: list[str] = []

    def finish(written: Written) -> None:
        found = restored_cluster(known, cluster_id, plan, written, replicas)
        losses.extend(found.losses)
        if options.kraft is not None:
            from klog.backup.restoring.kraft import write_kraft

            formatted = write_kraft(found.cluster, options.kraft, known, directories, brokers)
            losses.extend(formatted.losses)
            changes.extend(formatted.changes)
        else:
            losses.extend(_write_metadata(found.cluster, target.path, options, is_single=len(brokers) == 1))

    written = write_log_directories(
        RepositoryPieces(repository),
        plan,
        target,
        layout,
        jobs=options.jobs,
        finish=finish,
        on_bytes=on_bytes,
    )
    return Restored(written, directories, tuple(losses), tuple(changes))


def _replicas(
    plan: RestorePlan, known: Cluster | None, manifest: Manifest, options: TargetOptions
) -> Replicas:
    if options.brokers:
        return assigned(plan, options.brokers, options.replication_factor)
    found: dict[TopicPartition, tuple[int, ...]] = {}
    for each in plan.partitions:
        original = each.view.partition
        topic = None if known is None else known.topics.get(original.topic)
        if topic is None or original.partition not in topic.partitions:
            return assigned(plan, [_only_broker(manifest)], 1)
        found[each.target] = topic.partitions[original.partition].assignment.target
    return found


def _directory_names(brokers: Sequence[int], kraft: KraftTarget | None) -> dict[int, str]:
    """The directory of each node below the target; one that is alone has the target itself."""
    nodes = brokers if kraft is None else list(kraft.roles(brokers))
    if len(nodes) == 1:
        return {nodes[0]: ""}
    return {each: f"broker-{each}" if each in brokers else f"controller-{each}" for each in nodes}


def _only_broker(manifest: Manifest) -> int:
    """The id of the broker that is restored without a known assignment. Raises `UsageError`."""
    ids = {each.broker_id for each in manifest.sources if each.broker_id is not None}
    if len(ids) > 1:
        listed = ",".join(map(str, sorted(ids)))
        raise UsageError(
            f"the backup is of the brokers {listed}, and does not say which has which replicas",
            cure=f"--brokers {listed} --replication-factor N places them anew; --brokers N makes one broker",
        )
    return next(iter(ids), 0)


def require_space(plan: RestorePlan, replicas: Replicas, path: str) -> None:
    """Raises `StorageError` if the target's file system has too little space."""
    needed = sum(each.size_bytes * len(replicas[each.target]) for each in plan.partitions)
    existing = path
    while not os.path.isdir(existing):
        existing = os.path.dirname(existing)
    free = shutil.disk_usage(existing).free
    present = (
        sum(entry.stat().st_size for entry in Path(path).rglob("*") if entry.is_file())
        if os.path.isdir(path)
        else 0
    )
    if free + present < needed:
        raise StorageError(
            f"the restore needs {needed} bytes, and its file system has {free} left",
            file=path,
            cure="free some space, or restore fewer topics with --topic",
        )


def _write_metadata(
    cluster: Cluster, path: str, options: TargetOptions, *, is_single: bool
) -> tuple[str, ...]:
    """Write the metadata, and say what its form could not hold."""
    if options.open_tree is None and not is_single:
        write_atomically(os.path.join(path, METADATA_FILE), json_form.encode(cluster, secrets=True))
        return ()
    if options.open_tree is not None:
        with closing(options.open_tree()) as tree:
            return tree_output.write(tree, cluster)
    for left in Path(path).glob(f"{FILE_NAME}*"):
        left.unlink()  # of a restore that was killed
    with closing(EmbeddedStore(Path(path) / FILE_NAME)) as tree:
        return tree_output.write(tree, cluster)
