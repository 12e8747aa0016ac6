"""The coordinators' topics: the settings of new ones, and the partitions that this broker leads.

Rules: Kafka's `GroupCoordinator.offsetsTopicConfigs` and `TransactionStateManager`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from klog.config.broker import BrokerConfig
from klog.coordinator.runtime.ownership import WhenReplicated
from klog.coordinator.transactions.coordinator import TRANSACTION_STATE
from klog.formats.names import CONSUMER_OFFSETS, TopicPartition
from klog.metadata.store import MetadataStore
from klog.metadata.topics import read_topics
from klog.replication.internal_append import InternalAppends
from klog.replication.replica_manager import ReplicaManager
from klog.storage.log.partition_log import PartitionLog

# After each slice, which takes less than half as long. A pause as short as a slice doubled the latency of
# producers meanwhile.
_PAUSE_S: Final = 0.00015


class InternalTopic(NamedTuple):
    """How an internal topic is created: `configs` are its own, not the broker's defaults."""

    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


def internal_topic(name: str, config: BrokerConfig) -> InternalTopic | None:
    """The settings of a topic of the coordinators; None for other topics."""
    if name == CONSUMER_OFFSETS:
        prefix = "offsets.topic"
        configs = {"compression.type": "producer"}
    elif name == TRANSACTION_STATE:
        prefix = "transaction.state.log"
        configs = {
            "unclean.leader.election.enable": "false",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(config.number("transaction.state.log.min.isr")),
        }
    else:
        return None
    configs |= {"cleanup.policy": "compact", "segment.bytes": str(config.number(f"{prefix}.segment.bytes"))}
    return InternalTopic(
        config.number(f"{prefix}.num.partitions"), config.number(f"{prefix}.replication.factor"), configs
    )


def partition_count(store: MetadataStore, topic: str, if_new: int) -> int:
    """How many partitions a topic has; `if_new` if it is still to be created."""
    found = read_topics(store, [topic]).get(topic)
    return if_new if found is None else len(found.partitions)


def led_logs(replicas: ReplicaManager, topic: str) -> Callable[[int], PartitionLog | None]:
    """Finds the log of a partition of the topic that this broker leads; None if it does not lead it."""

    def log_of(number: int) -> PartitionLog | None:
        partition = replicas.partitions.get((topic, number))
        return partition.log if partition is not None and partition.state.is_leader else None

    return log_of


def when_replicated(appends: InternalAppends, topic: str) -> WhenReplicated:
    """Tells a coordinator when the records of a partition of the topic are replicated."""

    def ask(number: int, then: Callable[[], object]) -> bool:
        return appends.when_replicated(TopicPartition(topic, number), then)

    return ask


def pause_loading() -> None:
    """Let other threads have the interpreter while a partition is loaded."""
    time.sleep(_PAUSE_S)
