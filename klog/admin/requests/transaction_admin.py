"""Sends the requests with which tools look at transactions and end those that hang.

Rules: KIP-664. Every broker lists the transactions that it coordinates; leaders know the producers of their
partitions, and take markers from administrators.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from klog.client.asking import ask_every_broker, ask_leaders
from klog.client.cluster import Cluster
from klog.client.connection import Connection
from klog.client.coordinators import CoordinatorType, ask_coordinators
from klog.client.errors import ClientError, RefusedError
from klog.client.producer_id import ProducerId
from klog.client.requests import accepted, ask, by_partition, by_topic, refusal
from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity

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
    wanted = tuple(producer_ids)

    def ask_broker(connection: Connection) -> Entity:
        version = connection.version_of(ApiKey.LIST_TRANSACTIONS, _LAST_LIST)
        if longer_than_ms != NONE and version < _DURATION_FROM:
            what = f"{connection} cannot select transactions by their duration"
            raise ClientError(what, cure="leave out --duration-filter")
        return ask(
            connection,
            ApiKey.LIST_TRANSACTIONS,
            at_most=_LAST_LIST,
            state_filters=(),
            producer_id_filters=wanted,
            duration_filter=longer_than_ms,
        )

    return sorted(
        ListedTransaction(each.transactional_id, broker_id, int(each.producer_id), each.transaction_state)
        for broker_id, answer in ask_every_broker(cluster, "transactions", ask_broker)
        for each in answer.transaction_states
    )


def describe_transactions(
    cluster: Cluster, transactional_ids: Iterable[str]
) -> dict[str, DescribedTransaction | KlogError]:
    """Each transactional id, or its error; TRANSACTIONAL_ID_NOT_FOUND for an unknown one.

    Raises ChannelError.
    """
    brokers: dict[str, int] = {}

    def ask_coordinator(connection: Connection, ids: Sequence[str]) -> dict[str, Entity | RefusedError]:
        answer = ask(connection, ApiKey.DESCRIBE_TRANSACTIONS, transactional_ids=ids)
        return {
            each.transactional_id: refusal(each, CoordinatorType.TRANSACTION.named(each.transactional_id))
            or each
            for each in answer.transaction_states
        }

    answers = ask_coordinators(
        cluster, CoordinatorType.TRANSACTION, transactional_ids, ask_coordinator, brokers
    )
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

    def ask_leader(
        connection: Connection, led: Sequence[TopicPartition]
    ) -> dict[TopicPartition, list[ActiveProducer] | RefusedError]:
        found = _producers(connection, led)
        for answer in found.values():
            if broker_id is None and isinstance(answer, RefusedError) and answer.code.retriable:
                raise answer
        return found

    return ask_leaders(cluster, partitions, ask_leader, broker_id)


def _producers(
    connection: Connection, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, list[ActiveProducer] | RefusedError]:
    topics = by_topic(partitions, parts="partition_indexes")
    return {
        partition: refusal(part, f"producers of {partition}")
        or [_active(each) for each in part.active_producers]
        for partition, part in by_partition(ask(connection, ApiKey.DESCRIBE_PRODUCERS, topics=topics).topics)
    }


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
    marker = {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "transaction_result": False,
        "topics": by_topic([partition], parts="partition_indexes"),
        "coordinator_epoch": max(coordinator_epoch, 0),
    }
    answer = ask(connection, ApiKey.WRITE_TXN_MARKERS, at_most=_LAST_MARKERS, markers=[marker])
    for each in answer.markers:
        for _, part in by_partition(each.topics):
            accepted(part, f"aborting the transaction in {partition}")
