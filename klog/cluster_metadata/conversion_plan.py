"""What a conversion to another form will do. A plan is made without changing anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from klog.cluster_metadata.consistency import Problem
from klog.cluster_metadata.log_sizes import LogSize
from klog.cluster_metadata.model import Cluster
from klog.config.kraft_properties import KRaftNode
from klog.config.properties_draft import Change
from klog.metadata.zookeeper_access import PLAIN_ACCESS, ZooKeeperAccess

# Nodes of a ZooKeeper on a local disk, which are written many at a time. Small files take less.
_PIECES_A_SECOND: Final = 10_000


@dataclass(frozen=True, slots=True)
class Target:
    """Where to write, and how: a file, directory or address, or the properties files of KRaft nodes.

    `node` says of a file for ZooKeeper what it does not say itself, `access` how a ZooKeeper is written.
    """

    now_ms: int
    random_bytes: Callable[[int], bytes]
    place: str | None = None
    configs: tuple[str, ...] = ()
    metadata_version: str | None = None
    features: Mapping[str, int] = field(default_factory=dict)
    node: KRaftNode = field(default_factory=KRaftNode)
    access: ZooKeeperAccess = PLAIN_ACCESS


class ConfigChange(NamedTuple):
    """What becomes of a config of a properties file."""

    file: str
    change: Change


class Step(NamedTuple):
    """Where is written what, how many bytes, for which node, and in how many pieces (nodes of a tree)."""

    where: str
    what: str
    size_bytes: int
    node_id: int | None = None
    pieces: int = 1


@dataclass(frozen=True, slots=True)
class Plan:
    """What is written, changed on the way, and lost; what is wrong; and the writing itself.

    `written` is the cluster as it will be read from each of the `places`. `logs` are the log directories of
    the nodes, which stay as they are; `look_again` says after the writing what is wrong there. `configs` are
    the changes in properties files that are translated.
    """

    steps: tuple[Step, ...]
    write: Callable[[], object]
    written: Cluster
    losses: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    logs: tuple[LogSize, ...] = ()
    configs: tuple[ConfigChange, ...] = ()
    places: tuple[str, ...] = ()
    look_again: Callable[[], Iterable[Problem]] = tuple

    def writing_seconds(self, planning_seconds: float) -> float:
        """About how long it takes to write all and to check it, if reading and planning took so long.

        What was written is read back and compared, as the source was.
        """
        return planning_seconds + sum(each.pieces for each in self.steps) / _PIECES_A_SECOND

    @property
    def old_partitions(self) -> tuple[str, ...]:
        """The directories of partitions in message formats that the target does not read."""
        return tuple(path for each in self.logs for path in each.old_partitions)
