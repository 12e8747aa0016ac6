"""Questions to coordinators whether partitions are in a transaction. Pure: no threads, no clock.

Rules: Kafka's `AddPartitionsToTxnManager` (KIP-890, part 1). While a request is in flight the questions for
its coordinator gather. A request can name a transactional id once, so a newer question for an id takes the
place of the one that waits: its producer has sent a newer request, or it is fenced.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from klog.coordinator.transactions.values import Producer, VerifyErrors
from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode

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
