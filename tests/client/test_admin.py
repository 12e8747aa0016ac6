"""Admin requests go to the broker that answers them. Only what a former controller refused is sent again."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from klog.client import admin
from klog.client.admin import NewTopic, Resource, ResourceType, TopicResult
from klog.client.errors import ClientError, RefusedError
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import ConnectionLostError
from tests.client.fake_broker import BOOT, A, B, FakeCluster, metadata

TOPIC = NewTopic("t", 2, -1, {}, {"retention.ms": "1"})


def controlled(broker_id: int) -> SimpleNamespace:
    """A Metadata answer that names the controller."""
    answer = metadata()
    answer.controller_id = broker_id
    return answer


def created(code: ErrorCode = ErrorCode.NONE, message: str | None = None) -> SimpleNamespace:
    return SimpleNamespace(topics=[SimpleNamespace(name="t", error_code=code, error_message=message)])


def configs(code: ErrorCode = ErrorCode.NONE, kind: int = 4, name: str = "2") -> SimpleNamespace:
    result = SimpleNamespace(
        error_code=code, error_message="no", resource_type=kind, resource_name=name, configs=()
    )
    return SimpleNamespace(results=[result], responses=[result])


def test_topics_are_created_by_the_controller():
    world = FakeCluster(controlled(2))
    world.connections[B].answers = [created(ErrorCode.TOPIC_ALREADY_EXISTS, "it exists")]
    outcomes = admin.create_topics(world.client, [TOPIC], validate_only=False)
    assert outcomes == [TopicResult("t", ErrorCode.TOPIC_ALREADY_EXISTS, "it exists")]
    (request,) = world.connections[B].sent
    assert [(each.name, each.num_partitions) for each in request.topics] == [("t", 2)]
    assert not world.connections[A].sent


def test_a_former_controller_is_not_asked_twice():
    world = FakeCluster(controlled(1), controlled(2))
    world.connections[A].answers = [created(ErrorCode.NOT_CONTROLLER)]
    world.connections[B].answers = [created()]
    assert admin.create_topics(world.client, [TOPIC], validate_only=False) == [
        TopicResult("t", ErrorCode.NONE, None)
    ]


def test_a_cluster_without_a_controller_is_waited_for_and_then_an_error():
    world = FakeCluster(controlled(-1), controlled(1))
    world.connections[A].answers = [created()]
    assert admin.create_topics(world.client, [TOPIC], validate_only=False)[0].error is ErrorCode.NONE
    world = FakeCluster(*(controlled(-1) for _ in range(100)))
    with pytest.raises(ClientError, match="no controller"):
        admin.create_topics(world.client, [TOPIC], validate_only=False)


def test_a_lost_answer_is_not_asked_for_again():
    world = FakeCluster(controlled(1), controlled(1))
    world.connections[A].answers = [ConnectionLostError("it broke"), created()]
    with pytest.raises(ConnectionLostError):
        admin.create_topics(world.client, [TOPIC], validate_only=False)
    assert len(world.connections[A].sent) == 1


def test_a_broker_describes_its_own_configs_and_any_broker_those_of_topics():
    world = FakeCluster(metadata(), configs(kind=2, name="t"))
    world.connections[B].answers = [configs()]
    resources = [Resource(ResourceType.BROKER, "2"), Resource(ResourceType.TOPIC, "t")]
    found = admin.describe_configs(world.client, resources)
    assert sorted(resource for resource, _ in found) == sorted(resources)
    assert len(world.connections[B].sent) == 1


def test_a_refused_resource_is_an_error_with_the_brokers_message():
    world = FakeCluster(configs(ErrorCode.INVALID_CONFIG, 2, "t"), configs(ErrorCode.INVALID_CONFIG, 2, "t"))
    topic = Resource(ResourceType.TOPIC, "t")
    with pytest.raises(RefusedError, match="configs of topic t: INVALID_CONFIG: no"):
        admin.describe_configs(world.client, [topic])
    with pytest.raises(RefusedError, match="configs of topic t: INVALID_CONFIG: no"):
        admin.alter_configs(world.client, topic, [("retention.ms", 0, "x")], validate_only=False)
    assert len(world.connections[BOOT].sent) == 2
