"""Steps of ISR changes: one request at a time, sent again after a failure, and told when in force."""

from __future__ import annotations

from pathlib import Path

import pytest

from klog.drivers.driver import FOR_A_CALL, Send, Wait
from klog.drivers.isr_changes import RETRY_MS, IsrDriver
from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import ConnectionLostError
from klog.replication.alter_partition import IsrAccepted, IsrProposal
from klog.replication.isr_changes import IsrRequest
from tests.server.handlers.parts import BROKER, OTHER_BROKER, TOPIC, Broker

BOTH = (BROKER, OTHER_BROKER)
KEY = TopicPartition(TOPIC, 0)


class Leader:
    """A broker that leads a partition whose follower may join the ISR."""

    def __init__(self, path: Path) -> None:
        self.broker = Broker(path)
        self.driver = IsrDriver(self.broker.replicas)
        self.wakes = 0
        self.driver.wake = self._woken
        self.broker.isr_proposed = self.driver.propose
        self.partition = self.broker.lead(replicas=BOTH, isr=(BROKER,))

    def _woken(self) -> None:
        self.wakes += 1

    def catch_up(self) -> None:
        self.broker.append(2)
        self.broker.follow(2)

    def sent(self, now_ms: int = 0) -> IsrRequest:
        step = self.driver.next_step(now_ms)
        assert isinstance(step, Send), step
        return step.request


@pytest.fixture
def leader(tmp_path: Path) -> Leader:
    return Leader(tmp_path)


def test_a_proposal_wakes_the_driver_and_is_in_force_when_it_is_answered(leader: Leader) -> None:
    assert leader.driver.next_step(0) == FOR_A_CALL
    leader.catch_up()
    assert leader.wakes == 1
    request = leader.sent()
    assert request.proposals == {KEY: IsrProposal(0, 0, BOTH)}
    assert leader.driver.next_step(0) == FOR_A_CALL, "one request is under way"
    leader.driver.answered(request, {KEY: IsrAccepted(0, 1, BOTH)}, 5)
    assert leader.partition.state.isr.committed == BOTH
    assert leader.driver.counts.expands == 1
    assert len(leader.driver.take_effects()) == 1
    assert leader.driver.take_effects() == []


def test_a_request_that_failed_is_sent_again_at_the_time_that_is_named(leader: Leader) -> None:
    leader.catch_up()
    leader.driver.failed(leader.sent(), ConnectionLostError("lost"), 100)
    assert leader.driver.next_step(100) == Wait(100 + RETRY_MS)
    assert leader.sent(100 + RETRY_MS).proposals == {KEY: IsrProposal(0, 0, BOTH)}


def test_an_answer_to_a_request_that_has_failed_has_no_effect(leader: Leader) -> None:
    leader.catch_up()
    first = leader.sent()
    leader.driver.failed(first, ConnectionLostError("lost"), 0)
    leader.driver.answered(first, {KEY: IsrAccepted(0, 1, BOTH)}, 5)
    assert leader.partition.state.isr.committed == (BROKER,)
    assert leader.driver.take_effects() == []


def test_a_refused_proposal_counts_as_a_failure(leader: Leader) -> None:
    leader.catch_up()
    leader.driver.answered(leader.sent(), {KEY: ErrorCode.INELIGIBLE_REPLICA}, 0)
    assert leader.driver.counts.failures == 1
    assert leader.partition.state.isr.pending is None
