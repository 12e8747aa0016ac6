"""The controller's requests survive the wire: what a broker reads is what the controller decided."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klog.controller import control_messages
from klog.formats.names import TopicPartition, encode_uuid
from klog.metadata.control_requests import (
    ControlResponse,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    StopReplicaPartition,
    StopReplicaRequest,
    UpdateMetadataPartition,
    UpdateMetadataRequest,
)
from klog.metadata.values import BrokerRegistration, Endpoint, LeaderRecoveryState
from klog.protocol.error_codes import ErrorCode
from klog.protocol.messages import decode_request, encode_request

TOPICS = {"a": encode_uuid(bytes(range(1, 17))), "b.c": encode_uuid(bytes(range(2, 18)))}
ids = st.integers(0, 2**31 - 1)
replicas = st.lists(ids, max_size=4, unique=True).map(tuple)
partitions = st.builds(TopicPartition, st.sampled_from(sorted(TOPICS)), st.integers(0, 100))
endpoint = st.builds(
    Endpoint, st.just("PLAINTEXT"), st.just("PLAINTEXT"), st.just("h.example"), st.integers(1, 65535)
)
brokers = st.builds(BrokerRegistration, ids, st.tuples(endpoint), st.none() | st.just("r1"))


def by_partition(states):
    """As the wire groups them: topics in the order of their first partition."""
    order = list(dict.fromkeys(state.partition.topic for state in states))
    return tuple(sorted(states, key=lambda state: order.index(state.partition.topic)))


def over_the_wire(request):
    entity = control_messages.request_entity(request, "PLAINTEXT")
    body = encode_request(entity)
    return decode_request(entity.__api_key__, entity.__version__, memoryview(bytearray(body)))


leader_states = st.builds(
    LeaderAndIsrPartition,
    partitions, ids, st.integers(-1, 9), ids, replicas, ids, replicas, replicas, replicas, st.booleans(),
    st.sampled_from(LeaderRecoveryState),
)  # fmt: skip


@given(st.lists(leader_states, max_size=5), st.lists(brokers, max_size=3, unique_by=lambda b: b.broker_id))
def test_leader_and_isr(states, leaders) -> None:
    topics = {state.partition.topic: TOPICS[state.partition.topic] for state in states}
    request = LeaderAndIsrRequest(1, 7, 99, by_partition(states), topics, tuple(leaders))
    arrived = control_messages.leader_and_isr_request(over_the_wire(request), "PLAINTEXT")
    assert arrived.partitions == request.partitions
    assert (arrived.controller_id, arrived.controller_epoch, arrived.broker_epoch) == (1, 7, 99)
    assert arrived.topic_ids == topics
    assert [leader.endpoints for leader in arrived.live_leaders] == [leader.endpoints for leader in leaders]


metadata_states = st.builds(
    UpdateMetadataPartition, partitions, ids, st.integers(-2, 9), ids, replicas, ids, replicas, replicas
)


@given(
    st.lists(metadata_states, max_size=5),
    st.lists(brokers, max_size=3, unique_by=lambda b: b.broker_id),
)
def test_update_metadata(states, live) -> None:
    topics = {state.partition.topic: TOPICS[state.partition.topic] for state in states}
    request = UpdateMetadataRequest(1, 7, 99, by_partition(states), topics, tuple(live))
    assert control_messages.update_metadata_request(over_the_wire(request)) == request


@given(st.lists(st.builds(StopReplicaPartition, partitions, st.integers(-2, 9), st.booleans()), max_size=5))
def test_stop_replica(states) -> None:
    request = StopReplicaRequest(1, 7, 99, by_partition(states))
    assert control_messages.stop_replica_request(over_the_wire(request)) == request


def test_an_answer_to_leader_and_isr_names_topics_by_id() -> None:
    where = TopicPartition("a", 3)
    request = LeaderAndIsrRequest(1, 7, 99, (), TOPICS, ())
    answer = ControlResponse(ErrorCode.NONE, {where: ErrorCode.KAFKA_STORAGE_ERROR})
    entity = control_messages.leader_and_isr_answer(answer, TOPICS)
    assert control_messages.control_response(request, entity) == answer


def test_an_answer_to_stop_replica_names_partitions() -> None:
    answer = ControlResponse(ErrorCode.NONE, {TopicPartition("a", 3): ErrorCode.FENCED_LEADER_EPOCH})
    request = StopReplicaRequest(1, 7, 99, ())
    assert control_messages.control_response(request, control_messages.stop_replica_answer(answer)) == answer
