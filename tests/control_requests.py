"""Builds the controller's requests to brokers from a few values, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from klog.formats.names import TopicPartition
from klog.metadata.control_requests import group_by_topic, metadata_broker, topic_uuid
from klog.metadata.values import BrokerRegistration
from klog.protocol.interbroker.leader_and_isr import (
    UNKNOWN_TYPE,
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from klog.protocol.interbroker.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from klog.protocol.interbroker.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

LISTENER = "PLAINTEXT"


def leader_and_isr_state(
    index: int,
    leader: int,
    replicas: tuple[int, ...],
    *,
    controller_epoch: int = 1,
    leader_epoch: int = 0,
    isr: tuple[int, ...] | None = None,
    adding: tuple[int, ...] = (),
    is_new: bool = False,
) -> LeaderAndIsrPartitionState:
    """One partition, by default with all replicas in sync."""
    return LeaderAndIsrPartitionState(
        partition_index=index,
        controller_epoch=controller_epoch,
        leader=leader,
        leader_epoch=leader_epoch,
        isr=replicas if isr is None else isr,
        partition_epoch=0,
        replicas=replicas,
        adding_replicas=adding,
        is_new=is_new,
    )


def update_metadata_state(
    index: int,
    leader: int,
    replicas: tuple[int, ...],
    *,
    controller_epoch: int = 1,
    leader_epoch: int = 0,
    isr: tuple[int, ...] | None = None,
) -> UpdateMetadataPartitionState:
    """One partition, by default with all replicas in sync."""
    return UpdateMetadataPartitionState(
        partition_index=index,
        controller_epoch=controller_epoch,
        leader=leader,
        leader_epoch=leader_epoch,
        isr=replicas if isr is None else isr,
        zk_version=0,
        replicas=replicas,
    )


def leader_and_isr(
    states: Mapping[TopicPartition, LeaderAndIsrPartitionState],
    topic_ids: Mapping[str, str],
    live_leaders: Sequence[BrokerRegistration] = (),
    *,
    controller_id: int = 1,
    controller_epoch: int = 1,
    broker_epoch: int = 1,
) -> LeaderAndIsrRequest:
    """A LeaderAndIsr request; leaders are reached on `LISTENER`."""
    endpoints = {leader.broker_id: leader.endpoint(LISTENER) for leader in live_leaders}
    return LeaderAndIsrRequest(
        controller_id=controller_id,
        controller_epoch=controller_epoch,
        broker_epoch=broker_epoch,
        request_type=UNKNOWN_TYPE,
        topic_states=tuple(
            LeaderAndIsrTopicState(
                topic_name=topic, topic_id=topic_uuid(topic_ids.get(topic)), partition_states=tuple(each)
            )
            for topic, each in group_by_topic(states).items()
        ),
        live_leaders=tuple(
            LeaderAndIsrLiveLeader(broker_id=broker_id, host_name=endpoint.host, port=endpoint.port)
            for broker_id, endpoint in endpoints.items()
            if endpoint is not None
        ),
    )


def update_metadata(
    states: Mapping[TopicPartition, UpdateMetadataPartitionState],
    topic_ids: Mapping[str, str],
    live_brokers: Sequence[BrokerRegistration],
    *,
    controller_id: int = 1,
    controller_epoch: int = 1,
    broker_epoch: int = 1,
) -> UpdateMetadataRequest:
    """An UpdateMetadata request."""
    return UpdateMetadataRequest(
        controller_id=controller_id,
        controller_epoch=controller_epoch,
        broker_epoch=broker_epoch,
        topic_states=tuple(
            UpdateMetadataTopicState(
                topic_name=topic, topic_id=topic_uuid(topic_ids.get(topic)), partition_states=tuple(each)
            )
            for topic, each in group_by_topic(states).items()
        ),
        live_brokers=tuple(map(metadata_broker, live_brokers)),
    )


def stop_replica(
    states: Mapping[TopicPartition, StopReplicaPartitionState],
    *,
    controller_id: int = 1,
    controller_epoch: int = 1,
    broker_epoch: int = 1,
) -> StopReplicaRequest:
    """A StopReplica request."""
    return StopReplicaRequest(
        controller_id=controller_id,
        controller_epoch=controller_epoch,
        broker_epoch=broker_epoch,
        topic_states=tuple(
            StopReplicaTopicState(topic_name=topic, partition_states=tuple(each))
            for topic, each in group_by_topic(states).items()
        ),
    )
