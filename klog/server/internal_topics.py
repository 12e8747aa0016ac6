"""The settings with which the coordinators' topics are created.

Rules: Kafka's `GroupCoordinator.offsetsTopicConfigs` and `TransactionStateManager`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from klog.config.broker import BrokerConfig
from klog.server.handlers.topic_metadata import CONSUMER_OFFSETS, TRANSACTION_STATE


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
