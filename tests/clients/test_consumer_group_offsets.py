"""Offsets of groups of the new protocol: deleted by OffsetDelete, and expired. On klog and on Kafka 4.1."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from klog.protocol.apis import ApiKey
from klog.protocol.channel import Channel
from klog.protocol.error_codes import ErrorCode
from klog.protocol.messages import build, request_class
from klog.testing.topics import create_topic
from tests.clients.brokers import klog_or_kafka4
from tests.clients.test_consumer_protocol import CONFIG as PROTOCOL_CONFIG
from tests.clients.test_consumer_protocol import ConsumerMember
from tests.entity_structs import request_struct
from tests.waiting import eventually

CONFIG = {**PROTOCOL_CONFIG, "offsets.retention.check.interval.ms": 200}
# Later versions of OffsetCommit cannot say how long an offset is kept.
COMMIT_VERSION = 2

_numbers = itertools.count()


@pytest.fixture(scope="module", params=["klog", pytest.param("kafka4", marks=pytest.mark.kafka)])
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with klog_or_kafka4(request, tmp_path_factory, CONFIG) as address:
        yield address


class Group:
    """A group as a client without members sees it. It has offsets of two topics."""

    def __init__(self, servers: str) -> None:
        number = next(_numbers)
        self.name = f"offsets-{number}"
        self.topics = f"read-{number}", f"left-{number}"
        self._servers = servers
        for topic in self.topics:
            create_topic(servers, topic, 1, {})

    def commit(self, retention: timedelta) -> None:
        """Commit offset 3 in both topics, to be kept so long."""
        topic, partition = (
            request_struct(ApiKey.OFFSET_COMMIT, COMMIT_VERSION, f"OffsetCommitRequest{name}")
            for name in ("Topic", "Partition")
        )
        offset = build(partition, partition_index=0, committed_offset=3, committed_metadata="")
        request = build(
            request_class(ApiKey.OFFSET_COMMIT, COMMIT_VERSION),
            group_id=self.name,
            generation_id_or_member_epoch=-1,
            member_id="",
            retention_time=retention,
            topics=tuple(build(topic, name=name, partitions=(offset,)) for name in self.topics),
        )

        self._ask(build(request_class(ApiKey.FIND_COORDINATOR, 0), key=self.name))

        def accepted() -> bool:
            errors = {each.partitions[0].error_code for each in self._ask(request).topics}
            # The first question for a coordinator creates the topic of the offsets. A topic is answered for
            # by the broker that created it before it knows of it.
            assert errors <= {
                ErrorCode.NONE,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.NOT_COORDINATOR,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            }
            return errors == {ErrorCode.NONE}

        eventually(accepted)

    def committed(self) -> set[str]:
        """The topics that have an offset."""
        topic = request_struct(ApiKey.OFFSET_FETCH, 2, "OffsetFetchRequestTopic")
        asked = tuple(build(topic, name=name, partition_indexes=(0,)) for name in self.topics)
        answer = self._ask(build(request_class(ApiKey.OFFSET_FETCH, 2), group_id=self.name, topics=asked))
        assert answer.error_code == ErrorCode.NONE
        return {each.name for each in answer.topics if each.partitions[0].committed_offset == 3}

    def delete_offsets(self) -> list[int]:
        """OffsetDelete for both topics: the error of each."""
        topic, partition = (
            request_struct(ApiKey.OFFSET_DELETE, 0, f"OffsetDeleteRequest{name}")
            for name in ("Topic", "Partition")
        )
        asked = tuple(
            build(topic, name=name, partitions=(build(partition, partition_index=0),)) for name in self.topics
        )
        answer = self._ask(build(request_class(ApiKey.OFFSET_DELETE, 0), group_id=self.name, topics=asked))
        assert answer.error_code == ErrorCode.NONE
        errors = {each.name: each.partitions[0].error_code for each in answer.topics}
        return [errors[name] for name in self.topics]

    @contextmanager
    def reader(self) -> Iterator[None]:
        """A member that subscribes to the first topic; it commits nothing."""
        member = ConsumerMember(self._servers, self.topics[0], self.name)
        try:
            member.await_partitions(0)
            yield
        finally:
            member.close()

    def _ask(self, request):
        host, _, port = self._servers.rpartition(":")
        with Channel(host, int(port)) as connection:
            return connection.send(request)


def test_offsets_of_subscribed_topics_cannot_be_deleted(servers: str) -> None:
    group = Group(servers)
    group.commit(timedelta(days=1))
    with group.reader():
        assert group.delete_offsets() == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]
        assert group.committed() == {group.topics[0]}
    assert group.delete_offsets() == [ErrorCode.NONE, ErrorCode.NONE]
    assert group.committed() == set()


def test_offsets_of_subscribed_topics_do_not_expire(servers: str) -> None:
    # On a busy machine the offsets may expire before the member has joined.
    for retention_s in (4, 8, 16, 32, 64):
        group = Group(servers)
        group.commit(timedelta(seconds=retention_s))
        with group.reader():
            if group.committed() == set(group.topics):
                eventually(lambda group=group: group.committed() == {group.topics[0]}, retention_s + 60)
                break
    else:
        pytest.fail("no member joins within a minute")
    eventually(lambda: group.committed() == set())
