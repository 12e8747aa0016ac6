"""Asks coordinators whether partitions are in a producer's transaction, with AddPartitionsToTxn (verifyOnly).

Rules: Kafka's `AddPartitionsToTxnManager`; KIP-890, part 1. `klog.drivers.verification` decides what is
asked. If this broker coordinates the transactional id it is asked directly: a request over the wire would
come to the same function with the same values, and nothing else could refuse a broker. That saves each
transaction a round trip.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from klog.client.connection import ReconnectingConnection
from klog.client.requests import by_partition, by_topic
from klog.coordinator.transactions.values import Producer, VerifyErrors
from klog.drivers.marker_queues import UNKNOWN
from klog.drivers.verification import (
    Answers,
    OnVerified,
    Question,
    Questions,
    VerificationDriver,
    VerificationQueue,
    errors_of,
)
from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode, error_code
from klog.protocol.errors import UnsupportedApiError
from klog.protocol.messages import build, request_class
from klog.server.threads.driver_thread import DriverRun, asking
from klog.server.transactions.broker_threads import BrokerThreads, Connect
from klog.storage.log.scheduler import monotonic_ms

_log = logging.getLogger(__name__)

_BATCHED_FROM: Final = 4

Verify = Callable[[str, Producer, Collection[TopicPartition]], ErrorCode | VerifyErrors]
"""`TransactionRequests.verify_partitions` of this broker's coordinator."""


@dataclass(slots=True, eq=False)
class AskingCoordinators:
    """The `PartitionVerifier` of a broker. Safe for threads.

    `coordinator_of` gives the broker that coordinates a transactional id, or UNKNOWN. `wake` lets the driver
    for a broker take what waits in `queue`, which `lock` guards.
    """

    broker_id: int
    coordinator_of: Callable[[str], int]
    verify_here: Verify
    wake: Callable[[int], object]
    queue: VerificationQueue = field(default_factory=VerificationQueue, init=False)
    lock: threading.Lock = field(default_factory=threading.Lock, init=False)

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
        coordinator = self.coordinator_of(transactional_id)
        if coordinator == self.broker_id:
            on_done(errors_of(partitions, self.verify_here(transactional_id, producer, partitions)))
            return
        question = Question(transactional_id, producer, frozenset(partitions), on_done)
        if coordinator == UNKNOWN:
            question.answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        with self.lock:
            displaced = self.queue.put(coordinator, question)
        if displaced is not None:
            displaced[0].answer(displaced[1])
        self.wake(coordinator)

    def is_verified_here(self, transactional_id: str, producer: Producer, partition: TopicPartition) -> bool:
        """Whether this broker coordinates the id, and the producer's transaction has the partition.

        If not, `verify` finds out why, or asks the broker that coordinates it.
        """
        if self.coordinator_of(transactional_id) != self.broker_id:
            return False
        answer = self.verify_here(transactional_id, producer, (partition,))
        return not isinstance(answer, ErrorCode) and answer.get(partition) is ErrorCode.NONE


class Verifying(AskingCoordinators):
    """Asks with a thread and a connection for each coordinator."""

    def __init__(
        self, broker_id: int, coordinator_of: Callable[[str], int], verify_here: Verify, connect: Connect
    ) -> None:
        self._threads = BrokerThreads("klog-txn-verification", connect, self._asker_of)
        super().__init__(broker_id, coordinator_of, verify_here, self._threads.wake)

    def stop(self) -> None:
        """End the threads; what waits is answered NETWORK_EXCEPTION or not at all."""
        self._threads.stop()

    def _asker_of(self, broker_id: int, connection: ReconnectingConnection) -> Callable[[], float | None]:
        return DriverRun(
            VerificationDriver(self.queue, broker_id),
            asking(partial(_ask, connection)),
            monotonic_ms,
            partial(self._threads.wake, broker_id),
            self.lock,
        ).run


def _ask(connection: ReconnectingConnection, questions: Questions) -> Answers:
    try:
        version = connection.version_of(ApiKey.ADD_PARTITIONS_TO_TXN)
        if version < _BATCHED_FROM:
            return [ErrorCode.NONE] * len(questions)
        return answers_in(connection.send(request_of(version, questions)), questions)
    except UnsupportedApiError:
        # A coordinator before Kafka 3.5 cannot be asked. Its transactions are taken for verified.
        return [ErrorCode.NONE] * len(questions)
    except KlogError as lost:
        _log.info("a verification of transactions is not answered: %s", lost)
        raise


def answers_in(answer: Entity, questions: Questions) -> Answers:
    """What the answer to a request with these questions says to each of them."""
    refused = error_code(answer.error_code)
    if refused is not ErrorCode.NONE:
        return [refused] * len(questions)
    by_id = {result.transactional_id: _errors(result) for result in answer.results_by_transaction}
    return [by_id.get(question.transactional_id, {}) for question in questions]


def _errors(result: Entity) -> VerifyErrors:
    return {
        partition: error_code(each.partition_error_code)
        for partition, each in by_partition(result.topic_results, parts="results_by_partition")
    }


def request_of(version: int, questions: Iterable[Question]) -> Entity:
    """AddPartitionsToTxn with several questions."""
    return build(
        request_class(ApiKey.ADD_PARTITIONS_TO_TXN, version),
        transactions=[
            {
                "transactional_id": question.transactional_id,
                "producer_id": question.producer.producer_id,
                "producer_epoch": question.producer.epoch,
                "verify_only": True,
                "topics": by_topic(sorted(question.partitions)),
            }
            for question in questions
        ],
    )
