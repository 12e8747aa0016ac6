"""Metadata answers as Kafka's broker does, in every version."""

from __future__ import annotations

from functools import partial
from uuid import UUID, uuid4

import pytest

from klog.formats.names import decode_uuid
from klog.metadata.configs import read_config
from klog.metadata.topics import read_topics
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.server.handlers.topics.auto_creation import AutoTopicCreation
from klog.server.handlers.topics.metadata import MetadataHandler
from klog.server.handlers.topics.topic_metadata import INTERNAL_TOPICS
from tests.control_requests import update_metadata
from tests.server.handlers.admin_parts import CLUSTER_ID, INNER_LISTENER, LISTENER, AdminCluster, registration
from tests.server.handlers.parts import FakeRequest, answer_of, part_of, request_of

METADATA = ApiKey.METADATA
VERSIONS = range(13)
NOT_ASKED_FOR = -(2**31)


def values(version, *names, ids=(), create=True, topic_operations=False, cluster_operations=False):
    """A request about topics by name, by id, or (no argument at all) about all of them."""
    topics = tuple(
        part_of(METADATA, version, "MetadataRequestTopic", name=name, topic_id=None) for name in names
    ) + tuple(part_of(METADATA, version, "MetadataRequestTopic", name=None, topic_id=each) for each in ids)
    return {
        "topics": topics or (None if version else ()),
        "allow_auto_topic_creation": create,
        "include_topic_authorized_operations": topic_operations,
        "include_cluster_authorized_operations": cluster_operations,
    }


def ask(cluster, version, *names, listener=LISTENER, **fields):
    return cluster.ask(METADATA, version, listener=listener, **values(version, *names, **fields))


def errors(answer):
    return {topic.name: topic.error_code for topic in answer.topics}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_is_told_with_leaders_replicas_and_in_sync_replicas(cluster, version) -> None:
    cluster.create("t", (2, 3), (3, 1))
    (topic,) = ask(cluster, version, "t").topics
    assert (topic.name, topic.error_code) == ("t", ErrorCode.NONE)
    told = {each.partition_index: each for each in topic.partitions}
    assert [told[0].leader_id, told[1].leader_id] == [2, 3]
    assert told[0].replica_nodes == told[0].isr_nodes == (2, 3)
    assert {each.error_code for each in topic.partitions} == {ErrorCode.NONE}


@pytest.mark.parametrize("version", VERSIONS)
def test_all_topics_are_told_with_brokers_and_controller(cluster, version) -> None:
    cluster.create("t", (1,))
    cluster.create("u", (2,))
    answer = ask(cluster, version)
    assert errors(answer) == {"t": ErrorCode.NONE, "u": ErrorCode.NONE}
    assert {(each.node_id, each.host, each.port) for each in answer.brokers} == {
        (number, f"host{number}", 9092) for number in (1, 2, 3)
    }
    if version >= 1:
        assert answer.controller_id == 1
    if version >= 2:
        assert answer.cluster_id == CLUSTER_ID


def test_from_version_1_on_an_empty_list_asks_for_no_topic(cluster) -> None:
    cluster.create("t", (1,))
    for version in range(1, 13):
        assert cluster.ask(METADATA, version, **{**values(version), "topics": ()}).topics == ()


def test_racks_are_told() -> None:
    cluster = AdminCluster(racks=("a", "b", "a"))
    assert {each.node_id: each.rack for each in ask(cluster, 5).brokers} == {1: "a", 2: "b", 3: "a"}


def test_every_listener_has_its_own_endpoints(cluster) -> None:
    inner = ask(cluster, 9, listener=INNER_LISTENER)
    outer = ask(cluster, 9)
    assert {each.port for each in inner.brokers} == {9093}
    assert {each.port for each in outer.brokers} == {9092}


def test_internal_topics_are_marked(cluster) -> None:
    cluster.create("__consumer_offsets", (1,))
    cluster.create("t", (1,))
    told = {topic.name: topic.is_internal for topic in ask(cluster, 9).topics}
    assert told == {"__consumer_offsets": True, "t": False}
    assert {"__consumer_offsets", "__transaction_state", "__share_group_state"} == INTERNAL_TOPICS


def test_a_partition_without_leader_is_told_with_its_error_and_its_offline_replicas(cluster) -> None:
    cluster.create("t", (2,))
    cluster.kill(2)
    for version in range(5, 13):
        (partition,) = ask(cluster, version, "t").topics[0].partitions
        assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert partition.offline_replicas == (2,)


def test_version_0_hides_replicas_that_cannot_be_reached_and_says_so(cluster) -> None:
    cluster.create("t", (1, 2))
    cluster.kill(2)
    (partition,) = ask(cluster, 0, "t").topics[0].partitions
    assert (partition.error_code, partition.replica_nodes) == (ErrorCode.REPLICA_NOT_AVAILABLE, (1,))
    (partition,) = ask(cluster, 1, "t").topics[0].partitions
    assert (partition.error_code, partition.replica_nodes) == (ErrorCode.NONE, (1, 2))


def test_a_leader_without_the_listener_has_an_error_of_its_own_from_version_6_on(cluster) -> None:
    cluster.kill(2)
    cluster.register(registration(2, None, INNER_LISTENER))
    cluster.create("t", (2,))
    for version, error in ((5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)):
        answer = ask(cluster, version, "t")
        assert [each.error_code for each in answer.topics[0].partitions] == [error]
        assert {each.node_id for each in answer.brokers} == {1, 3}


def test_topics_are_found_by_their_ids_from_version_12_on(cluster) -> None:
    topic_id, unknown = UUID(bytes=decode_uuid(cluster.create("t", (1,)))), uuid4()
    found = {each.topic_id: each for each in ask(cluster, 12, ids=(topic_id, unknown)).topics}
    assert (found[topic_id].name, found[topic_id].error_code) == ("t", ErrorCode.NONE)
    assert (found[unknown].name, found[unknown].error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)


@pytest.mark.parametrize("version", [10, 11])
def test_ids_in_earlier_requests_are_refused(cluster, version) -> None:
    topic_id = UUID(bytes=decode_uuid(cluster.create("t", (1,))))
    answer = ask(cluster, version, "t", ids=(topic_id,))
    assert errors(answer) == {"t": ErrorCode.INVALID_REQUEST, "": ErrorCode.INVALID_REQUEST}
    assert answer.brokers == ()


def test_a_missing_topic_is_created_and_has_its_leader_when_asked_for_again(cluster) -> None:
    assert errors(ask(cluster, 9, "new")) == {"new": ErrorCode.LEADER_NOT_AVAILABLE}
    assert errors(ask(cluster, 9, "new")) == {"new": ErrorCode.NONE}


def test_created_topics_have_the_brokers_counts_and_internal_ones_configs_of_their_own() -> None:
    cluster = AdminCluster({"num.partitions": "3", "offsets.topic.num.partitions": "7"})
    ask(cluster, 9, "new", "__consumer_offsets")
    made = read_topics(cluster.store, ["new", "__consumer_offsets"])
    counts = {name: len(each.partitions) for name, each in made.items()}
    assert counts == {"new": 3, "__consumer_offsets": 7}
    assert read_config(cluster.store, "topics/__consumer_offsets") == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }


def test_any_broker_creates_missing_topics_not_only_the_controller() -> None:
    other = AdminCluster(elected=False)
    other.cache.update(update_metadata({}, {}, list(map(registration, (1, 2, 3))), controller_id=2))
    assert errors(ask(other, 9, "new")) == {"new": ErrorCode.LEADER_NOT_AVAILABLE}
    assert "new" in read_topics(other.store, ["new"])


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_is_created_where_the_broker_does_not_allow_it(version) -> None:
    cluster = AdminCluster({"auto.create.topics.enable": "false"})
    assert errors(ask(cluster, version, "new", "a/b")) == {
        "new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "a/b": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert read_topics(cluster.store, ["new"]) == {}


def test_nothing_is_created_where_the_client_does_not_want_it(cluster) -> None:
    for version in range(4, 13):
        answer = ask(cluster, version, "new", create=False)
        assert errors(answer) == {"new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert read_topics(cluster.store, ["new"]) == {}


def test_a_topic_that_cannot_be_created_has_the_reason_as_its_error() -> None:
    cluster = AdminCluster({"default.replication.factor": "4"})
    cluster.create("seen_before", (1,))
    assert errors(ask(cluster, 9, "new", "a/b", "seen.before")) == {
        "new": ErrorCode.INVALID_REPLICATION_FACTOR,
        "a/b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "seen.before": ErrorCode.INVALID_REPLICATION_FACTOR,
    }


def test_operations_are_told_where_they_are_asked_for(cluster) -> None:
    cluster.create("t", (1,))
    for version in (8, 9, 10):
        answer = ask(cluster, version, "t", topic_operations=True, cluster_operations=True)
        assert (answer.cluster_authorized_operations, answer.topics[0].topic_authorized_operations) == (
            8096,
            3576,
        )
        answer = ask(cluster, version, "t")
        assert answer.cluster_authorized_operations == NOT_ASKED_FOR
        assert answer.topics[0].topic_authorized_operations == NOT_ASKED_FOR


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_that_is_kept_is_forgotten_when_the_cluster_changes(cluster, version) -> None:
    cluster.create("t", (3, 2))
    first = ask(cluster, version, "t"), ask(cluster, version)
    assert (ask(cluster, version, "t"), ask(cluster, version)) == first
    cluster.kill(3)
    assert ask(cluster, version, "t").topics[0].partitions[0].leader_id == 2
    cluster.create("u", (2,))
    assert set(errors(ask(cluster, version))) == {"t", "u"}


def test_one_topic_is_told_the_same_alone_and_among_all(cluster) -> None:
    cluster.create("t", (1, 2))
    cluster.create("u", (2,))
    for version in VERSIONS:
        among = {topic.name: topic for topic in ask(cluster, version).topics}
        assert ask(cluster, version, "t").topics == (among["t"],)


def test_answers_are_kept_in_bounds_whatever_clients_ask(cluster) -> None:
    cluster.create("t", (1,))
    handler = cluster.handlers[METADATA]
    for count in range(1, 400):
        ask(cluster, 9, *["t"] * count)
    assert len(handler._answers._present.answers) <= 256


def unhurried(cluster, background):
    """A handler whose work is put into a list, with its request, when it may not wait."""
    creation = AutoTopicCreation(cluster.creator, lambda: cluster.config)
    return MetadataHandler(
        CLUSTER_ID, cluster.cache, creation, lambda request, work: background.append(partial(work, request))
    )


def test_on_a_thread_that_must_not_wait_only_kept_answers_are_given(cluster) -> None:
    cluster.create("t", (1,))
    background = []
    handler = unhurried(cluster, background)
    first, second = (request_of(METADATA, 9, **values(9, "t")) for _ in range(2))
    first.on_io_thread = second.on_io_thread = False
    handler.handle(first)
    assert not first.answered
    background.pop()()
    handler.handle(second)
    assert background == []
    assert bytes(first.answer) == bytes(second.answer)
    assert errors(answer_of(second)) == {"t": ErrorCode.NONE}


def test_answers_do_not_wait_for_topics_that_others_create(cluster) -> None:
    """The metadata store may be away for as long as it takes."""
    cluster.create("t", (1,))
    background, creating = [], []
    handler = MetadataHandler(
        CLUSTER_ID,
        cluster.cache,
        AutoTopicCreation(cluster.creator, lambda: cluster.config),
        lambda request, work: background.append(partial(work, request)),
        lambda request, work: creating.append(partial(work, request)),
    )
    present, absent = (
        request_of(METADATA, 9, **values(9, "t")),
        request_of(METADATA, 9, **values(9, "t", "u")),
    )
    for request in (absent, present):
        request.on_io_thread = False
        handler.handle(request)
    for work in background:
        work()
    assert errors(answer_of(present)) == {"t": ErrorCode.NONE}
    assert not absent.answered
    (create,) = creating
    create()
    assert errors(answer_of(absent)) == {"t": ErrorCode.NONE, "u": ErrorCode.LEADER_NOT_AVAILABLE}


def test_a_topic_with_neither_name_nor_id_is_a_servers_error_for_all(cluster) -> None:
    answer = ask(cluster, 12, "t", None, create=False)
    assert errors(answer) == {"t": ErrorCode.UNKNOWN_SERVER_ERROR, "": ErrorCode.UNKNOWN_SERVER_ERROR}


@pytest.mark.parametrize(("version", "name"), [(10, None), (11, None), (10, "t"), (11, "t"), (12, None)])
def test_a_request_that_is_refused_learns_nothing_of_the_cluster(cluster, version, name) -> None:
    cluster.create("t", (1,))
    topic_id = None if version >= 12 else UUID(int=7)
    asked = part_of(METADATA, version, "MetadataRequestTopic", name=name, topic_id=topic_id)
    answer = cluster.ask(METADATA, version, **values(version) | {"topics": (asked,)})
    assert (answer.brokers, answer.cluster_id, answer.controller_id) == ((), None, -1)
    assert [(each.name, each.topic_id) for each in answer.topics] == [(name or "", topic_id)]


def test_a_name_in_another_encoding_is_no_topics(cluster) -> None:
    # Topics, one of them, its name's size, "Ä" in Latin-1; no automatic creation.
    body = b"\x00\x00\x00\x01\x00\x01\xc4\x00"
    request = FakeRequest(METADATA, 4, memoryview(body))
    cluster.handlers[METADATA].handle(request)
    assert errors(answer_of(request)) == {"\ufffd": ErrorCode.INVALID_TOPIC_EXCEPTION}
