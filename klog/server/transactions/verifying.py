"""Asks coordinators whether partitions are in a producer's transaction, with AddPartitionsToTxn (verifyOnly).

Rules: Kafka's `AddPartitionsToTxnManager`; KIP-890, part 1. There is one request at a time to each
coordinator. If this broker coordinates the transactional id it is asked directly: a request over the wire
would come to the same function with the same values, and nothing else could refuse a broker. That saves each
transaction a round trip.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from klog.client.connection import ReconnectingConnection
from klog.coordinator.transactions.values import Producer, VerifyErrors
from klog.drivers.marker_queues import UNKNOWN
from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import UnsupportedApiError
from klog.protocol.messages import build, request_class
from klog.server.peers.broker_messages import by_topic, known_error
from klog.server.transactions.broker_threads import BrokerThreads, Connect

_log = logging.getLogger(__name__)

_BATCHED_FROM: Final = 4

Verify = Callable[[str, Producer, Collection[TopicPartition]], ErrorCode | VerifyErrors]
"""`TransactionRequests.verify_partitions` of this broker's coordinator."""

# What Kafka's brokers make of a coordinator's answer; the second is an answer for the whole request.
_TRANSLATED: Final = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ErrorCode.INVALID_TXN_STATE,
}


class Verifying:
    """The `PartitionVerifier` of a broker. Safe for threads.

    `coordinator_of` gives the broker that coordinates a transactional id, or UNKNOWN.
    """

    def __init__(
        self, broker_id: int, coordinator_of: Callable[[str], int], verify_here: Verify, connect: Connect
    ) -> None:
        self._broker_id = broker_id
        self._coordinator_of = coordinator_of
        self._verify_here = verify_here
        self._queue = VerificationQueue()
        self._lock = threading.Lock()
        self._threads = BrokerThreads("klog-txn-verification", connect, self._ask)

    def verify(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        on_done: OnVerified,
    ) -> None:
        """Ask. `on_done` gets Kafka's error of each partition, once, from this thread or another one:

        - TRANSACTION_ABORTABLE: the partition is not in the transaction;
        - INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING: the producer is not that of the id any more;
        - CONCURRENT_TRANSACTIONS, NETWORK_EXCEPTION, COORDINATOR_LOAD_IN_PROGRESS,
          COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: it may be asked again.
        """
        coordinator = self._coordinator_of(transactional_id)
        if coordinator == self._broker_id:
            on_done(errors_of(partitions, self._verify_here(transactional_id, producer, partitions)))
            return
        question = Question(transactional_id, producer, frozenset(partitions), on_done)
        if coordinator == UNKNOWN:
            question.answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        with self._lock:
            displaced = self._queue.put(coordinator, question)
        if displaced is not None:
            displaced[0].answer(displaced[1])
        self._threads.wake(coordinator)

    def is_verified_here(self, transactional_id: str, producer: Producer, partition: TopicPartition) -> bool:
        """Whether this broker coordinates the id, and the producer's transaction has the partition.

        If not, `verify` finds out why, or asks the broker that coordinates it.
        """
        if self._coordinator_of(transactional_id) != self._broker_id:
            return False
        answer = self._verify_here(transactional_id, producer, (partition,))
        return not isinstance(answer, ErrorCode) and answer.get(partition) is ErrorCode.NONE

    def stop(self) -> None:
        """End the threads; what waits is answered NETWORK_EXCEPTION or not at all."""
        self._threads.stop()

    def _ask(self, broker_id: int, connection: ReconnectingConnection) -> None:
        while True:
            with self._lock:
                questions = self._queue.take(broker_id)
            if not questions:
                return
            for question, answer in zip(questions, _answers(connection, questions), strict=True):
                try:
                    question.on_done(errors_of(question.partitions, answer))
                except Exception:
                    # The others must be answered, too.
                    _log.exception("the answer to %r failed", question)


def errors_of(partitions: Collection[TopicPartition], answer: ErrorCode | VerifyErrors) -> VerifyErrors:
    """The error of each partition, as Kafka's brokers understand a coordinator's answer."""
    if isinstance(answer, ErrorCode):
        return dict.fromkeys(partitions, _TRANSLATED.get(answer, answer))
    errors: dict[TopicPartition, ErrorCode] = {}
    for each in partitions:
        # A coordinator that leaves out a partition does not know it.
        error = answer.get(each, ErrorCode.TRANSACTION_ABORTABLE)
        errors[each] = _TRANSLATED.get(error, error)
    return errors


def _answers(
    connection: ReconnectingConnection, questions: Sequence[Question]
) -> Sequence[ErrorCode | VerifyErrors]:
    try:
        version = connection.version_of(ApiKey.ADD_PARTITIONS_TO_TXN)
        if version < _BATCHED_FROM:
            return [ErrorCode.NONE] * len(questions)
        answer = connection.send(_request(version, questions))
    except UnsupportedApiError:
        # A coordinator before Kafka 3.5 cannot be asked. Its transactions are taken for verified.
        return [ErrorCode.NONE] * len(questions)
    except KlogError as lost:
        _log.info("a verification of transactions is not answered: %s", lost)
        return [ErrorCode.NETWORK_EXCEPTION] * len(questions)
    except Exception:
        # Who waits must have an answer.
        _log.exception("a verification of transactions failed")
        return [ErrorCode.NETWORK_EXCEPTION] * len(questions)
    refused = known_error(answer.error_code)
    if refused is not ErrorCode.NONE:
        return [refused] * len(questions)
    by_id = {result.transactional_id: _errors(result) for result in answer.results_by_transaction}
    return [by_id.get(question.transactional_id, {}) for question in questions]


def _errors(result: Entity) -> VerifyErrors:
    return {
        TopicPartition(topic.name, each.partition_index): known_error(each.partition_error_code)
        for topic in result.topic_results
        for each in topic.results_by_partition
    }


def _request(version: int, questions: Iterable[Question]) -> Entity:
    return build(
        request_class(ApiKey.ADD_PARTITIONS_TO_TXN, version),
        transactions=[
            {
                "transactional_id": question.transactional_id,
                "producer_id": question.producer.producer_id,
                "producer_epoch": question.producer.epoch,
                "verify_only": True,
                "topics": [
                    {"name": name, "partitions": numbers} for name, numbers in by_topic(question.partitions)
                ],
            }
            for question in questions
        ],
    )


# -- Questions to coordinators whether partitions are in a transaction. Pure: no threads, no clock -----------
# Rules: Kafka's `AddPartitionsToTxnManager` (KIP-890, part 1). While a request is in flight the questions for
# its coordinator gather. A request can name a transactional id once, so a newer question for an id takes the
# place of the one that waits: its producer has sent a newer request, or it is fenced.

OnVerified = Callable[[VerifyErrors], None]


class Question(NamedTuple):
    """Whether partitions are in the open transaction of a producer, and whom to tell."""

    transactional_id: str
    producer: Producer
    partitions: frozenset[TopicPartition]
    on_done: OnVerified

    def answer(self, error: ErrorCode) -> None:
        """Answer all partitions with the same error."""
        self.on_done(dict.fromkeys(self.partitions, error))


@dataclass(slots=True)
class VerificationQueue:
    """The questions that wait. Not safe for threads."""

    _waiting: dict[int, dict[str, Question]] = field(default_factory=dict)

    @property
    def waiting(self) -> int:
        """How many questions wait for their turn."""
        return sum(len(questions) for questions in self._waiting.values())

    def put(self, broker_id: int, question: Question) -> tuple[Question, ErrorCode] | None:
        """Queue a question; returns one to be answered with an error at once, this or an older one."""
        waiting = self._waiting.setdefault(broker_id, {})
        older = waiting.get(question.transactional_id)
        if older is None:
            waiting[question.transactional_id] = question
            return None
        if question.producer.epoch < older.producer.epoch:
            return question, ErrorCode.INVALID_PRODUCER_EPOCH
        waiting[question.transactional_id] = question
        if question.producer.epoch > older.producer.epoch:
            return older, ErrorCode.INVALID_PRODUCER_EPOCH
        # The producer has given up waiting for the older request; it sends again what this error answers.
        return older, ErrorCode.NETWORK_EXCEPTION

    def take(self, broker_id: int) -> list[Question]:
        """The questions to send in one request."""
        return list(self._waiting.pop(broker_id, {}).values())
