"""The controller's requests survive the wire: what a broker reads is what the controller decided."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from klog.formats.names import TopicPartition, encode_uuid
from klog.metadata.control_requests import (
    ControlRequest,
    ControlResponse,
    control_response,
    leader_and_isr_response,
    live_broker,
    partition_states,
    stop_replica_response,
    topic_ids,
)
from klog.metadata.values import BrokerRegistration, Endpoint, LeaderRecoveryState
from klog.protocol.error_codes import ErrorCode
from klog.protocol.interbroker.leader_and_isr import LeaderAndIsrPartitionState
from klog.protocol.interbroker.stop_replica import StopReplicaPartitionState
from klog.protocol.interbroker.update_metadata import UpdateMetadataPartitionState
from klog.protocol.messages import decode_request, encode_request
from tests.control_requests import leader_and_isr, leader_and_isr_state, stop_replica, update_metadata

TOPICS = {"a": encode_uuid(bytes(range(1, 17))), "b.c": encode_uuid(bytes(range(2, 18)))}
ids = st.integers(0, 2**31 - 1)
replicas = st.lists(ids, max_size=4, unique=True).map(tuple)
partitions = st.builds(TopicPartition, st.sampled_from(sorted(TOPICS)), st.integers(0, 100))
protocols = st.sampled_from(["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
endpoint = st.builds(Endpoint, st.just("PLAINTEXT"), protocols, st.just("h.example"), st.integers(1, 65535))
brokers = st.lists(
    st.builds(BrokerRegistration, ids, st.tuples(endpoint), st.none() | st.just("r1")),
    max_size=3,
    unique_by=lambda broker: broker.broker_id,
)
EPOCHS = {"controller_id": 1, "controller_epoch": 7, "broker_epoch": 99}


def states_of(state_type: type, **fields: st.SearchStrategy[Any]) -> Any:
    """Up to five partitions with a state each."""

    def at(partition: TopicPartition) -> st.SearchStrategy[Any]:
        state = st.builds(state_type, partition_index=st.just(partition.partition), **fields)
        return st.tuples(st.just(partition), state)

    return st.lists(partitions.flatmap(at), max_size=5).map(dict)


def over_the_wire(request: ControlRequest) -> ControlRequest:
    body = encode_request(request)
    return decode_request(request.__api_key__, request.__version__, memoryview(bytearray(body)))


def epochs_of(request: ControlRequest) -> dict[str, int]:
    return {name: getattr(request, name) for name in EPOCHS}


@given(
    states_of(
        LeaderAndIsrPartitionState,
        controller_epoch=ids,
        leader=st.integers(-1, 9),
        leader_epoch=ids,
        isr=replicas,
        partition_epoch=ids,
        replicas=replicas,
        adding_replicas=replicas,
        removing_replicas=replicas,
        is_new=st.booleans(),
        leader_recovery_state=st.sampled_from([int(each) for each in LeaderRecoveryState]),
    ),
    brokers,
)
def test_leader_and_isr(states, leaders) -> None:
    request = leader_and_isr(states, TOPICS, leaders, **EPOCHS)
    arrived = over_the_wire(request)
    assert arrived == request
    assert dict(partition_states(arrived.topic_states)) == states
    assert epochs_of(arrived) == EPOCHS
    assert topic_ids(arrived.topic_states) == {topic: TOPICS[topic] for topic, _ in states}
    assert [(each.broker_id, each.host_name, each.port) for each in arrived.live_leaders] == [
        (leader.broker_id, leader.endpoints[0].host, leader.endpoints[0].port) for leader in leaders
    ]


@given(
    states_of(
        UpdateMetadataPartitionState,
        controller_epoch=ids,
        leader=st.integers(-2, 9),
        leader_epoch=ids,
        isr=replicas,
        zk_version=ids,
        replicas=replicas,
        offline_replicas=replicas,
    ),
    brokers,
)
def test_update_metadata(states, live) -> None:
    request = update_metadata(states, TOPICS, live, **EPOCHS)
    arrived = over_the_wire(request)
    assert arrived == request
    assert dict(partition_states(arrived.topic_states)) == states
    assert epochs_of(arrived) == EPOCHS
    assert topic_ids(arrived.topic_states) == {topic: TOPICS[topic] for topic, _ in states}
    assert list(map(live_broker, arrived.live_brokers)) == live


@given(states_of(StopReplicaPartitionState, leader_epoch=st.integers(-2, 9), delete_partition=st.booleans()))
def test_stop_replica(states) -> None:
    request = stop_replica(states, **EPOCHS)
    arrived = over_the_wire(request)
    assert arrived == request
    assert dict(partition_states(arrived.topic_states)) == states
    assert epochs_of(arrived) == EPOCHS


def test_a_topic_without_an_id_has_none_after_the_wire() -> None:
    state = leader_and_isr_state(0, 1, (1,))
    arrived = over_the_wire(leader_and_isr({TopicPartition("a", 0): state}, {}))
    assert [topic.topic_id for topic in arrived.topic_states] == [None]
    assert topic_ids(arrived.topic_states) == {}


def test_a_leader_and_isr_response_names_topics_by_id() -> None:
    partition = TopicPartition("a", 3)
    request = leader_and_isr({partition: leader_and_isr_state(3, 1, (1,))}, TOPICS)
    answer = ControlResponse(ErrorCode.NONE, {partition: ErrorCode.KAFKA_STORAGE_ERROR})
    response = leader_and_isr_response(request, answer)
    assert [topic.topic_id for topic in response.topics] == [request.topic_states[0].topic_id]
    assert control_response(request, response) == answer


def test_a_stop_replica_response_names_partitions() -> None:
    answer = ControlResponse(ErrorCode.NONE, {TopicPartition("a", 3): ErrorCode.FENCED_LEADER_EPOCH})
    assert control_response(stop_replica({}), stop_replica_response(answer)) == answer
