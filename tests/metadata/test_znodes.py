"""Znodes as Kafka writes them: the bytes of a live cluster, and round trips of any value."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.formats.names import TopicPartition
from klog.metadata import paths, znodes
from klog.metadata.errors import InvalidZnodeError
from klog.metadata.store import Node, NodeStat
from klog.metadata.values import (
    BrokerRegistration,
    ControllerRegistration,
    Endpoint,
    FinalizedFeatures,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    LeaderRecoveryState,
    ProducerIdBlock,
    ReplicaAssignment,
    TopicAssignment,
)
from tests.metadata.samples import encode_partitions, live_nodes

LIVE = live_nodes()


def _again(path: str, node: Node) -> bytes | None:
    """The data of a node after it was parsed and built again; None for nodes without data."""
    last = path.rpartition("/")[2]
    where = re.fullmatch(r"/brokers/topics/([^/]+)/partitions/(\d+)/state", path)
    if where:
        partition = TopicPartition(where[1], int(where[2]))
        return znodes.encode_partition_state(znodes.decode_partition_state(partition, node))
    if path.startswith("/brokers/ids/"):
        return znodes.encode_broker(znodes.decode_broker(int(last), node))
    if re.fullmatch(r"/brokers/topics/[^/]+", path):
        return znodes.encode_topic(znodes.decode_topic(last, node.data))
    if path.startswith("/config/changes/"):
        return znodes.encode_config_change(znodes.decode_config_change(path, node.data))
    if path.startswith("/config/") and node.data is not None:
        return znodes.encode_config(znodes.decode_config(path.removeprefix("/config/"), node.data))
    match path:
        case paths.CONTROLLER:
            return znodes.encode_controller(znodes.decode_controller(node.data))
        case paths.CONTROLLER_EPOCH:
            return znodes.encode_epoch(znodes.decode_epoch(node.data))
        case paths.CLUSTER_ID:
            return znodes.encode_cluster_id(znodes.decode_cluster_id(node.data))
        case paths.PRODUCER_ID_BLOCK:
            return znodes.encode_producer_id_block(znodes.decode_producer_id_block(node.data))
        case paths.FEATURE:
            return znodes.encode_features(znodes.decode_features(node.data))
    return None


@pytest.mark.parametrize("path", LIVE)
def test_a_live_node_is_parsed_and_built_to_the_same_bytes(path: str) -> None:
    assert _again(path, LIVE[path]) == LIVE[path].data


def test_the_persistent_nodes_are_in_the_tree_of_a_live_cluster() -> None:
    assert set(paths.PERSISTENT) <= set(LIVE)


def test_a_registration_of_a_live_cluster_is_read() -> None:
    broker = znodes.decode_broker(1, LIVE["/brokers/ids/1"]._replace(stat=NodeStat(1, 62, 62, 0, 9)))
    assert broker == BrokerRegistration(
        1, (Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 39093),), "r1", 62, {}, -1, 1795251376470
    )


def test_a_topic_of_a_live_cluster_is_read() -> None:
    topic = znodes.decode_topic("t1", LIVE["/brokers/topics/t1"].data)
    assert topic.topic_id == "Ms7dVHaNQuSV5FEQS031AA"
    assert topic.partitions[0] == ReplicaAssignment((1, 2))
    where = TopicPartition("t1", 0)
    state = znodes.decode_partition_state(where, LIVE[paths.partition_state(where)])
    assert state == LeaderIsrAndControllerEpoch(LeaderAndIsr(1, 4, (2, 1), partition_epoch=5), 1)


def test_a_broker_without_plaintext_has_no_host_at_the_top_level() -> None:
    broker = BrokerRegistration(3, (Endpoint("INTERNAL", "SSL", "::1", 9093),), timestamp_ms=5)
    assert znodes.encode_broker(broker) == (
        b'{"features":{},"listener_security_protocol_map":{"INTERNAL":"SSL"},'
        b'"endpoints":["INTERNAL://[::1]:9093"],"jmx_port":-1,"port":-1,"host":null,"version":5,"timestamp":"5"}'
    )


@pytest.mark.parametrize(
    ("data", "endpoint"),
    [
        (
            b'{"version":1,"host":"h","port":9092,"jmx_port":1,"timestamp":"2"}',
            Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092),
        ),
        (
            b'{"version":2,"host":null,"port":-1,"jmx_port":1,"timestamp":"2","endpoints":["SSL://h:9093"]}',
            Endpoint("SSL", "SSL", "h", 9093),
        ),
        (
            b'{"version":4,"endpoints":["C://h:1"],"listener_security_protocol_map":{"C":"SASL_SSL"}}',
            Endpoint("C", "SASL_SSL", "h", 1),
        ),
    ],
)
def test_older_registrations_are_read(data: bytes, endpoint: Endpoint) -> None:
    assert znodes.decode_broker(7, _node(data)).endpoints == (endpoint,)


def test_a_reassignment_is_stored_in_the_topic() -> None:
    moving = ReplicaAssignment((0, 1, 2)).reassign_to((3, 1))
    assert moving == ReplicaAssignment((3, 1, 0, 2), adding=(3,), removing=(0, 2))
    data = znodes.encode_topic(TopicAssignment("t", None, {0: moving, 1: ReplicaAssignment((1,))}))
    assert data == (
        b'{"partitions":{"0":[3,1,0,2],"1":[1]},"adding_replicas":{"0":[3]},'
        b'"removing_replicas":{"0":[0,2]},"version":3}'
    )
    assert znodes.decode_topic("t", data).partitions[0] == moving


def test_the_recovery_state_is_written_only_while_recovering() -> None:
    state = LeaderIsrAndControllerEpoch(LeaderAndIsr(2, 3, (2,), LeaderRecoveryState.RECOVERING), 4)
    data = znodes.encode_partition_state(state)
    assert data.endswith(b'"isr":[2],"leader_recovery_state":1}')
    assert znodes.decode_partition_state(TopicPartition("t", 0), _node(data)) == state


def test_a_config_change_of_version_1_is_read() -> None:
    data = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
    assert znodes.decode_config_change("/config/changes/x", data) == "topics/t"


@pytest.mark.parametrize(
    ("name", "sanitised"),
    [("alice", "alice"), ("<default>", "<default>"), ("a b/c+*~é", "a%20b%2Fc%2B%2A%7E%C3%A9")],
)
def test_entity_names_are_percent_encoded(name: str, sanitised: str) -> None:
    assert znodes.sanitize(name) == sanitised
    assert znodes.desanitize(sanitised) == name


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (None, "no JSON object"),
        (b"", "no JSON object"),
        (b"{", "not JSON"),
        (b"[]", "no JSON object"),
        (b'{"leader":"x","leader_epoch":0,"controller_epoch":0,"isr":[]}', "integer leader"),
        (b'{"leader":true,"leader_epoch":0,"controller_epoch":0,"isr":[]}', "integer leader"),
        (b'{"leader":1,"leader_epoch":0,"controller_epoch":0,"isr":"1"}', "list of broker ids isr"),
        (
            b'{"leader":1,"leader_epoch":0,"controller_epoch":0,"isr":[],"leader_recovery_state":9}',
            "invalid leader_recovery_state: 9",
        ),
    ],
)
def test_an_invalid_partition_state_raises_an_error_with_its_path(data: bytes | None, what: str) -> None:
    with pytest.raises(InvalidZnodeError, match=rf"/brokers/topics/t/partitions/0/state .*{what}"):
        znodes.decode_partition_state(TopicPartition("t", 0), _node(data))


@pytest.mark.parametrize(
    "endpoints", [b'["h:1"]', b'["PLAINTEXT://h"]', b'["OTHER://h:1"]', b"[1]", b'"PLAINTEXT://h:1"']
)
def test_an_invalid_endpoint_raises_an_error_with_its_path(endpoints: bytes) -> None:
    with pytest.raises(InvalidZnodeError, match=r"/brokers/ids/1 .*endpoint"):
        znodes.decode_broker(1, _node(b'{"version":5,"endpoints":' + endpoints + b"}"))


@pytest.mark.parametrize("data", [None, b"", b"x", b"-1", b"1.5"])
def test_an_invalid_epoch_raises_an_error_with_its_path(data: bytes | None) -> None:
    with pytest.raises(InvalidZnodeError, match="/controller_epoch"):
        znodes.decode_epoch(data)


def _node(data: bytes | None) -> Node:
    return Node(data, NodeStat(0, 1, 1, 0))


_ids = st.lists(st.integers(0, 2**31 - 1), max_size=4, unique=True).map(tuple)
_texts = st.text(max_size=8)
_hosts = st.from_regex(r"[a-z0-9.]{1,12}|[0-9a-f:]*:[0-9a-f:]*", fullmatch=True)
_protocols = st.sampled_from(["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
_endpoints = st.builds(
    Endpoint, st.from_regex(r"[A-Z_]{1,10}", fullmatch=True), _protocols, _hosts, st.integers(0, 65535)
)
_brokers = st.builds(
    BrokerRegistration,
    st.just(1),
    st.lists(_endpoints, max_size=3, unique_by=lambda each: each.listener).map(tuple),
    st.none() | _texts,
    st.just(1),
    st.dictionaries(_texts, st.dictionaries(_texts, st.integers(0, 32767), max_size=2), max_size=2),
    st.integers(-1, 65535),
    st.integers(0, 2**62),
)


@given(_brokers)
def test_any_registration_round_trips(broker: BrokerRegistration) -> None:
    assert znodes.decode_broker(1, _node(znodes.encode_broker(broker))) == broker


@given(st.dictionaries(st.integers(0, 500), st.builds(ReplicaAssignment, _ids, _ids, _ids), max_size=5))
def test_any_topic_round_trips(partitions: dict[int, ReplicaAssignment]) -> None:
    topic = TopicAssignment("t", "A" * 22, partitions)
    assert znodes.decode_topic("t", znodes.encode_topic(topic)) == topic


@given(st.dictionaries(_texts, _texts))
def test_any_config_round_trips(config: dict[str, str]) -> None:
    assert znodes.decode_config("topics/t", znodes.encode_config(config)) == config


@given(_texts)
def test_any_entity_name_is_one_name_in_a_path(name: str) -> None:
    assert "/" not in znodes.sanitize(name)
    assert znodes.desanitize(znodes.sanitize(name)) == name


@given(st.integers(0, 2**31 - 2), st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_other_nodes_round_trip(number: int, first: int, last: int) -> None:
    block = ProducerIdBlock(number, min(first, last), max(first, last))
    assert znodes.decode_producer_id_block(znodes.encode_producer_id_block(block)) == block
    controller = ControllerRegistration(number, first)
    assert znodes.decode_controller(znodes.encode_controller(controller)) == controller
    features = FinalizedFeatures({"metadata": number})
    assert znodes.decode_features(znodes.encode_features(features)) == features
    assert znodes.decode_epoch(znodes.encode_epoch(number)) == number
    assert znodes.decode_log_dir_event("/x", znodes.encode_log_dir_event(number)) == number
    moves = {TopicPartition("t", 1): (number, 2)}
    assert znodes.decode_reassignments(znodes.encode_reassignments(moves)) == moves
    assert znodes.decode_partitions("/x", encode_partitions(moves)) == list(moves)
