"""The controller's requests and their answers: the values that rooms work with, and their form on the wire.

Rules: LeaderAndIsr 7, UpdateMetadata 8, StopReplica 4 of Kafka 3.9's message schemas. On the wire
partitions are grouped by topic, topic ids are UUIDs, and an answer to LeaderAndIsr names topics by id only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar
from uuid import UUID

from klog.formats.names import TopicPartition, decode_uuid, encode_uuid
from klog.metadata.control_requests import (
    ControlRequest,
    ControlResponse,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    StopReplicaPartition,
    StopReplicaRequest,
    UpdateMetadataPartition,
    UpdateMetadataRequest,
)
from klog.metadata.values import ZERO_TOPIC_ID, BrokerRegistration, Endpoint, LeaderRecoveryState
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import UnexpectedResponseError
from klog.protocol.interbroker import leader_and_isr, stop_replica, update_metadata

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_State = TypeVar("_State", LeaderAndIsrPartition, UpdateMetadataPartition, StopReplicaPartition)


def _by_topic(states: Iterable[_State]) -> dict[str, list[_State]]:
    grouped: dict[str, list[_State]] = {}
    for state in states:
        grouped.setdefault(state.partition.topic, []).append(state)
    return grouped


def _uuid(topic_ids: Mapping[str, str], topic: str) -> UUID | None:
    text = topic_ids.get(topic, ZERO_TOPIC_ID)
    return None if text == ZERO_TOPIC_ID else UUID(bytes=decode_uuid(text))


def request_entity(request: ControlRequest, listener: str) -> Entity:
    """A request as it is sent; `listener` is the one between brokers, by which leaders are reached."""
    if isinstance(request, LeaderAndIsrRequest):
        return _leader_and_isr_entity(request, listener)
    if isinstance(request, UpdateMetadataRequest):
        return _update_metadata_entity(request)
    return _stop_replica_entity(request)


def _leader_and_isr_entity(request: LeaderAndIsrRequest, listener: str) -> Entity:
    reachable = [(broker.broker_id, broker.endpoint(listener)) for broker in request.live_leaders]
    return leader_and_isr.LeaderAndIsrRequest(
        controller_id=request.controller_id,
        controller_epoch=request.controller_epoch,
        broker_epoch=request.broker_epoch,
        request_type=leader_and_isr.UNKNOWN_TYPE,
        topic_states=tuple(
            leader_and_isr.LeaderAndIsrTopicState(
                topic_name=topic,
                topic_id=_uuid(request.topic_ids, topic),
                partition_states=tuple(
                    leader_and_isr.LeaderAndIsrPartitionState(
                        partition_index=state.partition.partition,
                        controller_epoch=state.controller_epoch,
                        leader=state.leader,
                        leader_epoch=state.leader_epoch,
                        isr=state.isr,
                        partition_epoch=state.partition_epoch,
                        replicas=state.replicas,
                        adding_replicas=state.adding,
                        removing_replicas=state.removing,
                        is_new=state.is_new,
                        leader_recovery_state=int(state.recovery_state),
                    )
                    for state in states
                ),
            )
            for topic, states in _by_topic(request.partitions).items()
        ),
        live_leaders=tuple(
            leader_and_isr.LeaderAndIsrLiveLeader(broker_id=broker, host_name=at.host, port=at.port)
            for broker, at in reachable
            if at is not None
        ),
    )


def _update_metadata_entity(request: UpdateMetadataRequest) -> Entity:
    return update_metadata.UpdateMetadataRequest(
        controller_id=request.controller_id,
        controller_epoch=request.controller_epoch,
        broker_epoch=request.broker_epoch,
        topic_states=tuple(
            update_metadata.UpdateMetadataTopicState(
                topic_name=topic,
                topic_id=_uuid(request.topic_ids, topic),
                partition_states=tuple(
                    update_metadata.UpdateMetadataPartitionState(
                        partition_index=state.partition.partition,
                        controller_epoch=state.controller_epoch,
                        leader=state.leader,
                        leader_epoch=state.leader_epoch,
                        isr=state.isr,
                        zk_version=state.partition_epoch,
                        replicas=state.replicas,
                        offline_replicas=state.offline_replicas,
                    )
                    for state in states
                ),
            )
            for topic, states in _by_topic(request.partitions).items()
        ),
        live_brokers=tuple(
            update_metadata.UpdateMetadataBroker(
                id=broker.broker_id,
                endpoints=tuple(
                    update_metadata.UpdateMetadataEndpoint(
                        port=at.port,
                        host=at.host,
                        listener=at.listener,
                        security_protocol=_PROTOCOLS.index(at.security_protocol),
                    )
                    for at in broker.endpoints
                ),
                rack=broker.rack,
            )
            for broker in request.live_brokers
        ),
    )


def _stop_replica_entity(request: StopReplicaRequest) -> Entity:
    return stop_replica.StopReplicaRequest(
        controller_id=request.controller_id,
        controller_epoch=request.controller_epoch,
        broker_epoch=request.broker_epoch,
        topic_states=tuple(
            stop_replica.StopReplicaTopicState(
                topic_name=topic,
                partition_states=tuple(
                    stop_replica.StopReplicaPartitionState(
                        partition_index=state.partition.partition,
                        leader_epoch=state.leader_epoch,
                        delete_partition=state.delete,
                    )
                    for state in states
                ),
            )
            for topic, states in _by_topic(request.partitions).items()
        ),
    )


# -- requests as they arrive -------------------------------------------------------------------------------


def _text_ids(topics: Iterable[tuple[str, UUID | None]]) -> dict[str, str]:
    return {name: encode_uuid(topic_id.bytes) for name, topic_id in topics if topic_id is not None}


def leader_and_isr_request(entity: leader_and_isr.LeaderAndIsrRequest, listener: str) -> LeaderAndIsrRequest:
    """A LeaderAndIsr request that has arrived."""
    return LeaderAndIsrRequest(
        controller_id=entity.controller_id,
        controller_epoch=entity.controller_epoch,
        broker_epoch=entity.broker_epoch,
        partitions=tuple(
            LeaderAndIsrPartition(
                partition=TopicPartition(topic.topic_name, state.partition_index),
                controller_epoch=state.controller_epoch,
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                isr=tuple(state.isr),
                partition_epoch=state.partition_epoch,
                replicas=tuple(state.replicas),
                adding=tuple(state.adding_replicas),
                removing=tuple(state.removing_replicas),
                is_new=state.is_new,
                recovery_state=LeaderRecoveryState(state.leader_recovery_state),
            )
            for topic in entity.topic_states
            for state in topic.partition_states
        ),
        topic_ids=_text_ids((topic.topic_name, topic.topic_id) for topic in entity.topic_states),
        live_leaders=tuple(
            BrokerRegistration(each.broker_id, (Endpoint(listener, "PLAINTEXT", each.host_name, each.port),))
            for each in entity.live_leaders
        ),
    )


def update_metadata_request(entity: update_metadata.UpdateMetadataRequest) -> UpdateMetadataRequest:
    """An UpdateMetadata request that has arrived."""
    return UpdateMetadataRequest(
        controller_id=entity.controller_id,
        controller_epoch=entity.controller_epoch,
        broker_epoch=entity.broker_epoch,
        partitions=tuple(
            UpdateMetadataPartition(
                partition=TopicPartition(topic.topic_name, state.partition_index),
                controller_epoch=state.controller_epoch,
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                isr=tuple(state.isr),
                partition_epoch=state.zk_version,
                replicas=tuple(state.replicas),
                offline_replicas=tuple(state.offline_replicas),
            )
            for topic in entity.topic_states
            for state in topic.partition_states
        ),
        topic_ids=_text_ids((topic.topic_name, topic.topic_id) for topic in entity.topic_states),
        live_brokers=tuple(
            BrokerRegistration(
                broker.id,
                tuple(
                    Endpoint(at.listener, _PROTOCOLS[at.security_protocol], at.host, at.port)
                    for at in broker.endpoints
                ),
                broker.rack,
            )
            for broker in entity.live_brokers
        ),
    )


def stop_replica_request(entity: stop_replica.StopReplicaRequest) -> StopReplicaRequest:
    """A StopReplica request that has arrived."""
    return StopReplicaRequest(
        controller_id=entity.controller_id,
        controller_epoch=entity.controller_epoch,
        broker_epoch=entity.broker_epoch,
        partitions=tuple(
            StopReplicaPartition(
                TopicPartition(topic.topic_name, state.partition_index),
                state.leader_epoch,
                state.delete_partition,
            )
            for topic in entity.topic_states
            for state in topic.partition_states
        ),
    )


# -- answers -----------------------------------------------------------------------------------------------


def leader_and_isr_answer(response: ControlResponse, topic_ids: Mapping[str, str]) -> Entity:
    """The answer to a LeaderAndIsr request whose topic ids were these."""
    grouped: dict[str, list[tuple[int, ErrorCode]]] = {}
    for where, error in response.partitions.items():
        grouped.setdefault(where.topic, []).append((where.partition, error))
    return leader_and_isr.LeaderAndIsrResponse(
        error_code=response.error,
        topics=tuple(
            leader_and_isr.LeaderAndIsrTopicError(
                topic_id=_uuid(topic_ids, topic),
                partition_errors=tuple(
                    leader_and_isr.LeaderAndIsrPartitionError(partition_index=index, error_code=error)
                    for index, error in errors
                ),
            )
            for topic, errors in grouped.items()
        ),
    )


def stop_replica_answer(response: ControlResponse) -> Entity:
    """The answer to a StopReplica request."""
    return stop_replica.StopReplicaResponse(
        error_code=response.error,
        partition_errors=tuple(
            stop_replica.StopReplicaPartitionError(
                topic_name=where.topic, partition_index=where.partition, error_code=error
            )
            for where, error in response.partitions.items()
        ),
    )


def control_response(request: ControlRequest, entity: Entity) -> ControlResponse:
    """What a broker has answered. Raises `UnexpectedResponseError`."""
    if isinstance(entity, update_metadata.UpdateMetadataResponse):
        return ControlResponse(ErrorCode(entity.error_code))
    if isinstance(entity, stop_replica.StopReplicaResponse):
        errors = {
            TopicPartition(each.topic_name, each.partition_index): ErrorCode(each.error_code)
            for each in entity.partition_errors
        }
        return ControlResponse(ErrorCode(entity.error_code), errors)
    if isinstance(entity, leader_and_isr.LeaderAndIsrResponse) and isinstance(request, LeaderAndIsrRequest):
        names = {_uuid(request.topic_ids, topic): topic for topic in request.topic_ids}
        errors = {
            TopicPartition(names[topic.topic_id], each.partition_index): ErrorCode(each.error_code)
            for topic in entity.topics
            if topic.topic_id in names
            for each in topic.partition_errors
        }
        return ControlResponse(ErrorCode(entity.error_code), errors)
    raise UnexpectedResponseError(f"{type(entity).__name__} in answer to {type(request).__name__}")
