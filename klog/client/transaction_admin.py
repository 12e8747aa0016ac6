"""Sends the requests with which tools look at transactions and end those that hang.

Rules: KIP-664. Every broker lists the transactions that it coordinates; leaders know the producers of their
partitions, and take markers from administrators.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from klog.client.cluster import Cluster
from klog.client.connection import Connection
from klog.client.consumer_protocol import partitions_by_topic
from klog.client.coordinators import CoordinatorType, ask_coordinators
from klog.client.errors import ClientError, RefusedError
from klog.client.producer_id import ProducerId
from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode, error_code
from klog.protocol.errors import ChannelError
from klog.protocol.messages import build, request_class, request_struct

NONE: Final = -1
_DURATION_FROM: Final = 1
_LAST_LIST: Final = 1
_LAST_MARKERS: Final = 1
_MS_PER_S: Final = 1000


class ListedTransaction(NamedTuple):
    """A transactional id as its coordinator lists it."""

    transactional_id: str
    coordinator_id: int
    producer_id: int
    state: str


class DescribedTransaction(NamedTuple):
    """A transactional id as its coordinator describes it; `start_ms` is NONE if no transaction is open."""

    transactional_id: str
    coordinator_id: int
    producer: ProducerId
    state: str
    timeout_ms: int
    start_ms: int
    partitions: tuple[TopicPartition, ...]


class ActiveProducer(NamedTuple):
    """A producer that a partition remembers; `transaction_start` is where an open transaction begins."""

    producer: ProducerId
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start: int


def list_transactions(
    cluster: Cluster, *, producer_ids: Iterable[int] = (), longer_than_ms: int = NONE
) -> list[ListedTransaction]:
    """The transactions of all brokers, sorted by id. Raises ClientError, ChannelError."""
    found: list[ListedTransaction] = []
    wanted = tuple(producer_ids)
    for broker_id in sorted(int(broker.node_id) for broker in cluster.metadata(()).brokers):
        retry = cluster.new_retry()
        while True:
            answer = _listed(cluster.connection(broker_id), wanted, longer_than_ms)
            code = error_code(answer.error_code)
            if code is ErrorCode.NONE:
                break
            error = RefusedError(f"transactions of broker {broker_id}", code)
            if not code.retriable:
                raise error
            retry.failed(error)
        found += [
            ListedTransaction(each.transactional_id, broker_id, int(each.producer_id), each.transaction_state)
            for each in answer.transaction_states
        ]
    return sorted(found)


def _listed(connection: Connection, producer_ids: Sequence[int], longer_than_ms: int) -> Entity:
    version = connection.version_of(ApiKey.LIST_TRANSACTIONS, _LAST_LIST)
    if longer_than_ms != NONE and version < _DURATION_FROM:
        raise ClientError(
            f"{connection} cannot select transactions by their duration", cure="leave out --duration-filter"
        )
    return connection.send(
        build(
            request_class(ApiKey.LIST_TRANSACTIONS, version),
            state_filters=(),
            producer_id_filters=tuple(producer_ids),
            duration_filter=longer_than_ms,
        )
    )


def describe_transactions(
    cluster: Cluster, transactional_ids: Iterable[str]
) -> dict[str, DescribedTransaction | KlogError]:
    """Each transactional id, or its error; TRANSACTIONAL_ID_NOT_FOUND for an unknown one.

    Raises ChannelError.
    """
    brokers: dict[str, int] = {}

    def ask(connection: Connection, ids: Sequence[str]) -> dict[str, Entity | RefusedError]:
        version = connection.version_of(ApiKey.DESCRIBE_TRANSACTIONS)
        request = build(request_class(ApiKey.DESCRIBE_TRANSACTIONS, version), transactional_ids=tuple(ids))
        found: dict[str, Entity | RefusedError] = {}
        for each in connection.send(request).transaction_states:
            code, name = error_code(each.error_code), each.transactional_id
            refused = RefusedError(CoordinatorType.TRANSACTION.named(name), code)
            found[name] = each if code is ErrorCode.NONE else refused
        return found

    answers = ask_coordinators(cluster, CoordinatorType.TRANSACTION, transactional_ids, ask, brokers)
    return {
        name: each if isinstance(each, KlogError) else _described(each, brokers[name])
        for name, each in answers.items()
    }


def _described(answer: Entity, broker_id: int) -> DescribedTransaction:
    start_ms = _ms_of(answer.transaction_start_time)
    return DescribedTransaction(
        answer.transactional_id,
        broker_id,
        ProducerId(int(answer.producer_id), int(answer.producer_epoch)),
        answer.transaction_state,
        round(answer.transaction_timeout.total_seconds() * _MS_PER_S),
        max(start_ms, NONE),
        tuple(
            sorted(
                TopicPartition(topic.topic, number) for topic in answer.topics for number in topic.partitions
            )
        ),
    )


def _ms_of(time: Entity) -> int:
    """Milliseconds since the epoch of a time, which the entity has as a datetime."""
    return NONE if time is None else round(time.timestamp() * _MS_PER_S)


def describe_producers(
    cluster: Cluster, partitions: Iterable[TopicPartition], broker_id: int | None = None
) -> dict[TopicPartition, list[ActiveProducer] | RefusedError]:
    """The producers of each partition as its leader knows them, or as one broker does.

    Raises ClientError, ChannelError.
    """
    found: dict[TopicPartition, list[ActiveProducer] | RefusedError] = {}
    wanted = list(partitions)
    retry = cluster.new_retry()
    while missing := [partition for partition in wanted if partition not in found]:
        led = {broker_id: missing} if broker_id is not None else cluster.by_leader(missing)
        try:
            for leader_id, group in led.items():
                connection = cluster.leader_connection(leader_id, group)
                for partition, answer in _producers(connection, group).items():
                    moved = isinstance(answer, RefusedError) and answer.code.retriable
                    if isinstance(answer, RefusedError) and moved and broker_id is None:
                        raise answer
                    found[partition] = answer
        except (ClientError, ChannelError) as error:
            cluster.pause_and_refresh(error, {partition.topic for partition in missing}, retry)
    return found


def _producers(
    connection: Connection, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, list[ActiveProducer] | RefusedError]:
    version = connection.version_of(ApiKey.DESCRIBE_PRODUCERS)
    topic = request_struct(ApiKey.DESCRIBE_PRODUCERS, version, "TopicRequest")
    request = build(
        request_class(ApiKey.DESCRIBE_PRODUCERS, version),
        topics=tuple(
            build(topic, name=name, partition_indexes=tuple(numbers))
            for name, numbers in partitions_by_topic(partitions).items()
        ),
    )
    found: dict[TopicPartition, list[ActiveProducer] | RefusedError] = {}
    for each in connection.send(request).topics:
        for part in each.partitions:
            partition = TopicPartition(each.name, part.partition_index)
            code = error_code(part.error_code)
            found[partition] = (
                [_active(state) for state in part.active_producers]
                if code is ErrorCode.NONE
                else RefusedError(f"producers of {partition}", code, message=part.error_message)
            )
    return found


def _active(state: Entity) -> ActiveProducer:
    return ActiveProducer(
        ProducerId(int(state.producer_id), int(state.producer_epoch)),
        int(state.last_sequence),
        int(state.last_timestamp),
        int(state.coordinator_epoch),
        int(state.current_txn_start_offset),
    )


def abort_transaction(
    cluster: Cluster, partition: TopicPartition, producer: ProducerId, coordinator_epoch: int
) -> None:
    """Write an abort marker for a producer into a partition. Raises ClientError, ChannelError."""
    connection = cluster.leader_connection(cluster.leader(partition), [partition])
    version = connection.version_of(ApiKey.WRITE_TXN_MARKERS, _LAST_MARKERS)
    marker, topic = (
        request_struct(ApiKey.WRITE_TXN_MARKERS, version, name)
        for name in ("WritableTxnMarker", "WritableTxnMarkerTopic")
    )
    wanted = build(
        marker,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        transaction_result=False,
        topics=(build(topic, name=partition.topic, partition_indexes=(partition.partition,)),),
        coordinator_epoch=max(coordinator_epoch, 0),
    )
    answer = connection.send(build(request_class(ApiKey.WRITE_TXN_MARKERS, version), markers=(wanted,)))
    for each in answer.markers:
        for found in each.topics:
            for part in found.partitions:
                code = error_code(part.error_code)
                if code is not ErrorCode.NONE:
                    raise RefusedError(f"aborting the transaction in {partition}", code)
