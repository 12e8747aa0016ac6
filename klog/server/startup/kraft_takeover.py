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
from klog.cluster_metadata.without_kraft import is_of_kraft, servable
from klog.config.broker import BrokerConfig
from klog.formats.errors import StorageError
from klog.formats.meta_properties import MetaProperties
from klog.metadata import paths, znodes
from klog.metadata.store import MetadataStore
from klog.server.startup.settings import log_directories
from klog.storage.log.data_directory import DataDirectory


@dataclass(frozen=True, slots=True)
class TakenOver:
    """What was read, and what of it the tree cannot hold. `is_new` if the tree did not have it already."""

    topics: int
    partitions: int
    is_new: bool
    remarks: tuple[str, ...]


def require_no_kraft(config: BrokerConfig, file: str | None) -> None:
    """Refuses the configs of a KRaft node, unless its directories were taken over. Changes nothing.

    Raises `StorageError`.
    """
    roles = config["process.roles"]
    if not isinstance(roles, tuple) or not roles:
        return
    identities = {each: _identity(each) for each in log_directories(config)}
    if not is_of_kraft(identities) and any(identities.values()):
        return
    kind = "a combined KRaft node (broker and controller)" if len(roles) > 1 else f"a KRaft {roles[0]}"
    own_id = config.explicit("node.id")
    node = "" if own_id is None else f", node {own_id}"
    raise StorageError(
        f"these are the configs of {kind}{node}, and klog has no KRaft",
        file=file,
        cure="stop the node; then 'klog adopt' with the same options takes its metadata over",
    )


def _identity(directory: str) -> MetaProperties | None:
    return DataDirectory(directory).read_identity() if os.path.isdir(directory) else None


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
    cluster, kept_back = servable(reading.cluster)
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
    remarks = (*reading.details, *reading.notes, *kept_back, *losses)
    return TakenOver(len(cluster.topics), len(list(cluster.partitions)), is_new, remarks)
