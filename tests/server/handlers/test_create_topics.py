"""CreateTopics answers as Kafka's controller does, and leaves what it leaves in the tree."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from klog.formats.names import decode_uuid
from klog.metadata.configs import read_config
from klog.metadata.errors import StoreFailedError
from klog.metadata.topics import read_topics, request_deletion
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from tests.server.handlers.admin_parts import AdminCluster
from tests.server.handlers.parts import answer_of, part_of

CREATE = ApiKey.CREATE_TOPICS
VERSIONS = range(8)
CONTRADICTING = {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}


def wanted(name="t", partitions=-1, factor=-1, replicas=None, configs=None, version=7):
    assignments = tuple(
        part_of(CREATE, version, "CreatableReplicaAssignment", partition_index=number, broker_ids=brokers)
        for number, brokers in (replicas or {}).items()
    )
    settings = tuple(
        part_of(CREATE, version, "CreatableTopicConfig", name=key, value=value)
        for key, value in (configs or {}).items()
    )
    return part_of(
        CREATE,
        version,
        "CreatableTopic",
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=assignments,
        configs=settings,
    )


def values(*topics, timeout_ms=60_000, validate_only=False):
    return {
        "topics": topics,
        "timeout": timedelta(milliseconds=timeout_ms),
        "validate_only": validate_only,
    }


def create(cluster, *topics, version=7, **fields):
    return cluster.ask(CREATE, version, **values(*topics, **fields)).topics


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_is_created_with_the_counts_asked_for(cluster, version) -> None:
    (result,) = create(cluster, wanted("t", 4, 2, version=version), version=version)
    assert (result.name, result.error_code) == ("t", ErrorCode.NONE)
    assert getattr(result, "error_message", None) is None  # version 0 has no words
    partitions = read_topics(cluster.store, ["t"])["t"].partitions
    assert sorted(partitions) == [0, 1, 2, 3]
    assert all(len(set(each.replicas)) == 2 for each in partitions.values())


def test_version_0_creates_and_never_only_checks(cluster) -> None:
    create(cluster, wanted("t", 1, 1, version=0), version=0, validate_only=True)
    assert list(read_topics(cluster.store, ["t"])) == ["t"]


def test_counts_left_open_are_the_brokers_own() -> None:
    cluster = AdminCluster({"num.partitions": "5", "default.replication.factor": "3"})
    (result,) = create(cluster, wanted())
    assert (result.num_partitions, result.replication_factor) == (5, 3)


def test_replicas_are_spread_over_racks() -> None:
    cluster = AdminCluster(racks=("a", "a", "b"))
    create(cluster, wanted("t", 6, 2))
    racks = {1: "a", 2: "a", 3: "b"}
    for each in read_topics(cluster.store, ["t"])["t"].partitions.values():
        assert {racks[broker] for broker in each.replicas} == {"a", "b"}


def test_brokers_of_which_only_some_have_a_rack_take_no_topic() -> None:
    cluster = AdminCluster(racks=("a", None, "b"))
    assert create(cluster, wanted("t", 1, 1))[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_topic_for_which_the_store_has_no_space_may_be_tried_again(cluster, monkeypatch) -> None:
    def full(*_: object) -> str:
        raise StoreFailedError("klog-metadata.sqlite: database or disk is full", cure="check the disk")

    monkeypatch.setattr("klog.server.handlers.topics.topic_creation.create_topic", full)
    (result,) = create(cluster, wanted("t", 1, 1))
    assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert result.error_message == "klog-metadata.sqlite: database or disk is full (check the disk)"


def test_an_assignment_by_hand_is_kept_even_to_a_broker_that_is_down(cluster) -> None:
    create(cluster, wanted("known", replicas={0: (3,)}))
    cluster.kill(3)
    cluster.settle()
    assert 3 not in cluster.cache.snapshot.brokers
    request = cluster.send(CREATE, 7, **values(wanted(replicas={0: (3, 1), 1: (1, 2)})))
    cluster.settle()
    partitions = read_topics(cluster.store, ["t"])["t"].partitions
    assert {number: each.replicas for number, each in partitions.items()} == {0: (3, 1), 1: (1, 2)}
    assert answer_of(request).topics[0].num_partitions == 2


@pytest.mark.parametrize("validate_only", [False, True])
def test_an_assignment_to_a_broker_that_does_not_exist_is_refused_at_once(cluster, validate_only) -> None:
    (result,) = create(cluster, wanted(replicas={0: (3, 1), 1: (9, -2)}), validate_only=validate_only)
    assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert result.error_message == "Unknown broker(s) in replica assignment: -2, 9."
    assert read_topics(cluster.store, ["t"]) == {}


def test_from_version_5_on_the_answer_has_counts_and_every_config_with_its_source() -> None:
    cluster = AdminCluster({"log.segment.bytes": "1000000"})
    (result,) = create(cluster, wanted("t", 2, 1, configs={"retention.ms": "1000"}), version=5)
    configs = {each.name: (each.value, each.config_source) for each in result.configs}
    assert (result.num_partitions, result.replication_factor) == (2, 1)
    assert configs["retention.ms"] == ("1000", 1)
    assert configs["segment.bytes"] == ("1000000", 4)
    assert configs["cleanup.policy"] == ("delete", 5)
    assert len(configs) > 30
    assert not any(each.is_sensitive or each.read_only for each in result.configs)


def test_version_7_tells_the_topics_id(cluster) -> None:
    (result,) = create(cluster, wanted("t", 1, 1))
    assert result.topic_id == UUID(bytes=decode_uuid(read_topics(cluster.store, ["t"])["t"].topic_id))


def test_configs_are_stored_as_they_were_given(cluster) -> None:
    create(cluster, wanted("t", 1, 1, configs={"cleanup.policy": "compact", "segment.ms": "60000"}))
    assert read_config(cluster.store, "topics/t") == {"cleanup.policy": "compact", "segment.ms": "60000"}


def test_a_check_writes_nothing_and_tells_what_would_be(cluster) -> None:
    (result,) = create(cluster, wanted("t", 3, 2), validate_only=True)
    assert (result.error_code, result.num_partitions, result.topic_id) == (ErrorCode.NONE, 3, None)
    assert read_topics(cluster.store, ["t"]) == {}


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (wanted("a/b", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (wanted("..", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (wanted("x" * 250, 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (wanted("seen.before", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (wanted("seen_before", 1, 1), ErrorCode.TOPIC_ALREADY_EXISTS),
        (wanted("t", 0, 1), ErrorCode.INVALID_PARTITIONS),
        (wanted("t", -2, 1), ErrorCode.INVALID_PARTITIONS),
        (wanted("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (wanted("t", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (wanted("t", 1, 1, {0: (1,)}), ErrorCode.INVALID_REQUEST),
        (wanted("t", replicas={0: (1,), 1: (1, 2)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (wanted("t", replicas={0: (1, 1)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (wanted("t", replicas={0: (1,), 2: (1,)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (wanted("t", 1, 1, configs={"no.such.config": "1"}), ErrorCode.INVALID_CONFIG),
        (wanted("t", 1, 1, configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
        (wanted("t", 1, 1, configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
        (wanted("t", 1, 1, configs=CONTRADICTING), ErrorCode.INVALID_CONFIG),
        (wanted("t", 1, 1, configs={"remote.storage.enable": "true"}), ErrorCode.INVALID_CONFIG),
        (wanted("__cluster_metadata", 1, 1), ErrorCode.INVALID_REQUEST),
    ],
)  # fmt: skip
def test_what_cannot_be_created_is_refused_with_kafkas_error(cluster, topic, error) -> None:
    cluster.create("seen_before", (1,))
    (result,) = create(cluster, topic)
    assert result.error_code == error
    assert (result.num_partitions, result.replication_factor, result.configs) == (-1, -1, ())


def test_a_topic_named_twice_is_refused_and_the_others_are_created(cluster) -> None:
    results = create(cluster, wanted("t", 1, 1), wanted("u", 1, 1), wanted("t", 2, 1))
    assert [(each.name, each.error_code) for each in results] == [
        ("t", ErrorCode.INVALID_REQUEST),
        ("u", ErrorCode.NONE),
        ("t", ErrorCode.INVALID_REQUEST),
    ]


def test_a_topic_that_is_being_deleted_exists_still(cluster) -> None:
    cluster.create("t", (1,))
    cluster.holding_back = True
    request_deletion(cluster.store, "t")
    assert create(cluster, wanted("t", 1, 1))[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_only_the_controller_creates() -> None:
    cluster = AdminCluster(elected=False)
    assert create(cluster, wanted("t", 1, 1))[0].error_code == ErrorCode.NOT_CONTROLLER


def test_the_answer_waits_for_leaders(cluster) -> None:
    cluster.holding_back = True
    request = cluster.send(CREATE, 7, **values(wanted("t", 2, 1)))
    cluster.settle()
    assert not request.answered
    cluster.holding_back = False
    cluster.settle()
    assert answer_of(request).topics[0].error_code == ErrorCode.NONE


def test_at_the_timeout_what_has_no_leader_is_answered_request_timed_out(cluster) -> None:
    cluster.holding_back = True
    request = cluster.send(CREATE, 7, **values(wanted("t", 2, 1), wanted("a/b", 1, 1), timeout_ms=500))
    cluster.pass_time(499)
    assert not request.answered
    cluster.pass_time(1)
    late, refused = answer_of(request).topics
    assert late.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert (late.num_partitions, late.configs) == (-1, ())
    assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_without_a_timeout_the_answer_is_request_timed_out_and_the_topic_is_made(cluster) -> None:
    (result,) = create(cluster, wanted("t", 1, 1), timeout_ms=0)
    assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "t" in cluster.cache.snapshot.topics


@pytest.mark.parametrize("counts", [(2**31 - 1,), (1, 60_000, 60_000)])
@pytest.mark.parametrize("validate_only", [True, False])
def test_partitions_that_would_take_all_memory_are_refused(cluster, counts, validate_only) -> None:
    topics = [wanted(f"t{number}", count, 1) for number, count in enumerate(counts)]
    results = create(cluster, *topics, validate_only=validate_only)
    assert {each.error_code for each in results} == {ErrorCode.POLICY_VIOLATION}
    assert read_topics(cluster.store, ["t0"]) == {}
