"""The immutable values that the tree, the controller and the brokers exchange.

Topic ids are text of 22 characters, as in the tree and in file `partition.metadata`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple

from klog.formats.names import TopicPartition

INITIAL_LEADER_EPOCH = 0
INITIAL_PARTITION_EPOCH = 0
ZERO_TOPIC_ID = "A" * 22


class TopicIdPartition(NamedTuple):
    """A partition as brokers name it to the controller.

    The id distinguishes topics that had the same name.
    """

    topic_id: str
    partition: int


class Endpoint(NamedTuple):
    """An address of a broker, as it is advertised for one listener."""

    listener: str
    security_protocol: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A live broker. `epoch` is the czxid of its registration, which is higher after each restart."""

    broker_id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    epoch: int = -1
    features: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    jmx_port: int = -1
    timestamp_ms: int = -1

    def endpoint(self, listener: str) -> Endpoint | None:
        """The address of this broker on a listener, or None."""
        return next((each for each in self.endpoints if each.listener == listener), None)


class LeaderRecoveryState(IntEnum):
    """RECOVERING from an unclean election until the leader reports that it has recovered (KIP-704)."""

    RECOVERED = 0
    RECOVERING = 1


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """The leader and the ISR of a partition. `partition_epoch` is the version of its znode."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED
    partition_epoch: int = INITIAL_PARTITION_EPOCH

    def next_epoch(self, leader: int, isr: tuple[int, ...], unclean: bool = False) -> LeaderAndIsr:
        """The same partition with this leader and ISR in the next leader epoch."""
        state = LeaderRecoveryState.RECOVERING if unclean else self.recovery_state
        return replace(self, leader=leader, isr=isr, leader_epoch=self.leader_epoch + 1, recovery_state=state)


@dataclass(frozen=True, slots=True)
class LeaderIsrAndControllerEpoch:
    """The `state` znode of a partition: its leader and ISR, and the epoch of the controller that wrote it."""

    leader_and_isr: LeaderAndIsr
    controller_epoch: int


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """The brokers that have replicas of a partition, preferred leader first.

    During a reassignment, `replicas` holds the target replicas and, after them, those that will be removed.
    """

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
        """The assignment during a reassignment to `target`.

        It keeps the replicas that this assignment started from.
        """
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
    """A topic's znode: its id (None if an old broker created it) and the replicas of each partition."""

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
    """The producer ids from `first` to `last`, inclusive, which one broker may use."""

    broker_id: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class FinalizedFeatures:
    """The `/feature` znode. `status` 1 means that the features are enabled (KIP-584)."""

    features: Mapping[str, int]
    status: int = 1
    version: int = 2
