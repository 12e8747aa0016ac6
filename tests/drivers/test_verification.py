"""A coordinator is asked one request at a time; each question is answered once."""

from __future__ import annotations

import pytest

from klog.coordinator.transactions.values import Producer, VerifyErrors
from klog.drivers.driver import FOR_A_CALL, Send
from klog.drivers.verification import Question, VerificationDriver, VerificationQueue
from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import ConnectionLostError

A0 = TopicPartition("a", 0)
COORDINATOR, OTHER = 2, 3


class Asked:
    """A driver with its queue, and what the questions were answered, by transactional id."""

    def __init__(self) -> None:
        self.queue = VerificationQueue()
        self.driver = VerificationDriver(self.queue, COORDINATOR)
        self.answers: list[tuple[str, VerifyErrors]] = []

    def ask(self, transactional_id: str, broker_id: int = COORDINATOR) -> None:
        def answered(errors: VerifyErrors) -> None:
            self.answers.append((transactional_id, errors))

        assert not self.queue.put(
            broker_id, Question(transactional_id, Producer(9, 2), frozenset((A0,)), answered)
        )

    def next_ids(self) -> list[str]:
        step = self.driver.next_step(0)
        assert isinstance(step, Send)
        self.request = step.request
        return [question.transactional_id for question in step.request]

    def carry_out(self) -> None:
        for effect in self.driver.take_effects():
            effect()


@pytest.fixture
def asked() -> Asked:
    return Asked()


def test_questions_gather_while_a_request_is_under_way(asked: Asked) -> None:
    assert asked.driver.next_step(0) is FOR_A_CALL
    asked.ask("t1")
    assert asked.next_ids() == ["t1"]
    asked.ask("t2")
    asked.ask("t3")
    asked.ask("t4", OTHER)
    assert asked.driver.next_step(0) is FOR_A_CALL
    asked.driver.answered(asked.request, [{A0: ErrorCode.NONE}], 0)
    assert asked.next_ids() == ["t2", "t3"]


def test_each_question_gets_its_own_answer_as_an_effect(asked: Asked) -> None:
    asked.ask("t1")
    asked.ask("t2")
    asked.next_ids()
    asked.driver.answered(asked.request, [{A0: ErrorCode.NONE}, ErrorCode.PRODUCER_FENCED], 0)
    assert not asked.answers
    asked.carry_out()
    assert asked.answers == [("t1", {A0: ErrorCode.NONE}), ("t2", {A0: ErrorCode.INVALID_PRODUCER_EPOCH})]


def test_what_is_lost_is_a_network_exception_and_the_next_request_goes_out(asked: Asked) -> None:
    asked.ask("t1")
    asked.next_ids()
    asked.driver.failed(asked.request, ConnectionLostError("lost"), 0)
    asked.carry_out()
    assert asked.answers == [("t1", {A0: ErrorCode.NETWORK_EXCEPTION})]
    asked.ask("t1")
    assert asked.next_ids() == ["t1"]
