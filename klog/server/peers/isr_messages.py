"""AlterPartition as a broker sends it: proposals as a request, and what the response says of each partition.

Rules: KIP-497; KIP-704 (leaders report that they have recovered), KIP-841, KIP-903 (the epochs of the ISR's
members, which a controller on ZooKeeper's tree does not compare: they are unknown).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from klog.formats.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity, Value
from klog.protocol.error_codes import ErrorCode
from klog.protocol.messages import build, request_class
from klog.replication.alter_partition import IsrAccepted, IsrProposal
from klog.server.peers.broker_messages import known_error

_RECOVERED: Final = 0


def alter_partition_request(
    version: int,
    broker_id: int,
    broker_epoch: int,
    proposals: Mapping[TopicPartition, IsrProposal],
    topic_ids: Mapping[str, UUID],
) -> Entity:
    """The request for these proposals. Topics without an id are left out, because no version names them."""
    by_topic: dict[UUID, list[Mapping[str, Value]]] = {}
    for (topic, number), proposal in proposals.items():
        topic_id = topic_ids.get(topic)
        if topic_id is not None:
            by_topic.setdefault(topic_id, []).append(_partition(number, proposal))
    return build(
        request_class(ApiKey.ALTER_PARTITION, version),
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        topics=[
            {"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in by_topic.items()
        ],
    )


def _partition(number: int, proposal: IsrProposal) -> Mapping[str, Value]:
    return {
        "partition_index": number,
        "leader_epoch": proposal.leader_epoch,
        "new_isr": proposal.isr,
        "new_isr_with_epochs": [{"broker_id": each} for each in proposal.isr],
        "leader_recovery_state": _RECOVERED,
        "partition_epoch": proposal.partition_epoch,
    }


def alter_partition_answers(
    response: Entity, topic_ids: Mapping[str, UUID]
) -> dict[TopicPartition, IsrAccepted | ErrorCode]:
    """What a response without an error for the whole says of each partition."""
    names = {topic_id: topic for topic, topic_id in topic_ids.items()}
    return {
        TopicPartition(names[topic.topic_id], each.partition_index): _answer(each)
        for topic in response.topics
        if topic.topic_id in names
        for each in topic.partitions
    }


def _answer(partition: Entity) -> IsrAccepted | ErrorCode:
    error = known_error(partition.error_code)
    if error:
        return error
    return IsrAccepted(partition.leader_epoch, partition.partition_epoch, tuple(partition.isr))
