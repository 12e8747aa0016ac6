"""Asks leaders for offsets: the first, the next to be written, the first at or after a time (KIP-79)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from klog.client.cluster import NO_LEADER, Cluster
from klog.client.connection import Connection
from klog.client.errors import ClientError, RefusedError, is_retriable
from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode, error_code
from klog.protocol.errors import ChannelError, UnsupportedApiError
from klog.protocol.messages import build, request_class, request_struct
from klog.protocol.offset_times import EARLIEST_LOCAL, LATEST_TIERED, MAX_TIMESTAMP

NOT_FOUND: Final = -1
_CONSUMER: Final = -1
_FIRST_VERSION: Final[Mapping[int, int]] = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}


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


def try_list_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> dict[TopicPartition, int | KlogError]:
    """As `list_offsets`, but a partition that is refused or cannot be reached has its error.

    A partition without a leader has one at once. The cluster must know the leaders. Raises
    UnsupportedApiError if a broker does not know what a time below zero stands for.
    """
    found: dict[TopicPartition, int | KlogError] = {}
    retry = cluster.new_retry()
    missing = list(wanted)
    while True:
        for leader_id, partitions in cluster.by_leader(missing).items():
            times = {partition: wanted[partition] for partition in partitions}
            found |= _of_leader(cluster, leader_id, times, isolation)
        errors = {
            partition: error
            for partition in missing
            if isinstance(error := found[partition], KlogError)
            and is_retriable(error)
            and cluster.leader(partition) != NO_LEADER
        }
        if not errors:
            return found
        missing = list(errors)
        try:
            cluster.pause_and_refresh(errors[missing[0]], {each.topic for each in missing}, retry)
        except (ClientError, ChannelError):
            return found


def _of_leader(
    cluster: Cluster, leader_id: int, wanted: Mapping[TopicPartition, int], isolation: Isolation
) -> Mapping[TopicPartition, int | KlogError]:
    if leader_id == NO_LEADER:
        return {each: RefusedError(f"offsets of {each}", ErrorCode.LEADER_NOT_AVAILABLE) for each in wanted}
    try:
        return _answered(cluster.connection(leader_id), wanted, isolation)
    except (ClientError, ChannelError) as error:
        return dict.fromkeys(wanted, error)


def request_offsets(
    connection: Connection,
    wanted: Mapping[TopicPartition, int],
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> dict[TopicPartition, int]:
    """What one broker answers for partitions that it leads. Raises RefusedError, ChannelError."""
    found = {}
    for partition, offset in _answered(connection, wanted, isolation).items():
        if isinstance(offset, RefusedError):
            raise offset
        found[partition] = offset
    return found


def _answered(
    connection: Connection, wanted: Mapping[TopicPartition, int], isolation: Isolation
) -> dict[TopicPartition, int | RefusedError]:
    version = connection.version_of(ApiKey.LIST_OFFSETS)
    for timestamp in set(wanted.values()):
        if version < _FIRST_VERSION.get(timestamp, 0):
            raise UnsupportedApiError(f"{connection} does not know what the time {timestamp} stands for")
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
    found: dict[TopicPartition, int | RefusedError] = {}
    for answered in connection.send(request).topics:
        for part in answered.partitions:
            partition = TopicPartition(answered.name, part.partition_index)
            code = error_code(int(part.error_code))
            refused = code is not ErrorCode.NONE
            found[partition] = RefusedError(f"offsets of {partition}", code) if refused else int(part.offset)
    return found
