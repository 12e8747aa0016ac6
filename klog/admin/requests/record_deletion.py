"""Asks leaders to delete the records of partitions before an offset (KIP-107)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from klog.client.asking import try_leaders
from klog.client.cluster import Cluster
from klog.client.connection import Connection
from klog.client.errors import RefusedError, is_retriable
from klog.client.requests import ask, by_partition, by_topic, refusal
from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode

HIGH_WATERMARK: Final = -1
"""The offset that stands for the high watermark: all records that can be read are deleted."""


def delete_records(
    cluster: Cluster, before: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | KlogError]:
    """The low watermark of each partition after its records before an offset are gone, or the error.

    Retries while leaders move: deleting twice up to the same offset is the same as once. The cluster must
    know the leaders. Raises UnsupportedApiError.
    """

    def no_leader(partition: TopicPartition) -> RefusedError:
        exists = partition.partition in cluster.partitions(partition.topic)
        code = ErrorCode.LEADER_NOT_AVAILABLE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return RefusedError(f"records of {partition}", code)

    def ask_leader(
        connection: Connection, led: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int | KlogError]:
        topics = by_topic(led, lambda each: {"partition_index": each.partition, "offset": before[each]})
        answer = ask(connection, ApiKey.DELETE_RECORDS, topics=topics, timeout=cluster.timeout_ms)
        return {
            partition: refusal(part, f"records of {partition}") or int(part.low_watermark)
            for partition, part in by_partition(answer.topics)
        }

    return try_leaders(cluster, before, ask_leader, no_leader=no_leader, may_pass=_may_pass)


def _may_pass(_partition: TopicPartition, error: KlogError) -> bool:
    """Whether to ask again. After REQUEST_TIMED_OUT the records are gone, but a follower has not said so."""
    timed_out = isinstance(error, RefusedError) and error.code is ErrorCode.REQUEST_TIMED_OUT
    return is_retriable(error) and not timed_out
