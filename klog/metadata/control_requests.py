"""Maps the controller's requests to brokers, and their responses, to klog's values.

The requests (LeaderAndIsr, UpdateMetadata, StopReplica) are the dataclasses of `klog.protocol.interbroker`.
This module maps what they write differently: partitions are grouped by topic, topic ids are UUIDs, a security
protocol is a number, and a LeaderAndIsr response names topics by id only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, TypeVar
from uuid import UUID

from klog.config.security_protocols import SECURITY_PROTOCOLS
from klog.formats.names import (
    MAX_DIRECTORY_NAME_LENGTH,
    TopicPartition,
    decode_uuid,
    encode_uuid,
    is_legal_topic,
)
from klog.metadata.values import ZERO_TOPIC_ID, BrokerRegistration, Endpoint
from klog.protocol.codec import uuid_of
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import UnexpectedResponseError
from klog.protocol.interbroker.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
)
from klog.protocol.interbroker.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from klog.protocol.interbroker.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
)

_log = logging.getLogger(__name__)

ControlRequest: TypeAlias = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest


@dataclass(frozen=True, slots=True)
class ControlResponse:
    """A broker's response: an error for the whole request, else an error for each of its partitions."""

    error: ErrorCode = ErrorCode.NONE
    partitions: Mapping[TopicPartition, ErrorCode] = field(default_factory=dict)


# -- partitions and topics -----------------------------------------------------------------------------------

State = TypeVar("State")


class _PartitionState(Protocol):
    @property
    def partition_index(self) -> int: ...


StateOfPartition_co = TypeVar("StateOfPartition_co", covariant=True, bound=_PartitionState)


class TopicStates(Protocol[StateOfPartition_co]):
    """The part of a request that concerns one topic."""

    @property
    def topic_name(self) -> str: ...

    @property
    def partition_states(self) -> tuple[StateOfPartition_co, ...]: ...


StateOfPartition = TypeVar("StateOfPartition", bound=_PartitionState)


def partition_states(
    topics: Iterable[TopicStates[StateOfPartition]],
) -> Iterator[tuple[TopicPartition, StateOfPartition]]:
    """Each partition of a request's `topic_states`, with its state."""
    for topic in topics:
        for state in topic.partition_states:
            yield TopicPartition(topic.topic_name, state.partition_index), state


def can_exist(partition: TopicPartition) -> bool:
    """Whether a partition may have this name. Others come from a faulty controller: they would leave the log
    directory, or have a directory name that is too long.
    """
    return (
        is_legal_topic(partition.topic)
        and partition.partition >= 0
        and len(str(partition)) <= MAX_DIRECTORY_NAME_LENGTH
    )


def group_by_topic(states: Mapping[TopicPartition, State]) -> dict[str, list[State]]:
    """The states of each topic's partitions, in the order of `states`."""
    grouped: dict[str, list[State]] = {}
    for partition, state in states.items():
        grouped.setdefault(partition.topic, []).append(state)
    return grouped


def topic_uuid(topic_id: str | None) -> UUID | None:
    """A topic id as messages write it; None (the zero id on the wire) if the topic has no id."""
    if topic_id is None or topic_id == ZERO_TOPIC_ID:
        return None
    return uuid_of(decode_uuid(topic_id))


def topic_ids(topics: Iterable[LeaderAndIsrTopicState | UpdateMetadataTopicState]) -> dict[str, str]:
    """The ids, as text, of those topics of a request's `topic_states` that have one."""
    return {each.topic_name: encode_uuid(each.topic_id.bytes) for each in topics if each.topic_id is not None}


# -- brokers -------------------------------------------------------------------------------------------------


def metadata_broker(broker: BrokerRegistration) -> UpdateMetadataBroker:
    """A live broker as UpdateMetadata names it."""
    return UpdateMetadataBroker(
        id=broker.broker_id,
        endpoints=tuple(
            UpdateMetadataEndpoint(
                port=endpoint.port,
                host=endpoint.host,
                listener=endpoint.listener,
                security_protocol=SECURITY_PROTOCOLS.index(endpoint.security_protocol),
            )
            for endpoint in broker.endpoints
        ),
        rack=broker.rack,
    )


def live_broker(broker: UpdateMetadataBroker) -> BrokerRegistration:
    """A live broker that UpdateMetadata names. The request carries no broker epoch and no features.

    Endpoints of an unknown security protocol are left out. The broker is kept, because it has replicas.
    """
    endpoints = []
    for each in broker.endpoints:
        if not 0 <= each.security_protocol < len(SECURITY_PROTOCOLS):
            _log.error(
                "the controller names an endpoint of broker %d that is left out: listener %.100r, security"
                " protocol %d",
                broker.id,
                each.listener,
                each.security_protocol,
            )
            continue
        protocol = SECURITY_PROTOCOLS[each.security_protocol]
        endpoints.append(Endpoint(each.listener, protocol, each.host, each.port))
    return BrokerRegistration(broker.id, tuple(endpoints), broker.rack)


# -- responses -----------------------------------------------------------------------------------------------


def leader_and_isr_response(request: LeaderAndIsrRequest, response: ControlResponse) -> LeaderAndIsrResponse:
    """The response to a LeaderAndIsr request, by the topic ids of the request."""
    ids = {topic.topic_name: topic.topic_id for topic in request.topic_states}
    errors = {
        partition: LeaderAndIsrPartitionError(partition_index=partition.partition, error_code=error)
        for partition, error in response.partitions.items()
    }
    return LeaderAndIsrResponse(
        error_code=response.error,
        topics=tuple(
            LeaderAndIsrTopicError(topic_id=ids.get(topic), partition_errors=tuple(each))
            for topic, each in group_by_topic(errors).items()
        ),
    )


def stop_replica_response(response: ControlResponse) -> StopReplicaResponse:
    """The response to a StopReplica request."""
    return StopReplicaResponse(
        error_code=response.error,
        partition_errors=tuple(
            StopReplicaPartitionError(
                topic_name=partition.topic, partition_index=partition.partition, error_code=error
            )
            for partition, error in response.partitions.items()
        ),
    )


def control_response(request: ControlRequest, response: Entity) -> ControlResponse:
    """A broker's response to `request`. Raises `UnexpectedResponseError`."""
    if isinstance(response, UpdateMetadataResponse):
        return ControlResponse(ErrorCode(response.error_code))
    if isinstance(response, StopReplicaResponse):
        errors = {
            TopicPartition(each.topic_name, each.partition_index): ErrorCode(each.error_code)
            for each in response.partition_errors
        }
        return ControlResponse(ErrorCode(response.error_code), errors)
    if isinstance(response, LeaderAndIsrResponse) and isinstance(request, LeaderAndIsrRequest):
        names = {topic.topic_id: topic.topic_name for topic in request.topic_states}
        errors = {
            TopicPartition(names[topic.topic_id], each.partition_index): ErrorCode(each.error_code)
            for topic in response.topics
            if topic.topic_id in names
            for each in topic.partition_errors
        }
        return ControlResponse(ErrorCode(response.error_code), errors)
    raise UnexpectedResponseError(f"{type(response).__name__} in answer to {type(request).__name__}")
