"""Asks coordinators whether partitions are in a producer's transaction.

Rules: Kafka's `AddPartitionsToTxnManager` (KIP-890, part 1). While a request is in flight the questions for
its coordinator gather. A request can name a transactional id once, so a newer question for an id takes the
place of the one that waits: its producer has sent a newer request, or it is fenced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from klog.coordinator.transactions.values import Producer, VerifyErrors
from klog.drivers.driver import FOR_A_CALL, Driver, Send, Wait
from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode

# What Kafka's brokers make of a coordinator's answer; the second is an answer for the whole request.
_TRANSLATED: Final = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ErrorCode.INVALID_TXN_STATE,
}

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


Questions: TypeAlias = tuple[Question, ...]
Answers: TypeAlias = Sequence[ErrorCode | VerifyErrors]
"""What a coordinator says to each of several questions."""


@dataclass(slots=True)
class VerificationQueue:
    """The questions that wait. Not safe for threads."""

    _waiting: dict[int, dict[str, Question]] = field(default_factory=dict)

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


class VerificationDriver(Driver[Questions, Answers]):
    """Asks one coordinator: one request at a time. Who adds a question wakes it."""

    def __init__(self, queue: VerificationQueue, broker_id: int) -> None:
        super().__init__()
        self._queue = queue
        self._broker_id = broker_id
        self._under_way: Questions | None = None

    def next_step(self, now_ms: int) -> Send[Questions] | Wait:  # noqa: ARG002
        if self._under_way is not None:
            return FOR_A_CALL
        questions = tuple(self._queue.take(self._broker_id))
        if not questions:
            return FOR_A_CALL
        self._under_way = questions
        return Send(questions)

    def answered(self, request: Questions, answer: Answers, now_ms: int) -> None:  # noqa: ARG002
        self._under_way = None
        for question, each in zip(request, answer, strict=True):
            self._effects.append(partial(question.on_done, errors_of(question.partitions, each)))

    def failed(self, request: Questions, error: Exception, now_ms: int) -> None:  # noqa: ARG002
        self.answered(request, [ErrorCode.NETWORK_EXCEPTION] * len(request), now_ms)


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
