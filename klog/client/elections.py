"""Asks the controller to elect leaders of partitions (KIP-183 preferred ones, KIP-460 unclean ones)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from enum import IntEnum
from typing import NamedTuple

from klog.client.cluster import Cluster
from klog.client.consumer_protocol import partitions_by_topic
from klog.client.controller import ask_controller
from klog.client.errors import ClientError, RefusedError
from klog.formats.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity, Value
from klog.protocol.error_codes import ErrorCode, error_code
from klog.protocol.messages import build, request_class, request_struct

_ANY_TYPE_FROM = 1


class ElectionType(IntEnum):
    """PREFERRED makes the first replica the leader. UNCLEAN takes replicas that are not in sync."""

    PREFERRED = 0
    UNCLEAN = 1


class Elected(NamedTuple):
    """What became of the election of one partition; `message` is the controller's."""

    error: ErrorCode
    message: str | None


def elect_leaders(
    cluster: Cluster, kind: ElectionType, partitions: Iterable[TopicPartition] | None
) -> dict[TopicPartition, Elected]:
    """Elect leaders of these partitions, or of all that need it, which then are the only ones in the answer.

    Raises ClientError, ChannelError.
    """
    wanted = None if partitions is None else partitions_by_topic(sorted(set(partitions)))

    def request(version: int) -> Entity:
        values: dict[str, Value] = {}
        if version >= _ANY_TYPE_FROM:
            values["election_type"] = int(kind)
        elif kind is not ElectionType.PREFERRED:
            raise ClientError("the controller is too old for unclean elections on request")
        topic = request_struct(ApiKey.ELECT_LEADERS, version, "TopicPartitions")
        named = None
        if wanted is not None:
            named = tuple(build(topic, topic=name, partitions=tuple(each)) for name, each in wanted.items())
        return build(
            request_class(ApiKey.ELECT_LEADERS, version),
            topic_partitions=named,
            timeout=timedelta(milliseconds=cluster.timeout_ms),
            **values,
        )

    def codes(answer: Entity) -> list[int]:
        return [
            getattr(answer, "error_code", ErrorCode.NONE),
            *(part.error_code for each in answer.replica_election_results for part in each.partition_result),
        ]

    answer = ask_controller(cluster, ApiKey.ELECT_LEADERS, request, codes)
    failed = error_code(getattr(answer, "error_code", ErrorCode.NONE))
    if failed is not ErrorCode.NONE:
        raise RefusedError("election of leaders", failed)
    return {
        TopicPartition(each.topic, int(part.partition_id)): Elected(
            error_code(part.error_code), part.error_message
        )
        for each in answer.replica_election_results
        for part in each.partition_result
    }
