"""The directories of the nodes of a KRaft cluster: who has which roles, where, with which directory ids."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from klog.cluster_metadata.model import Cluster, Voter
from klog.formats.meta_properties import MetaProperties
from klog.formats.names import FileKind, encode_uuid
from klog.storage.files.checkpoint_files import read_identity

# Of 2^128 ids, Kafka keeps the first hundred for directories that are not known (KIP-858).
_RESERVED_IDS = 100


class Role(StrEnum):
    """What a node does: a word of process.roles."""

    BROKER = "broker"
    CONTROLLER = "controller"


@dataclass(frozen=True, slots=True)
class Node:
    """A node with its directories (`log.dirs` and `metadata.log.dir`) and the id of each.

    `metadata_directory` is one of them: where `__cluster_metadata-0` is.
    """

    node_id: int
    roles: frozenset[Role]
    directories: Mapping[str, str]
    metadata_directory: str

    @property
    def is_broker(self) -> bool:
        """Whether its directories have partitions of topics."""
        return Role.BROKER in self.roles

    @property
    def is_controller(self) -> bool:
        """Whether it votes and leads the metadata log."""
        return Role.CONTROLLER in self.roles


@dataclass(frozen=True, slots=True)
class Layout:
    """The nodes of a cluster whose directories are here.

    `voters` are those of a dynamic quorum (KIP-853), each with the id of its metadata directory. They are
    empty if controller.quorum.voters names the voters of a static one.
    """

    nodes: tuple[Node, ...]
    voters: Mapping[int, Voter] = field(default_factory=dict)

    @property
    def directories(self) -> dict[str, Node]:
        """All directories, each with its node."""
        return {directory: node for node in self.nodes for directory in node.directories}


def with_directory_ids(directories: Iterable[str], random_bytes: Callable[[int], bytes]) -> dict[str, str]:
    """The directories' ids: those in their meta.properties, else new ones.

    Raises StorageError, `FormatError`.
    """
    return {directory: _directory_id(directory) or new_id(random_bytes) for directory in directories}


def _directory_id(directory: str) -> str | None:
    found = identity(directory)
    return found.directory_id if found is not None else None


def identity(directory: str) -> MetaProperties | None:
    """The meta.properties of a directory; None if it has none. Raises StorageError, FormatError."""
    return read_identity(os.path.join(directory, FileKind.META_PROPERTIES))


def new_id(random_bytes: Callable[[int], bytes]) -> str:
    """A new id that stands for nothing else. As in Kafka, it does not begin with a dash."""
    while True:
        raw = random_bytes(16)
        found = encode_uuid(raw)
        if int.from_bytes(raw, "big") >= _RESERVED_IDS and not found.startswith("-"):
            return found


def nodes_of(cluster: Cluster) -> set[int]:
    """The brokers that have replicas."""
    return {replica for _, each in cluster.partitions for replica in each.assignment.replicas}
