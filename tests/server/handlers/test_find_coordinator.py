"""FindCoordinator: the broker that leads the partition to which a group belongs."""

from __future__ import annotations

import pytest

from klog.coordinator.runtime.partitioning import partition_of
from klog.coordinator.transactions.coordinator import TRANSACTION_STATE
from klog.formats.names import CONSUMER_OFFSETS
from klog.metadata.configs import read_config
from klog.metadata.topics import read_topics
from klog.protocol.apis import SERVED, ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.server.handlers.groups.find_coordinator import FindCoordinatorHandler
from klog.server.handlers.topics.auto_creation import AutoTopicCreation
from tests.server.handlers.admin_parts import AdminCluster
from tests.server.handlers.parts import answer_of, request_of

API = ApiKey.FIND_COORDINATOR
GROUP, TRANSACTION, SHARE = 0, 1, 2
NOBODY = (-1, "", -1)
PARTITIONS = 3
UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


class Cluster(AdminCluster):
    """A cluster whose brokers find coordinators."""

    def __init__(self) -> None:
        super().__init__(
            {
                "offsets.topic.num.partitions": str(PARTITIONS),
                "transaction.state.log.num.partitions": str(PARTITIONS),
            }
        )
        self.finder = FindCoordinatorHandler(
            self.cache,
            lambda group_id: partition_of(group_id, PARTITIONS),
            lambda transactional_id: partition_of(transactional_id, PARTITIONS),
            AutoTopicCreation(self.creator, lambda: self.config),
            lambda request, work: work(request),
        )

    def find(self, version: int, **values):
        request = request_of(API, version, **values)
        self.finder.handle(request)
        return answer_of(request)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def node(answer):
    return answer.node_id, answer.host, answer.port


def key_of(version: int, key: str = "group", key_type: int = GROUP) -> dict[str, object]:
    if version >= 4:
        return {"key_type": key_type, "coordinator_keys": (key,)}
    return {"key": key} | ({"key_type": key_type} if version else {})


def test_version_0_is_announced_because_librdkafka_compresses_with_lz4_only_then() -> None:
    assert SERVED[API].min_version == 0


@pytest.mark.parametrize(
    ("version", "key_type", "name"),
    [
        *((version, GROUP, CONSUMER_OFFSETS) for version in range(7)),
        *((version, TRANSACTION, TRANSACTION_STATE) for version in range(1, 7)),
    ],
)
def test_the_topic_is_created_when_it_is_first_needed(
    cluster, version: int, key_type: int, name: str
) -> None:
    wanted = key_of(version, "id", key_type)
    answer = cluster.find(version, **wanted)
    found = answer if version < 4 else answer.coordinators[0]
    assert (found.error_code, node(found)) == (UNAVAILABLE, NOBODY)
    cluster.settle()
    topic = read_topics(cluster.store, [name])[name]
    assert len(topic.partitions) == PARTITIONS
    answer = cluster.find(version, **wanted)
    found = answer if version < 4 else answer.coordinators[0]
    leader = cluster.cache.snapshot.topics[name][partition_of("id", PARTITIONS)].leader
    assert (found.error_code, found.node_id) == (ErrorCode.NONE, leader)
    assert getattr(found, "error_message", None) == {0: None, 4: "", 5: "", 6: ""}.get(version, "NONE")


@pytest.mark.parametrize("version", range(1, 7))
def test_errors_have_messages_where_kafkas_have(cluster, version: int) -> None:
    def message(key_type: int) -> str:
        answer = cluster.find(version, **key_of(version, "group", key_type))
        return (answer if version < 4 else answer.coordinators[0]).error_message

    assert message(9)
    assert bool(message(GROUP)) == (version < 4)
    assert bool(message(SHARE)) == (version < 4)


def test_the_topic_of_transactions_has_kafkas_configs(cluster) -> None:
    cluster.find(4, **key_of(4, "id", TRANSACTION))
    cluster.settle()
    assert read_config(cluster.store, f"topics/{TRANSACTION_STATE}") == {
        "unclean.leader.election.enable": "false",
        "compression.type": "uncompressed",
        "cleanup.policy": "compact",
        "min.insync.replicas": "2",
        "segment.bytes": "104857600",
    }


@pytest.mark.parametrize(
    ("key_type", "name", "config"),
    [
        (GROUP, CONSUMER_OFFSETS, "offsets.topic.replication.factor"),
        (TRANSACTION, TRANSACTION_STATE, "transaction.state.log.replication.factor"),
    ],
)
def test_the_log_says_once_why_the_topic_cannot_be_created(
    cluster, caplog, key_type: int, name: str, config: str
) -> None:
    cluster.kill(3)
    cluster.settle()
    for _ in range(3):
        answer = cluster.find(3, key="id", key_type=key_type)
        assert answer.error_code == UNAVAILABLE
    (line,) = [each.getMessage() for each in caplog.records if name in each.getMessage()]
    assert (
        line == f"{name} cannot be created: INVALID_REPLICATION_FACTOR ({config} must not exceed the brokers)"
    )


def test_every_group_has_its_own_coordinator(cluster) -> None:
    cluster.create(CONSUMER_OFFSETS, (1,), (2,), (3,))
    names = [f"group-{number}" for number in range(20)]
    answer = cluster.find(4, key_type=GROUP, coordinator_keys=tuple(names))
    expected = [partition_of(name, PARTITIONS) + 1 for name in names]
    assert [each.node_id for each in answer.coordinators] == expected
    assert [each.key for each in answer.coordinators] == names
    assert set(expected) == {1, 2, 3}


def test_a_partition_whose_leader_is_gone_has_no_coordinator(cluster) -> None:
    cluster.create(CONSUMER_OFFSETS, (2,), (2,), (2,))
    cluster.kill(2)
    cluster.settle()
    answer = cluster.find(3, key="group", key_type=GROUP)
    assert (answer.error_code, node(answer)) == (UNAVAILABLE, NOBODY)


@pytest.mark.parametrize(
    ("version", "key_type", "error"),
    [
        (1, 9, ErrorCode.INVALID_REQUEST),
        (5, SHARE, ErrorCode.INVALID_REQUEST),
        (6, SHARE, UNAVAILABLE),
    ],
)
def test_other_kinds_of_keys(cluster, version: int, key_type: int, error: ErrorCode) -> None:
    answer = cluster.find(version, **key_of(version, "k", key_type))
    found = answer if version < 4 else answer.coordinators[0]
    assert found.error_code == error


@pytest.mark.parametrize("version", [0, 3])
def test_a_broken_handler_is_answered_for_where_there_is_one_key(cluster, version: int) -> None:
    request = request_of(API, version, **key_of(version))
    request.respond(cluster.finder.failed(request, ErrorCode.UNKNOWN_SERVER_ERROR))
    assert answer_of(request).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_broken_handler_closes_the_connection_where_keys_are_not_known(cluster) -> None:
    request = request_of(API, 4, **key_of(4))
    assert cluster.finder.failed(request, ErrorCode.UNKNOWN_SERVER_ERROR) is None
