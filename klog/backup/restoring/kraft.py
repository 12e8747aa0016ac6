"""The nodes of KRaft that a restore makes, and the metadata that they start with.

Brokers are controllers, too, unless others are named. The quorum is a static one: the nodes' properties
(`controller.quorum.voters`) name it. Partitions have no leader until a broker of their ISR registers.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from klog.backup.restoring.plan import RestorePlan
from klog.cluster_metadata import kraft_output
from klog.cluster_metadata.kraft_layout import Layout, Node, Role, with_directory_ids
from klog.cluster_metadata.kraft_log import METADATA_DIRECTORY
from klog.cluster_metadata.kraft_preparation import KAFKA_4, prepared
from klog.cluster_metadata.metadata_versions import LATEST, level_of
from klog.cluster_metadata.model import METADATA_VERSION, Cluster
from klog.formats.constants import MAGIC_V2
from klog.formats.errors import UsageError
from klog.formats.names import FileKind
from klog.storage.files.files import storage_error

# With it, a broker that is new counts as one that stopped uncleanly, and leaves the ISR (KIP-966).
_ELIGIBLE_LEADERS: Final = "eligible.leader.replicas.version"
_ELIGIBLE_LEADERS_OFF: Final = (
    f"feature {_ELIGIBLE_LEADERS}: turn it on when all brokers run (kafka-features upgrade --feature"
    f" {_ELIGIBLE_LEADERS}=1)"
)
_OF_NODE: Final = (FileKind.META_PROPERTIES, FileKind.BOOTSTRAP_SNAPSHOT, kraft_output.UNFINISHED)


@dataclass(frozen=True, slots=True)
class KraftTarget:
    """Nodes of KRaft. `controllers` are empty if all brokers are. `metadata_version` is a name, or None for
    that of the backup or else the latest.
    """

    now_ms: int
    random_bytes: Callable[[int], bytes]
    controllers: tuple[int, ...] = ()
    metadata_version: str | None = None

    def level(self, known: Cluster | None) -> int:
        """The level of `metadata.version`. Raises UsageError."""
        if self.metadata_version is None and known is not None and METADATA_VERSION in known.features:
            return known.features[METADATA_VERSION]
        return level_of(self.metadata_version or LATEST)

    def roles(self, brokers: Collection[int]) -> dict[int, frozenset[Role]]:
        """What each node does."""
        controllers = set(self.controllers or brokers)
        wanted = ((Role.BROKER, set(brokers)), (Role.CONTROLLER, controllers))
        return {
            node: frozenset(role for role, nodes in wanted if node in nodes)
            for node in sorted({*brokers, *controllers})
        }


class Formatted(NamedTuple):
    """What of the metadata was changed, and what could not come back, in words."""

    changes: tuple[str, ...]
    losses: tuple[str, ...]


def require_new_formats(plan: RestorePlan, target: KraftTarget, known: Cluster | None) -> None:
    """Raises `UsageError` if Kafka 4 cannot read what comes back."""
    old = sorted({each.target.topic for each in plan.partitions if each.batches.oldest_magic < MAGIC_V2})
    if old and target.level(known) >= KAFKA_4:
        raise UsageError(
            f"topic {old[0]} has message format 0 or 1, which Kafka 4 does not read",
            cure="restore without --kraft, then run klog convert --all and klog metadata convert --to kraft;"
            " or leave the topic out",
        )


def write_kraft(
    cluster: Cluster,
    target: KraftTarget,
    known: Cluster | None,
    paths: Mapping[int, str],
    brokers: Collection[int],
) -> Formatted:
    """Format the directories of all nodes, by node id.

    What a killed restore has left there of a node is removed first. Raises `KlogError`.
    """
    roles = target.roles(brokers)
    for node_id, path in paths.items():
        _remove_node(path, keeps_logs=Role.BROKER in roles[node_id])
    nodes = []
    for node_id, path in paths.items():
        nodes.append(Node(node_id, roles[node_id], with_directory_ids([path], target.random_bytes), path))
    layout = Layout(tuple(nodes))
    present = {name: each for name, each in cluster.features.items() if name != _ELIGIBLE_LEADERS}
    losses = [_ELIGIBLE_LEADERS_OFF] if _ELIGIBLE_LEADERS in cluster.features else []
    found = prepared(
        replace(cluster, features=present),
        layout,
        {},
        {METADATA_VERSION: target.level(known)},
        None,
        target.random_bytes,
    )
    losses += kraft_output.write(found.cluster, layout, now_ms=target.now_ms)
    return Formatted(found.changes, tuple(losses))


def _remove_node(path: str, *, keeps_logs: bool) -> None:
    try:
        if not keeps_logs:
            shutil.rmtree(path, ignore_errors=not os.path.exists(path))
            return
        for name in _OF_NODE:
            if os.path.exists(file := os.path.join(path, name)):
                os.unlink(file)
        log = os.path.join(path, METADATA_DIRECTORY)
        if os.path.exists(log):
            shutil.rmtree(log)
    except OSError as error:
        raise storage_error("cannot be removed", path, error) from error
