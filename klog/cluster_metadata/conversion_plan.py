"""What a conversion to another form will do. A plan is made without changing anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from klog.cluster_metadata.consistency import Problem
from klog.cluster_metadata.log_sizes import LogSize
from klog.cluster_metadata.model import Cluster
from klog.config.kraft_properties import KRaftNode
from klog.config.properties_draft import Change
from klog.metadata.zookeeper_access import PLAIN_ACCESS, ZooKeeperAccess


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
    """A file or directory that is written, what it gets, how many bytes if known, and for which node."""

    where: str
    what: str
    size_bytes: int | None = None
    node_id: int | None = None


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

    @property
    def old_partitions(self) -> tuple[str, ...]:
        """The directories of partitions in message formats that the target does not read."""
        return tuple(path for each in self.logs for path in each.old_partitions)
