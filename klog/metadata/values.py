"""The values that travel between the tree, the controller and the brokers. All immutable.

Topic ids are their 22-character text, as in the tree and in file `partition.metadata`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple

from klog.formats.names import TopicPartition

NO_LEADER = -1
INITIAL_LEADER_EPOCH = 0
INITIAL_PARTITION_EPOCH = 0
ZERO_TOPIC_ID = "A" * 22


class TopicIdPartition(NamedTuple):
    """A partition as brokers name it to the controller: a topic of the same name may be another by then."""

    topic_id: str
    partition: int


class Endpoint(NamedTuple):
    """Where a broker listens, as it wants to be reached."""

    listener: str
    security_protocol: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A live broker. `epoch` is the czxid of its registration: a restarted broker has a higher one."""

    broker_id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    epoch: int = -1
    features: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    jmx_port: int = -1
    timestamp_ms: int = -1

    def endpoint(self, listener: str) -> Endpoint | None:
        """Where this broker is reached by way of one listener name."""
        return next((each for each in self.endpoints if each.listener == listener), None)


class LeaderRecoveryState(IntEnum):
    """RECOVERING after an unclean election, until the leader says that it has recovered (KIP-704)."""

    RECOVERED = 0
    RECOVERING = 1


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """Who leads a partition and who is in sync. `partition_epoch` is the version of its znode."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED
    partition_epoch: int = INITIAL_PARTITION_EPOCH

    def next_epoch(self, leader: int, isr: tuple[int, ...], unclean: bool = False) -> LeaderAndIsr:
        """The same partition under a new leader epoch."""
        state = LeaderRecoveryState.RECOVERING if unclean else self.recovery_state
        return replace(self, leader=leader, isr=isr, leader_epoch=self.leader_epoch + 1, recovery_state=state)


@dataclass(frozen=True, slots=True)
class LeaderIsrAndControllerEpoch:
    """A partition's `state` znode: who leads, and the epoch of the controller that wrote it."""

    leader_and_isr: LeaderAndIsr
    controller_epoch: int


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """The brokers that hold a partition, preferred leader first. While it is being reassigned `replicas`
    holds the target's and, after them, those that will go."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def target(self) -> tuple[int, ...]:
        return tuple(each for each in self.replicas if each not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        return tuple(each for each in self.replicas if each not in self.adding)

    @property
    def is_being_reassigned(self) -> bool:
        return bool(self.adding or self.removing)

    def reassign_to(self, target: tuple[int, ...]) -> ReplicaAssignment:
        """On the way to `target`, from where this one is or came from."""
        origin = self.origin
        full = target + tuple(each for each in origin if each not in target)
        return ReplicaAssignment(
            full,
            tuple(each for each in full if each not in origin),
            tuple(each for each in origin if each not in target),
        )

    def without(self, broker_id: int) -> ReplicaAssignment:
        def rest(ids: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(each for each in ids if each != broker_id)

        return ReplicaAssignment(rest(self.replicas), rest(self.adding), rest(self.removing))


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """A topic's znode: its id (None when an old broker created it) and the replicas of each partition."""

    topic: str
    topic_id: str | None
    partitions: Mapping[int, ReplicaAssignment]

    def __iter__(self) -> Iterator[tuple[TopicPartition, ReplicaAssignment]]:
        for partition, assignment in sorted(self.partitions.items()):
            yield TopicPartition(self.topic, partition), assignment


@dataclass(frozen=True, slots=True)
class ControllerRegistration:
    """The `/controller` znode."""

    broker_id: int
    timestamp_ms: int = -1
    kraft_controller_epoch: int = -1


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """The producer ids from `first` to `last`, both included, that one broker may give out."""

    broker_id: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class FinalizedFeatures:
    """The `/feature` znode. `status` 1 means that the features are in force (KIP-584)."""

    features: Mapping[str, int]
    status: int = 1
    version: int = 2
