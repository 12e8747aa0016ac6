"""The paths of the nodes in Kafka 3.9's tree. `znodes` defines what the nodes hold."""

from __future__ import annotations

from typing import Final

from klog.formats.names import PartitionKey, TopicPartition

CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
BROKER_IDS: Final = "/brokers/ids"
BROKER_SEQUENCE: Final = "/brokers/seqid"
TOPICS: Final = "/brokers/topics"
CONFIG: Final = "/config"
CONFIG_CHANGES: Final = "/config/changes"
CONFIG_CHANGE_PREFIX: Final = "/config/changes/config_change_"
DELETE_TOPICS: Final = "/admin/delete_topics"
PREFERRED_REPLICA_ELECTION: Final = "/admin/preferred_replica_election"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
ISR_CHANGES: Final = "/isr_change_notification"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX: Final = "/log_dir_event_notification/log_dir_event_"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"
CLUSTER_ID: Final = "/cluster/id"
FEATURE: Final = "/feature"
CONSUMERS: Final = "/consumers"

CONFIG_ENTITY_TYPES: Final = ("topics", "clients", "users", "brokers", "ips")
DEFAULT_ENTITY: Final = "<default>"

# Every broker creates these at its start if they are missing, in this order.
PERSISTENT: Final = (
    CONSUMERS,
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    *(f"{CONFIG}/{entity_type}" for entity_type in CONFIG_ENTITY_TYPES),
)


def broker(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    return f"{TOPICS}/{name}"


def partitions(topic_name: str) -> str:
    return f"{topic(topic_name)}/partitions"


def partition(topic_partition: TopicPartition) -> str:
    return f"{partitions(topic_partition.topic)}/{topic_partition.partition}"


def partition_state(topic_partition: TopicPartition) -> str:
    return f"{partition(topic_partition)}/state"


def config(entity_path: str) -> str:
    """The path of an entity's config.

    `entity_path` is sanitised: `topics/t1`, `brokers/<default>`, `users/alice/clients/c1`.
    """
    return f"{CONFIG}/{entity_path}"


def topic_config(topic_name: str) -> str:
    return config(f"topics/{topic_name}")


def delete_topic(name: str) -> str:
    return f"{DELETE_TOPICS}/{name}"


def consumer_offset(group_id: str, partition: PartitionKey) -> str:
    topic_name, number = partition
    return f"{CONSUMERS}/{group_id}/offsets/{topic_name}/{number}"
