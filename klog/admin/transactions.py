"""Finds transactions that hang, beside listing and describing them (KIP-664).

A transaction hangs if a partition has it open for longer than brokers allow, and no coordinator knows of it.
The last stable offset of the partition stays there, and readers of committed records wait for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from klog.admin.requests import transaction_admin as client
from klog.admin.requests.transaction_admin import NONE, ActiveProducer, DescribedTransaction
from klog.admin.topics import find_topics
from klog.client.cluster import Cluster
from klog.client.errors import ClientError, RefusedError
from klog.client.producer_id import ProducerId
from klog.formats.constants import NO_LEADER
from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode

_PARTITIONS_A_REQUEST: Final = 500


class OpenTransaction(NamedTuple):
    """A transaction that a partition has open, with its producer."""

    partition: TopicPartition
    producer: ActiveProducer


@dataclass(frozen=True, slots=True)
class WherePartitions:
    """Which partitions to look at: of a topic, one of its partitions, or those on a broker."""

    topic: str | None = None
    partition: int | None = None
    broker_id: int | None = None


def describe(cluster: Cluster, transactional_id: str) -> DescribedTransaction:
    """One transactional id. Raises ClientError, ChannelError."""
    found = client.describe_transactions(cluster, [transactional_id])[transactional_id]
    if isinstance(found, KlogError):
        raise found
    return found


def producers(
    cluster: Cluster, partition: TopicPartition, broker_id: int | None = None
) -> list[ActiveProducer]:
    """The producers of a partition, of its leader or of one broker. Raises ClientError, ChannelError."""
    find_topics(cluster, [partition.topic])
    cluster.refresh([partition.topic])
    found = client.describe_producers(cluster, [partition], broker_id)[partition]
    if isinstance(found, RefusedError):
        raise found
    return found


def find_hanging(
    cluster: Cluster,
    where: WherePartitions,
    max_timeout_ms: int,
    now_ms: int,
    on_leaderless: Callable[[Sequence[TopicPartition]], object],
) -> list[OpenTransaction]:
    """The transactions that are open although no coordinator will end them. Raises ClientError, ChannelError.

    `max_timeout_ms` is transaction.max.timeout.ms of the brokers: a younger transaction is not hanging. If
    many partitions are looked at, those without a leader are left out: `on_leaderless` is called with them.
    """
    partitions = _partitions(cluster, where)
    if where.partition is None and where.broker_id is None:
        led = [each for each in partitions if cluster.leader(each) != NO_LEADER]
        if len(led) < len(partitions):
            on_leaderless(sorted(set(partitions).difference(led)))
        partitions = led
    candidates = [
        OpenTransaction(partition, producer)
        for partition, producer in _open(cluster, partitions, where.broker_id)
        if now_ms - producer.last_timestamp_ms > max_timeout_ms
    ]
    if not candidates:
        return []
    ids = {each.producer.producer.producer_id for each in candidates}
    known = client.list_transactions(cluster, producer_ids=sorted(ids))
    by_producer = {each.producer_id: each.transactional_id for each in known}
    described = client.describe_transactions(cluster, by_producer.values())
    return [each for each in candidates if _hangs(each, by_producer, described)]


def _hangs(
    found: OpenTransaction,
    by_producer: dict[int, str],
    described: dict[str, DescribedTransaction | KlogError],
) -> bool:
    transactional_id = by_producer.get(found.producer.producer.producer_id)
    if transactional_id is None:
        return True
    known = described[transactional_id]
    if isinstance(known, RefusedError) and known.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return True
    if isinstance(known, KlogError):
        raise known
    return found.partition not in known.partitions


def _partitions(cluster: Cluster, where: WherePartitions) -> list[TopicPartition]:
    if where.partition is not None and where.topic is not None:
        found = [TopicPartition(where.topic, where.partition)]
        find_topics(cluster, [where.topic])
    else:
        topics = find_topics(cluster, None if where.topic is None else [where.topic])
        found = [
            TopicPartition(topic.name, part.partition)
            for topic in topics
            for part in topic.partitions
            if where.broker_id is None or where.broker_id in part.replicas
        ]
    cluster.refresh_existing({partition.topic for partition in found})
    return found


def _open(
    cluster: Cluster, partitions: Sequence[TopicPartition], broker_id: int | None
) -> Iterable[OpenTransaction]:
    for first in range(0, len(partitions), _PARTITIONS_A_REQUEST):
        some = partitions[first : first + _PARTITIONS_A_REQUEST]
        for partition, found in sorted(
            client.describe_producers(cluster, some, broker_id).items(), key=lambda item: item[0]
        ):
            if isinstance(found, RefusedError):
                raise found
            yield from (OpenTransaction(partition, each) for each in found if each.transaction_start != NONE)


def abort(cluster: Cluster, partition: TopicPartition, start_offset: int) -> ActiveProducer:
    """Abort the transaction that begins at this offset of a partition; gives its producer.

    Raises ClientError, also if there is no such transaction, and ChannelError.
    """
    found = open_at(cluster, partition, start_offset)
    client.abort_transaction(cluster, partition, found.producer, found.coordinator_epoch)
    return found


def open_at(cluster: Cluster, partition: TopicPartition, start_offset: int) -> ActiveProducer:
    """The producer whose transaction begins at this offset. Raises as `abort`."""
    for each in producers(cluster, partition):
        if each.transaction_start == start_offset:
            return each
    raise ClientError(
        f"no transaction is open at offset {start_offset} of {partition}",
        cure=f"klog transactions describe-producers --topic {partition.topic} "
        f"--partition {partition.partition}",
    )


def abort_of(
    cluster: Cluster, partition: TopicPartition, producer: ProducerId, coordinator_epoch: int
) -> None:
    """Abort what a producer has open in a partition, unseen. Raises ClientError, ChannelError."""
    cluster.refresh([partition.topic])
    client.abort_transaction(cluster, partition, producer, coordinator_epoch)
