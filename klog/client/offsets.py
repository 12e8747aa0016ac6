"""Asks leaders for offsets: the first, the next to be written, the first at or after a time (KIP-79)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from klog.client.cluster import Cluster
from klog.client.connection import Connection
from klog.client.errors import ClientError, RefusedError
from klog.formats.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode, error_code
from klog.protocol.errors import ChannelError
from klog.protocol.messages import build, request_class, request_struct

NOT_FOUND: Final = -1
_CONSUMER: Final = -1


class Isolation(IntEnum):
    """What a reader sees of transactions: all records, or committed ones only."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


def list_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> dict[TopicPartition, int]:
    """The offset of each partition for a time (in ms, or one of `offset_times`).

    NOT_FOUND means that no record is as late. LATEST is the high watermark, for committed readers the last
    stable offset. Retries while leaders move. Raises ClientError, ChannelError.
    """
    found: dict[TopicPartition, int] = {}
    retry = cluster.new_retry()
    while missing := [TopicPartition(*partition) for partition in wanted if partition not in found]:
        try:
            for leader_id, partitions in cluster.by_leader(missing).items():
                connection = cluster.leader_connection(leader_id, partitions)
                times = {partition: wanted[partition] for partition in partitions}
                found |= request_offsets(connection, times, isolation)
        except (ClientError, ChannelError) as error:
            cluster.pause_and_refresh(error, {partition.topic for partition in missing}, retry)
    return found


def request_offsets(
    connection: Connection,
    wanted: Mapping[TopicPartition, int],
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> dict[TopicPartition, int]:
    """What one broker answers for partitions that it leads. Raises RefusedError, ChannelError."""
    version = connection.version_of(ApiKey.LIST_OFFSETS)
    topic_class = request_struct(ApiKey.LIST_OFFSETS, version, "ListOffsetsTopic")
    partition_class = request_struct(ApiKey.LIST_OFFSETS, version, "ListOffsetsPartition")
    topics: dict[str, list[object]] = {}
    for (topic, number), timestamp in wanted.items():
        part = build(partition_class, partition_index=number, timestamp=timestamp)
        topics.setdefault(topic, []).append(part)
    request = build(
        request_class(ApiKey.LIST_OFFSETS, version),
        replica_id=_CONSUMER,
        isolation_level=int(isolation),
        topics=tuple(
            build(topic_class, name=name, partitions=tuple(parts)) for name, parts in topics.items()
        ),
        timeout=None,
    )
    found = {}
    for topic in connection.send(request).topics:
        for part in topic.partitions:
            partition = TopicPartition(topic.name, part.partition_index)
            if error_code(int(part.error_code)) is not ErrorCode.NONE:
                raise RefusedError(f"offsets of {partition}", part.error_code)
            found[partition] = int(part.offset)
    return found
