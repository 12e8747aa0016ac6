"""Takes the metadata of a KRaft node over into the metadata tree: `klog adopt` on a directory of Kafka 4.

The metadata log stays as it is. `meta.properties` becomes that of a broker without KRaft, and what it was is
kept as `meta.properties.kraft`, so that the way back is to put it in its place again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from klog.cluster_metadata import kraft_form, tree_output
from klog.cluster_metadata.forms import OnProblem
from klog.cluster_metadata.kraft_log import is_kraft_directory
from klog.cluster_metadata.without_kraft import cluster_without_kraft
from klog.config.broker import BrokerConfig
from klog.formats.errors import StorageError
from klog.metadata import paths, znodes
from klog.metadata.store import MetadataStore


@dataclass(frozen=True, slots=True)
class TakenOver:
    """What was read, and what of it the tree cannot hold. `is_new` if the tree did not have it already."""

    topics: int
    partitions: int
    is_new: bool
    remarks: tuple[str, ...]


def metadata_directories(config: BrokerConfig, directories: Sequence[str]) -> list[str]:
    """Where the metadata logs of a node are: in metadata.log.dir, or in the log directories.

    metadata.log.dir may name those of several controllers, with commas.
    """
    own = config.text("metadata.log.dir")
    named = list(directories) if not own else [own] if os.path.isdir(own) else own.split(",")
    return [each for each in named if is_kraft_directory(each)]


def take_over(
    store: MetadataStore, config: BrokerConfig, directories: Sequence[str], on_problem: OnProblem
) -> TakenOver:
    """Writes the metadata of the node that the directories belong to, if the tree does not have it.

    Raises `StorageError` (no metadata log, another cluster, a tree that is not empty), `FormatError`,
    `StoreError`; what `on_problem` does not raise is left out.
    """
    places = metadata_directories(config, directories)
    if not places:
        raise StorageError(
            "the directory belongs to a KRaft node, but its metadata log is not in log.dirs",
            file=directories[0],
            cure="-o metadata.log.dir=DIR, where __cluster_metadata-0 is",
        )
    reading = kraft_form.read(places, on_problem)
    cluster, kept_back = cluster_without_kraft(reading.cluster)
    present = store.get_many([paths.CLUSTER_ID])[0]
    losses: tuple[str, ...] = ()
    is_new = present is None or znodes.is_unfinished_tree(present.data)
    if is_new:
        losses = tree_output.write(store, cluster)
    elif present is not None and znodes.decode_cluster_id(present.data) != cluster.cluster_id:
        raise StorageError(
            f"the directory belongs to cluster {cluster.cluster_id}, the metadata store to another one",
            file=places[0],
            cure="check zookeeper.connect and log.dirs",
        )
    not_taken = (f"not taken over: {loss}" for loss in losses)
    remarks = (*reading.details, *reading.notes, *kept_back, *not_taken)
    return TakenOver(len(cluster.topics), len(list(cluster.partitions)), is_new, remarks)
