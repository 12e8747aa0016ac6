"""Answers InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn and EndTxn.

Rules: Kafka's `KafkaApis` and the message schemas; KIP-98, KIP-360 (producers that go on after an error),
KIP-588 (PRODUCER_FENCED), KIP-890 (AddPartitionsToTxn from version 4 on comes from brokers).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from klog.coordinator.transactions.requests import TransactionRequests
from klog.coordinator.transactions.values import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    InitResult,
    Producer,
)
from klog.formats.names import CONSUMER_OFFSETS, TopicPartition
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.protocol.messages import encode_response
from klog.protocol.transaction_messages import (
    AddPartitions,
    read_add_partitions,
    read_end_txn,
    write_added_partitions,
    write_error,
)
from klog.server.handlers.answers import Struct, answer_of, by_topic, entity_of, milliseconds, send_answer
from klog.server.handlers.topics.topic_metadata import INTERNAL_TOPICS
from klog.server.network.request import Request

# The first versions whose clients know PRODUCER_FENCED; INVALID_PRODUCER_EPOCH stands for it before.
_INIT_FENCED_FROM: Final = 4
_FENCED_FROM: Final = 2
_SEVERAL_TRANSACTIONS_FROM: Final = 4

PartitionErrors = Mapping[TopicPartition, ErrorCode]


def _known_to(version: int, fenced_from: int, error: ErrorCode) -> ErrorCode:
    """An error as clients of a version know it."""
    if error is ErrorCode.PRODUCER_FENCED and version < fenced_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


class _Wanted(NamedTuple):
    """The partitions that are to be added to one transaction, or looked for in it."""

    transactional_id: str
    producer: Producer
    partitions: Collection[TopicPartition]
    verify_only: bool = False


@dataclass(frozen=True, slots=True)
class ProducersHandler:
    """Answers the requests of transactional producers.

    `known` says whether the cluster has a partition; `partition_of_group` gives the partition of
    `__consumer_offsets` that a group belongs to.
    """

    transactions: TransactionRequests
    known: Callable[[TopicPartition], bool]
    partition_of_group: Callable[[str], int]

    # -- the producer's id -----------------------------------------------------------------------------------

    def init_producer(self, request: Request) -> None:
        """InitProducerId: answered when the id's new epoch is written."""
        asked = entity_of(request)
        # Older versions do not say an id and an epoch.
        producer = Producer(
            getattr(asked, "producer_id", NO_PRODUCER_ID),
            getattr(asked, "producer_epoch", NO_PRODUCER_EPOCH),
        )
        if (producer.producer_id == NO_PRODUCER_ID) != (producer.epoch == NO_PRODUCER_EPOCH):
            _answer_init(request, InitResult(ErrorCode.INVALID_REQUEST))
            return
        self.transactions.init_producer(
            asked.transactional_id,
            milliseconds(asked.transaction_timeout),
            producer,
            lambda result: _answer_init(request, result),
        )

    def init_failed(self, request: Request, error: ErrorCode) -> list[bytes]:
        """What an InitProducerId request is answered that could not be handled."""
        return [encode_response(_init_answer(request, InitResult(error)))]

    # -- partitions ------------------------------------------------------------------------------------------

    def add_partitions(self, request: Request) -> None:
        """AddPartitionsToTxn: answered when the transactions are written."""
        version = request.api_version
        if version < _SEVERAL_TRANSACTIONS_FROM:
            asked = read_add_partitions(version, request.body)
            wanted = _Wanted(asked.transactional_id, _producer(asked), asked.partitions)
            refused = self._refused(wanted.partitions, may_be_internal=False)
            self._ask(version, wanted, refused, lambda errors: _answer_client(request, errors))
            return
        transactions = [_wanted_by_broker(each) for each in entity_of(request).transactions]
        ids = [each.transactional_id for each in transactions]
        answers = _PendingAnswers(len(ids), lambda errors: _answer_broker(request, ids, errors))
        for index, wanted in enumerate(transactions):
            refused = self._refused(wanted.partitions, may_be_internal=True)
            self._ask(version, wanted, refused, answers.taker(index))

    def _refused(self, partitions: Collection[TopicPartition], *, may_be_internal: bool) -> PartitionErrors:
        """The errors of partitions that cannot be in a transaction."""
        errors = {}
        for partition in partitions:
            if not may_be_internal and partition.topic in INTERNAL_TOPICS:
                errors[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif not self.known(partition):
                errors[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return errors

    def _ask(
        self,
        version: int,
        wanted: _Wanted,
        refused: PartitionErrors,
        reply: Callable[[PartitionErrors], None],
    ) -> None:
        """Add or verify partitions; `reply` gets the error of each."""
        partitions = wanted.partitions
        if refused:
            reply({each: refused.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED) for each in partitions})
        elif wanted.verify_only:
            found = self.transactions.verify_partitions(
                wanted.transactional_id, wanted.producer, frozenset(partitions)
            )
            reply(dict.fromkeys(partitions, found) if isinstance(found, ErrorCode) else found)
        else:
            self.transactions.add_partitions(
                wanted.transactional_id,
                wanted.producer,
                frozenset(partitions),
                lambda error: reply(dict.fromkeys(partitions, _known_to(version, _FENCED_FROM, error))),
            )

    def add_offsets(self, request: Request) -> None:
        """AddOffsetsToTxn: the group's partition of `__consumer_offsets` joins the transaction."""
        asked = entity_of(request)
        partition = TopicPartition(CONSUMER_OFFSETS, self.partition_of_group(asked.group_id))
        self.transactions.add_partitions(
            asked.transactional_id,
            _producer(asked),
            frozenset((partition,)),
            lambda error: _answer_error(request, error),
        )

    # -- the end ---------------------------------------------------------------------------------------------

    def end(self, request: Request) -> None:
        """EndTxn: answered when the decision is written."""
        asked = read_end_txn(request.api_version, request.body)
        self.transactions.end(
            asked.transactional_id,
            _producer(asked),
            asked.committed,
            lambda error: _answer_error(request, error),
        )


class _PendingAnswers:
    """Collects the answers of several transactions; `on_done` gets them when the last has come."""

    def __init__(self, count: int, on_done: Callable[[Sequence[PartitionErrors]], None]) -> None:
        self._answers: list[PartitionErrors] = [{}] * count
        self._missing = count
        self._on_done = on_done
        self._lock = threading.Lock()
        if not count:
            on_done(())

    def taker(self, index: int) -> Callable[[PartitionErrors], None]:
        """Takes the answer of one transaction, from any thread."""

        def take(errors: PartitionErrors) -> None:
            with self._lock:
                self._answers[index] = errors
                self._missing -= 1
                complete = not self._missing
            if complete:
                self._on_done(self._answers)

        return take


def _wanted_by_broker(asked: Entity) -> _Wanted:
    # Each partition once.
    partitions = dict.fromkeys(
        TopicPartition(topic.name, number) for topic in asked.topics for number in topic.partitions
    )
    return _Wanted(asked.transactional_id, _producer(asked), list(partitions), asked.verify_only)


def _producer(asked: Entity | AddPartitions) -> Producer:
    return Producer(asked.producer_id, asked.producer_epoch)


def _init_answer(request: Request, result: InitResult) -> Entity:
    return answer_of(
        request,
        error_code=_known_to(request.api_version, _INIT_FENCED_FROM, result.error),
        producer_id=result.producer.producer_id,
        producer_epoch=result.producer.epoch,
    )


def _answer_init(request: Request, result: InitResult) -> None:
    request.respond([encode_response(_init_answer(request, result))])


def _answer_error(request: Request, error: ErrorCode) -> None:
    known = _known_to(request.api_version, _FENCED_FROM, error)
    request.respond([write_error(request.api_version, known)])


def _answer_client(request: Request, errors: PartitionErrors) -> None:
    request.respond([write_added_partitions(request.api_version, errors)])


def _answer_broker(request: Request, ids: Sequence[str], answers: Sequence[PartitionErrors]) -> None:
    results = [
        {
            "transactional_id": transactional_id,
            "topic_results": by_topic(errors.items(), _result, partitions="results_by_partition"),
        }
        for transactional_id, errors in zip(ids, answers, strict=True)
    ]
    send_answer(request, error_code=ErrorCode.NONE, results_by_transaction=results)


def _result(number: int, error: ErrorCode) -> Struct:
    return {"partition_index": number, "partition_error_code": error}
