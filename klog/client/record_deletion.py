"""Asks leaders to delete the records of partitions before an offset (KIP-107)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from klog.client.cluster import NO_LEADER, Cluster
from klog.client.connection import Connection
from klog.client.errors import ClientError, RefusedError, is_retriable
from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode, error_code
from klog.protocol.errors import ChannelError
from klog.protocol.messages import build, request_class, request_struct

HIGH_WATERMARK: Final = -1
"""The offset that stands for the high watermark: all records that can be read are deleted."""


def delete_records(
    cluster: Cluster, before: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | KlogError]:
    """The low watermark of each partition after its records before an offset are gone, or the error.

    Retries while leaders move: deleting twice up to the same offset is the same as once. The cluster must
    know the leaders. Raises UnsupportedApiError.
    """
    found: dict[TopicPartition, int | KlogError] = {}
    retry = cluster.new_retry()
    missing = list(before)
    while True:
        for leader_id, partitions in cluster.by_leader(missing).items():
            found |= _of_leader(cluster, leader_id, {each: before[each] for each in partitions})
        errors = {
            partition: error
            for partition in missing
            if isinstance(error := found[partition], KlogError) and _may_succeed_later(error)
        }
        if not errors:
            return found
        missing = list(errors)
        try:
            cluster.pause_and_refresh(errors[missing[0]], {each.topic for each in missing}, retry)
        except (ClientError, ChannelError):
            return found


def _may_succeed_later(error: KlogError) -> bool:
    """Whether to ask again. After REQUEST_TIMED_OUT the records are gone, but a follower has not said so."""
    timed_out = isinstance(error, RefusedError) and error.code is ErrorCode.REQUEST_TIMED_OUT
    return is_retriable(error) and not timed_out


def _of_leader(
    cluster: Cluster, leader_id: int, before: Mapping[TopicPartition, int]
) -> Mapping[TopicPartition, int | KlogError]:
    if leader_id == NO_LEADER:
        return {each: RefusedError(f"records of {each}", _why_no_leader(cluster, each)) for each in before}
    try:
        return _answered(cluster.connection(leader_id), before, cluster.timeout_ms)
    except (ClientError, ChannelError) as error:
        return dict.fromkeys(before, error)


def _why_no_leader(cluster: Cluster, partition: TopicPartition) -> ErrorCode:
    exists = partition.partition in cluster.partitions(partition.topic)
    return ErrorCode.LEADER_NOT_AVAILABLE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _answered(
    connection: Connection, before: Mapping[TopicPartition, int], timeout_ms: int
) -> dict[TopicPartition, int | KlogError]:
    version = connection.version_of(ApiKey.DELETE_RECORDS)
    topic, partition = (
        request_struct(ApiKey.DELETE_RECORDS, version, name)
        for name in ("DeleteRecordsTopic", "DeleteRecordsPartition")
    )
    topics: dict[str, list[object]] = {}
    for (name, number), offset in before.items():
        topics.setdefault(name, []).append(build(partition, partition_index=number, offset=offset))
    request = build(
        request_class(ApiKey.DELETE_RECORDS, version),
        topics=tuple(build(topic, name=name, partitions=tuple(parts)) for name, parts in topics.items()),
        timeout=timedelta(milliseconds=timeout_ms),
    )
    found: dict[TopicPartition, int | KlogError] = {}
    for answered in connection.send(request).topics:
        for part in answered.partitions:
            where = TopicPartition(answered.name, int(part.partition_index))
            code = error_code(int(part.error_code))
            failed = code is not ErrorCode.NONE
            found[where] = RefusedError(f"records of {where}", code) if failed else int(part.low_watermark)
    return found
