"""Asks leaders for offsets: the first, the next to be written, the first at or after a time (KIP-79)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final

from klog.client.asking import ask_leaders, try_leaders
from klog.client.cluster import Cluster
from klog.client.connection import Connection
from klog.client.errors import RefusedError, is_retriable
from klog.client.requests import ask, by_partition, by_topic, refusal
from klog.formats.constants import NO_LEADER
from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import UnsupportedApiError
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

    def ask_leader(connection: Connection, led: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return request_offsets(connection, {each: wanted[each] for each in led}, isolation)

    return ask_leaders(cluster, wanted, ask_leader)


def try_list_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> dict[TopicPartition, int | KlogError]:
    """As `list_offsets`, but a partition that is refused or cannot be reached has its error.

    A partition without a leader has one at once. The cluster must know the leaders. Raises
    UnsupportedApiError if a broker does not know what a time below zero stands for.
    """

    def ask_leader(
        connection: Connection, led: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int | KlogError]:
        return _answered(connection, {each: wanted[each] for each in led}, isolation)

    return try_leaders(
        cluster,
        wanted,
        ask_leader,
        no_leader=lambda each: RefusedError(f"offsets of {each}", ErrorCode.LEADER_NOT_AVAILABLE),
        may_pass=lambda each, error: is_retriable(error) and cluster.leader(each) != NO_LEADER,
    )


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
    answer = ask(
        connection,
        ApiKey.LIST_OFFSETS,
        replica_id=_CONSUMER,
        isolation_level=isolation,
        topics=by_topic(wanted, lambda each: {"partition_index": each.partition, "timestamp": wanted[each]}),
        timeout=None,
    )
    found: dict[TopicPartition, int | RefusedError] = {}
    for partition, part in by_partition(answer.topics):
        error = refusal(part, f"offsets of {partition}")
        found[partition] = int(part.offset) if error is None else error
    return found
