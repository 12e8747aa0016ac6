"""Answers brokers' requests to the controller: ControlledShutdown, AlterPartition, AllocateProducerIds.

A broker that is not the controller answers with an error.

Rules: Kafka's KafkaApis and KafkaController; KIP-380 (broker epochs), KIP-497, KIP-704, KIP-730, KIP-841,
KIP-903 (epochs of the ISR's members, of which a controller on ZooKeeper's tree makes no use).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final
from uuid import UUID

from klog.controller.events import AllocateProducerIds, AlterPartition, ControlledShutdown
from klog.formats.names import TopicPartition, decode_uuid, encode_uuid
from klog.metadata.values import LeaderAndIsr, LeaderRecoveryState, ProducerIdBlock, TopicIdPartition
from klog.protocol.codec import uuid_of
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.protocol.interbroker.controlled_shutdown import ControlledShutdownResponse, RemainingPartition
from klog.protocol.messages import encode_response
from klog.server.handlers.answers import Struct, by_topic, entity_of, send_answer
from klog.server.network.request import Request

_EPOCHS_FROM: Final = 3

AlterPartitionResult = LeaderAndIsr | ErrorCode
AlterPartitionResults = dict[tuple[UUID | None, int], AlterPartitionResult]

# The fields of an answer for a partition with an error.
_NO_STATE: Final = LeaderAndIsr(0, 0, (), LeaderRecoveryState.RECOVERED, 0)


@dataclass(frozen=True, slots=True)
class ControllerRequestsHandler:
    """Answers the three. `put` queues an event for the controller."""

    put: Callable[[AllocateProducerIds | AlterPartition | ControlledShutdown], None]

    def shut_down(self, request: Request) -> None:
        """Have the broker's leaderships moved, and answer with those that remain."""
        wanted = entity_of(request)
        self.put(ControlledShutdown(wanted.broker_id, wanted.broker_epoch, partial(_shut_down, request)))

    def allocate_producer_ids(self, request: Request) -> None:
        """Have the broker's next block taken, and answer with it."""
        wanted = entity_of(request)
        self.put(AllocateProducerIds(wanted.broker_id, wanted.broker_epoch, partial(_send_block, request)))

    def alter_partition(self, request: Request) -> None:
        """Have the in-sync replicas written, and answer with what is in force."""
        wanted = entity_of(request)
        states: dict[TopicIdPartition, LeaderAndIsr] = {}
        refused: AlterPartitionResults = {}
        for topic in wanted.topics:
            for each in topic.partitions:
                if topic.topic_id is None:
                    refused[None, each.partition_index] = ErrorCode.UNKNOWN_TOPIC_ID
                elif each.leader_recovery_state not in list(LeaderRecoveryState):
                    refused[topic.topic_id, each.partition_index] = ErrorCode.INVALID_REQUEST
                else:
                    where = TopicIdPartition(encode_uuid(topic.topic_id.bytes), each.partition_index)
                    states[where] = _state(request, wanted.broker_id, each)

        def answer(results: dict[TopicIdPartition, AlterPartitionResult] | ErrorCode) -> None:
            if isinstance(results, ErrorCode):
                send_answer(request, error_code=results, topics=())
                return
            outcomes: AlterPartitionResults = dict(refused)
            for where, outcome in results.items():
                outcomes[uuid_of(decode_uuid(where.topic_id)), where.partition] = outcome
            topics = by_topic(outcomes.items(), _partition, topic="topic_id")
            send_answer(request, error_code=ErrorCode.NONE, topics=topics)

        event = AlterPartition(wanted.broker_id, wanted.broker_epoch, states, request.api_version, answer)
        self.put(event)


def _shut_down(request: Request, remaining: set[TopicPartition] | ErrorCode) -> None:
    error, partitions = ErrorCode.NONE, set[TopicPartition]()
    if isinstance(remaining, set):
        partitions = remaining
    elif remaining is ErrorCode.NOT_CONTROLLER:
        error = ErrorCode.STALE_CONTROLLER_EPOCH  # as Kafka says here that the controller has moved
    else:
        error = remaining
    answer = ControlledShutdownResponse(
        error_code=error,
        remaining_partitions=tuple(
            RemainingPartition(topic_name=topic, partition_index=number)
            for topic, number in sorted(partitions)
        ),
    )
    request.respond([encode_response(answer)])


def _send_block(request: Request, outcome: ProducerIdBlock | ErrorCode) -> None:
    if isinstance(outcome, ErrorCode):
        send_answer(request, error_code=outcome, producer_id_start=0, producer_id_len=0)
        return
    count = outcome.last - outcome.first + 1
    send_answer(request, error_code=ErrorCode.NONE, producer_id_start=outcome.first, producer_id_len=count)


def _state(request: Request, leader: int, each: Entity) -> LeaderAndIsr:
    if request.api_version >= _EPOCHS_FROM:
        isr = tuple(member.broker_id for member in each.new_isr_with_epochs)
    else:
        isr = tuple(each.new_isr)
    recovery = LeaderRecoveryState(each.leader_recovery_state)
    return LeaderAndIsr(leader, each.leader_epoch, isr, recovery, each.partition_epoch)


def _partition(number: int, outcome: AlterPartitionResult) -> Struct:
    error, state = (outcome, _NO_STATE) if isinstance(outcome, ErrorCode) else (ErrorCode.NONE, outcome)
    return {
        "partition_index": number,
        "error_code": error,
        "leader_id": state.leader,
        "leader_epoch": state.leader_epoch,
        "isr": state.isr,
        "leader_recovery_state": int(state.recovery_state),
        "partition_epoch": state.partition_epoch,
    }
