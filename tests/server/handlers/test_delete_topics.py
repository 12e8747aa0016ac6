"""DeleteTopics answers as Kafka's controller does."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from klog.formats.names import decode_uuid
from klog.metadata.topics import topic_names
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from tests.server.handlers.admin_parts import AdminCluster
from tests.server.handlers.parts import answer_of, part_of

DELETE = ApiKey.DELETE_TOPICS


def by_name(version, *names, timeout_ms=60_000):
    timeout = timedelta(milliseconds=timeout_ms)
    if version < 6:
        return {"topic_names": names, "timeout": timeout}
    states = tuple(part_of(DELETE, 6, "DeleteTopicState", name=name, topic_id=None) for name in names)
    return {"topics": states, "timeout": timeout}


def states(*pairs):
    topics = tuple(
        part_of(DELETE, 6, "DeleteTopicState", name=name, topic_id=topic_id) for name, topic_id in pairs
    )
    return {"topics": topics, "timeout": timedelta(seconds=60)}


@pytest.mark.parametrize("version", range(7))
def test_a_topic_is_deleted_by_its_name(cluster, version) -> None:
    cluster.create("t", (1,), (2,))
    (result,) = cluster.ask(DELETE, version, **by_name(version, "t")).responses
    assert (result.name, result.error_code) == ("t", ErrorCode.NONE)
    assert topic_names(cluster.store) == []


def test_a_topic_is_deleted_by_its_id_and_the_answer_has_its_name(cluster) -> None:
    topic_id = UUID(bytes=decode_uuid(cluster.create("t", (1,))))
    (result,) = cluster.ask(DELETE, 6, **states((None, topic_id))).responses
    assert (result.name, result.topic_id, result.error_code) == ("t", topic_id, ErrorCode.NONE)
    assert topic_names(cluster.store) == []


def test_topics_that_are_not_there_have_errors_of_their_own(cluster) -> None:
    cluster.create("t", (1,))
    unknown = uuid4()
    results = cluster.ask(DELETE, 6, **states(("gone", None), (None, unknown), ("t", None))).responses
    assert [(each.name, each.topic_id, each.error_code) for each in results] == [
        ("gone", None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID),
        ("t", None, ErrorCode.NONE),
    ]


def test_a_topic_named_by_both_spoils_the_request(cluster) -> None:
    topic_id = UUID(bytes=decode_uuid(cluster.create("t", (1,))))
    results = cluster.ask(DELETE, 6, **states(("t", topic_id), ("t", None))).responses
    assert {each.error_code for each in results} == {ErrorCode.INVALID_REQUEST}
    assert topic_names(cluster.store) == ["t"]


def test_who_names_no_topic_is_told_that_it_may_not_know_of_it_and_the_others_go(cluster) -> None:
    cluster.create("t", (1,))
    results = cluster.ask(DELETE, 6, **states((None, None), ("t", None))).responses
    errors = [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.NONE]
    assert ([each.error_code for each in results], topic_names(cluster.store)) == (errors, [])


@pytest.mark.parametrize(
    ("version", "error"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)]
)
def test_where_deletion_is_disabled_nothing_is_deleted(version, error) -> None:
    cluster = AdminCluster({"delete.topic.enable": "false"})
    cluster.create("t", (1,))
    assert cluster.ask(DELETE, version, **by_name(version, "t")).responses[0].error_code == error
    assert topic_names(cluster.store) == ["t"]


def test_only_the_controller_deletes() -> None:
    cluster = AdminCluster(elected=False)
    (result,) = cluster.ask(DELETE, 6, **by_name(6, "t")).responses
    assert result.error_code == ErrorCode.NOT_CONTROLLER


def test_the_answer_waits_until_the_topic_is_gone_and_so_does_a_second_request(cluster) -> None:
    cluster.create("t", (1,))
    cluster.holding_back = True
    first, second = (cluster.send(DELETE, 5, **by_name(5, "t")) for _ in range(2))
    cluster.settle()
    assert not first.answered
    assert not second.answered
    cluster.holding_back = False
    cluster.settle()
    for request in (first, second):
        assert answer_of(request).responses[0].error_code == ErrorCode.NONE


def test_at_the_timeout_what_is_there_still_is_answered_request_timed_out(cluster) -> None:
    cluster.create("t", (1,))
    cluster.holding_back = True
    request = cluster.send(DELETE, 6, **by_name(6, "t", timeout_ms=300))
    cluster.pass_time(300)
    assert answer_of(request).responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
