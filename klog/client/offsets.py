"""Asking leaders for offsets: the first, the next to be written, the first at or after a time (KIP-79)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final

from klog.client.cluster import NO_LEADER, Cluster, TopicPartition
from klog.client.errors import ClientError, RefusedError
from klog.client.patience import Patience
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode, error_code
from klog.protocol.errors import ChannelError
from klog.protocol.messages import build, request_class, request_struct

NOT_FOUND: Final = -1


class Isolation(IntEnum):
    """What a reader sees of transactions: everything, or what has been committed."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


def list_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> dict[TopicPartition, int]:
    """The offset of each partition for a time (in ms, or of `offset_times`); NOT_FOUND where no record is as
    late.

    LATEST is the high watermark, for committed readers the last stable offset. Tries again while leaders
    move. Raises ClientError, ChannelError.
    """
    found: dict[TopicPartition, int] = {}
    patience = Patience(cluster.timeout_ms)
    while missing := [partition for partition in wanted if partition not in found]:
        try:
            for node_id, partitions in cluster.by_leader(missing).items():
                if node_id == NO_LEADER:
                    topic, number = partitions[0]
                    raise ClientError(
                        f"{topic}-{number} has no leader", cure=f"klog topics describe {topic} shows why"
                    )
                found |= _ask(cluster, node_id, {part: wanted[part] for part in partitions}, isolation)
        except (ClientError, ChannelError) as error:
            if isinstance(error, RefusedError) and not error.code.retriable:
                raise
            patience.failed(error)
            cluster.refresh({topic for topic, _ in missing})
    return found


def _ask(
    cluster: Cluster, node_id: int, wanted: Mapping[TopicPartition, int], isolation: Isolation
) -> dict[TopicPartition, int]:
    channel = cluster.channel(node_id)
    version = channel.version_of(ApiKey.LIST_OFFSETS)
    topic_class = request_struct(ApiKey.LIST_OFFSETS, version, "ListOffsetsTopic")
    partition_class = request_struct(ApiKey.LIST_OFFSETS, version, "ListOffsetsPartition")
    topics = tuple(
        build(
            topic_class,
            name=name,
            partitions=tuple(
                build(partition_class, partition_index=number, timestamp=timestamp)
                for (topic, number), timestamp in wanted.items()
                if topic == name
            ),
        )
        for name in _topics(wanted)
    )
    request = build(
        request_class(ApiKey.LIST_OFFSETS, version),
        replica_id=-1,
        isolation_level=int(isolation),
        topics=topics,
        timeout=None,
    )
    found = {}
    for topic in channel.send(request).topics:
        for partition in topic.partitions:
            if error_code(int(partition.error_code)) is not ErrorCode.NONE:
                raise RefusedError(
                    f"offsets of {topic.name}-{partition.partition_index}", partition.error_code
                )
            found[topic.name, partition.partition_index] = int(partition.offset)
    return found


def _topics(partitions: Iterable[TopicPartition]) -> dict[str, None]:
    return dict.fromkeys(topic for topic, _ in partitions)
