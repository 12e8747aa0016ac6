"""Asks the controller to elect leaders of partitions (KIP-183 preferred ones, KIP-460 unclean ones)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from klog.client.cluster import Cluster
from klog.client.controller import ask_controller
from klog.client.errors import ClientError
from klog.client.requests import accepted, by_partition, by_topic
from klog.formats.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.election_type import ElectionType
from klog.protocol.error_codes import ErrorCode, error_code

_ANY_TYPE_FROM = 1


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

    def check(version: int) -> None:
        if version < _ANY_TYPE_FROM and kind is not ElectionType.PREFERRED:
            raise ClientError("the controller is too old for unclean elections on request")

    topics = None if partitions is None else by_topic(sorted(set(partitions)), topic="topic")
    values = {"election_type": kind, "topic_partitions": topics, "timeout": cluster.timeout_ms}
    answer = accepted(ask_controller(cluster, ApiKey.ELECT_LEADERS, values, check), "election of leaders")
    found = by_partition(
        answer.replica_election_results, topic="topic", parts="partition_result", number="partition_id"
    )
    return {partition: Elected(error_code(part.error_code), part.error_message) for partition, part in found}
