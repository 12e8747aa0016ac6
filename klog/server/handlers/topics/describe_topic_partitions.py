"""Answers DescribeTopicPartitions requests with topics in pages.

Rules: KIP-966 and Kafka's DescribeTopicPartitionsRequestHandler. Topics come in the order of their names; the
cursor names the first partition of the next page. Eligible leader replicas exist with
KRaft only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from klog.config.broker import BrokerConfig
from klog.metadata.cache import ClusterSnapshot, MetadataCache
from klog.protocol.error_codes import ErrorCode
from klog.server.handlers.answers import Struct, entity_of, send_answer
from klog.server.handlers.topics.topic_metadata import (
    TOPIC_OPERATIONS,
    View,
    absence_of,
    not_shown,
    partition_struct,
    topic_struct,
    topic_uuid,
)
from klog.server.network.request import Request

_LIMIT: Final = "max.request.partition.size.limit"


@dataclass(frozen=True, slots=True)
class DescribeTopicPartitionsHandler:
    """Answers DescribeTopicPartitions requests."""

    cache: MetadataCache
    config: Callable[[], BrokerConfig]

    def handle(self, request: Request) -> None:
        """Answer with the page that the request asks for."""
        wanted = entity_of(request)
        snapshot = self.cache.snapshot
        cursor = wanted.cursor
        asked = {each.name for each in wanted.topics}
        first = "" if cursor is None else cursor.topic_name
        names = sorted(name for name in asked or snapshot.topics if name >= first)
        lost = cursor is not None and asked and first not in names
        if lost or (cursor is not None and cursor.partition_index < 0):
            refused = [not_shown(name, ErrorCode.INVALID_REQUEST) for name in asked]
            send_answer(request, topics=refused, next_cursor=None)
            return
        start = 0 if cursor is None else cursor.partition_index
        room = max(1, min(self.config().number(_LIMIT), wanted.response_partition_limit))
        topics: list[Struct] = []
        for name in names:
            if not room:
                _send_page(request, topics, name, 0)
                return
            if name not in snapshot.topics:
                if asked:
                    topics.append(topic_struct(name, None, TOPIC_OPERATIONS, absence_of(name)))
                continue
            from_partition = start if name == first else 0
            shown, following = _page(snapshot, request.listener, name, from_partition, room)
            topic_id = topic_uuid(snapshot, name)
            topics.append(topic_struct(name, topic_id, TOPIC_OPERATIONS, partitions=shown))
            if following is not None:
                _send_page(request, topics, name, following)
                return
            room -= len(shown)
        send_answer(request, topics=topics, next_cursor=None)


def _send_page(request: Request, topics: list[Struct], next_topic: str, next_partition: int) -> None:
    cursor = {"topic_name": next_topic, "partition_index": next_partition}
    send_answer(request, topics=topics, next_cursor=cursor)


def _page(
    snapshot: ClusterSnapshot, listener: str, topic: str, start: int, room: int
) -> tuple[list[Struct], int | None]:
    """Up to `room` partitions of a topic from `start`, and the partition to go on with, if any."""
    partitions = snapshot.topics[topic]
    end = min(len(partitions), start + room)
    view = View(listener)
    shown = [
        partition_struct(snapshot, partitions[number], view, eligible_leader_replicas=(), last_known_elr=())
        for number in range(start, end)
        if number in partitions
    ]
    return shown, end if end < len(partitions) else None
