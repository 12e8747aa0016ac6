"""Makes the log directory of a broker that serves a moment of a repository.

The directory has the metadata, the coordinators' topics as a restore would write them, and of all other
partitions only what comes after the cut: markers that are added. Their records stay in the repository.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from klog.backup.model import Manifest
from klog.backup.moment.decisions import TRANSACTION_TOPIC
from klog.backup.repository import Repository
from klog.backup.restoring.cluster import assigned, index_settings, restored_cluster
from klog.backup.restoring.log_directories import Layout, Written, write_log_directories
from klog.backup.restoring.plan import PlannedPartition, RestorePlan
from klog.backup.restoring.request import identity, metadata_of
from klog.backup.restoring.selection import RepositoryPieces
from klog.backup.restoring.target import RestoreTarget
from klog.backup.serving.blocks import BlockCache, Streams
from klog.backup.serving.records import BackupRecords, Shared
from klog.client.admin import ResourceType
from klog.cluster_metadata import tree_output
from klog.cluster_metadata.model import Cluster
from klog.formats.names import CONSUMER_OFFSETS, TopicPartition
from klog.metadata.embedded import FILE_NAME, EmbeddedStore

_COPIED: Final = frozenset({CONSUMER_OFFSETS, TRANSACTION_TOPIC})


@dataclass(frozen=True, slots=True)
class ServedMoment:
    """The log directory belongs to this broker; `records` are those that stay in the repository. `losses` say
    what could not come back.
    """

    broker_id: int
    records: Mapping[TopicPartition, BackupRecords]
    losses: tuple[str, ...]


@contextmanager
def served_moment(
    repository: Repository,
    plan: RestorePlan,
    manifest: Manifest,
    directory: str,
    new_cluster_id: str,
    *,
    jobs: int = 1,
) -> Iterator[ServedMoment]:
    """Fill an empty directory. `new_cluster_id` is used if the backup does not say the old one.

    Raises `KlogError`s.
    """
    known = metadata_of(repository, manifest)
    broker_id = min((each.broker_id for each in manifest.sources if each.broker_id is not None), default=0)
    replicas = assigned(plan, [broker_id], 1)
    cluster_id = manifest.cluster_id or new_cluster_id
    settings = index_settings(known, {each.view.partition.topic for each in plan.partitions})
    layout = Layout({broker_id: ""}, replicas, cluster_id, settings)
    source = RepositoryPieces(repository)
    losses: list[str] = []

    def finish(written: Written) -> None:
        found = restored_cluster(known, cluster_id, plan, written, replicas)
        losses.extend(found.losses)
        with closing(EmbeddedStore(Path(directory) / FILE_NAME)) as tree:
            losses.extend(tree_output.write(tree, _without_its_brokers(found.cluster)))

    target = RestoreTarget(directory, identity(plan))
    write_log_directories(source, plan, target, layout, jobs=jobs, finish=finish, stays=_stays)
    streams = Streams(source)
    shared = Shared(streams, BlockCache(), repository.store.path_of)
    records = {
        each.target: BackupRecords(shared, each.view, each.cut, each.target)
        for each in plan.partitions
        if _stays(each)
    }
    try:
        yield ServedMoment(broker_id, records, tuple(losses))
    finally:
        streams.close()


def _stays(planned: PlannedPartition) -> bool:
    return planned.view.partition.topic not in _COPIED


def _without_its_brokers(cluster: Cluster) -> Cluster:
    """The metadata without what the brokers of the old cluster were told to do."""
    of_brokers = (ResourceType.BROKER, ResourceType.BROKER_LOGGER)
    configs = {
        resource: values for resource, values in cluster.configs.items() if resource.type not in of_brokers
    }
    return replace(cluster, configs=configs, quotas={})
