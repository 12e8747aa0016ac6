"""Asks leaders to delete the records of partitions before an offset (KIP-107)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from klog.client.asking import try_leaders
from klog.client.cluster import Cluster
from klog.client.connection import Connection
from klog.client.errors import RefusedError, is_retriable
from klog.client.requests import ask, by_partition, by_topic
from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode

HIGH_WATERMARK: Final = -1
"""The offset that stands for the high watermark: all records that can be read are deleted."""

_CURES: Final[dict[int, str]] = {
    ErrorCode.POLICY_VIOLATION: (
        "records of a topic that is only compacted cannot be deleted: "
        "set cleanup.policy to compact,delete first"
    ),
}


def delete_records(
    cluster: Cluster, before: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | KlogError]:
    """The low watermark of each partition after its records before an offset are gone, or the error.

    Retries while leaders move: deleting twice up to the same offset is the same as once. The cluster must
    know the leaders. Raises UnsupportedApiError.
    """

    def refused(partition: TopicPartition, code: int) -> RefusedError:
        return RefusedError(f"records of {partition}", code, cure=_CURES.get(code))

    def no_leader(partition: TopicPartition) -> RefusedError:
        exists = partition.partition in cluster.partitions(partition.topic)
        code = ErrorCode.LEADER_NOT_AVAILABLE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return refused(partition, code)

    def ask_leader(
        connection: Connection, led: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int | KlogError]:
        topics = by_topic(led, lambda each: {"partition_index": each.partition, "offset": before[each]})
        answer = ask(connection, ApiKey.DELETE_RECORDS, topics=topics, timeout=cluster.timeout_ms)
        return {
            partition: int(part.low_watermark)
            if part.error_code == 0
            else refused(partition, part.error_code)
            for partition, part in by_partition(answer.topics)
        }

    return try_leaders(cluster, before, ask_leader, no_leader=no_leader, may_pass=_may_pass)


def _may_pass(_partition: TopicPartition, error: KlogError) -> bool:
    """Whether to ask again. After REQUEST_TIMED_OUT the records are gone, but a follower has not said so."""
    timed_out = isinstance(error, RefusedError) and error.code is ErrorCode.REQUEST_TIMED_OUT
    return is_retriable(error) and not timed_out
