"""Proposals to change an ISR reach the controller one request at a time, and its answers are applied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.drivers.driver import FOR_A_CALL, Send, Wait
from klog.drivers.isr_changes import RETRY_MS, IsrCounts, IsrDriver
from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import ConnectionLostError
from klog.replication.alter_partition import IsrAccepted, IsrProposal
from klog.replication.isr import IsrState
from klog.replication.isr_changes import IsrAnswers, IsrRequest, check_isr
from klog.replication.partition import Partition
from tests.server.handlers.parts import BROKER, MAX_LAG_MS, OTHER_BROKER, TOPIC, Broker

BOTH = (BROKER, OTHER_BROKER)
FIRST = TopicPartition(TOPIC, 0)
SECOND = TopicPartition(TOPIC, 1)


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)


@pytest.fixture
def changes(broker: Broker) -> IsrDriver:
    return broker.isr_changes


def out_of_sync(broker: Broker, partition: int = 0, *, records: int = 2) -> Partition:
    """A partition of two replicas that this broker leads alone."""
    led = broker.lead(partition=partition, replicas=BOTH, isr=(BROKER,))
    broker.append(records, partition=partition)
    return led


def accepted(request: IsrRequest) -> dict[TopicPartition, IsrAccepted | ErrorCode]:
    """The answer of a controller that writes every proposal."""
    return {
        key: IsrAccepted(sent.leader_epoch, sent.partition_epoch + 1, sent.isr)
        for key, sent in request.proposals.items()
    }


def taken(changes: IsrDriver, broker: Broker) -> IsrRequest:
    step = changes.next_step(broker.clock())
    assert isinstance(step, Send), step
    return step.request


def failed(changes: IsrDriver, broker: Broker, request: IsrRequest) -> None:
    changes.failed(request, ConnectionLostError("lost"), broker.clock())


# -- what is proposed ------------------------------------------------------------------------------------


def test_a_follower_that_has_caught_up_is_proposed_and_joins_with_the_answer(
    broker: Broker, changes: IsrDriver
) -> None:
    led = out_of_sync(broker)
    broker.follow(2)
    request = taken(changes, broker)
    assert request.proposals == {FIRST: IsrProposal(0, 0, BOTH)}
    assert led.state.isr == IsrState((BROKER,), BOTH)
    changes.answered(request, accepted(request), broker.clock())
    assert changes.counts == IsrCounts(expands=1)
    assert (led.state.isr, led.state.partition_epoch) == (IsrState(BOTH), 1)


def test_a_follower_behind_the_high_watermark_is_not_proposed(broker: Broker, changes: IsrDriver) -> None:
    out_of_sync(broker)
    broker.follow(1)
    assert changes.next_step(broker.clock()) == FOR_A_CALL


def test_a_follower_is_not_proposed_before_it_has_all_that_was_there_when_the_epoch_began(
    broker: Broker, changes: IsrDriver
) -> None:
    led = broker.lead(replicas=(*BOTH, 3), isr=(BROKER, 3))
    broker.append(2)
    broker.lead(epoch=1, replicas=(*BOTH, 3), isr=(BROKER, 3))
    assert led.log.high_watermark == 0
    broker.follow(1)
    assert changes.next_step(broker.clock()) == FOR_A_CALL
    broker.follow(2)
    assert taken(changes, broker).proposals[FIRST].isr == (BROKER, 3, OTHER_BROKER)


def test_a_follower_whose_broker_is_not_registered_is_not_proposed(
    broker: Broker, changes: IsrDriver
) -> None:
    broker.lead(replicas=BOTH, isr=(BROKER,), tell=False)
    broker.follow(0)
    assert changes.next_step(broker.clock()) == FOR_A_CALL


def test_the_high_watermark_waits_for_a_follower_from_the_moment_it_is_proposed(
    broker: Broker, changes: IsrDriver
) -> None:
    led = out_of_sync(broker)
    broker.follow(2)
    broker.append(1)
    assert led.log.high_watermark == 2
    request = taken(changes, broker)
    changes.answered(request, accepted(request), broker.clock())
    assert led.log.high_watermark == 2
    broker.follow(3)
    assert led.log.high_watermark == 3


def test_a_follower_that_stops_fetching_is_removed_after_the_lag_time(
    broker: Broker, changes: IsrDriver
) -> None:
    led = broker.lead(replicas=BOTH)
    broker.append(2)
    broker.pass_time(MAX_LAG_MS)
    check_isr(broker.replicas, broker.clock())
    assert changes.next_step(broker.clock()) == FOR_A_CALL
    broker.pass_time(1)
    check_isr(broker.replicas, broker.clock())
    assert led.log.high_watermark == 0, "nobody has left before the controller agrees"
    request = taken(changes, broker)
    assert request.proposals == {FIRST: IsrProposal(0, 0, (BROKER,))}
    changes.answered(request, accepted(request), broker.clock())
    assert changes.counts == IsrCounts(shrinks=1)
    assert led.log.high_watermark == 2


def test_a_follower_at_the_log_end_is_never_removed(broker: Broker, changes: IsrDriver) -> None:
    broker.lead(replicas=BOTH)
    broker.append(2)
    broker.follow(2)
    broker.pass_time(10 * MAX_LAG_MS)
    check_isr(broker.replicas, broker.clock())
    assert changes.next_step(broker.clock()) == FOR_A_CALL


def test_a_log_whose_directory_has_failed_proposes_nothing(broker: Broker, changes: IsrDriver) -> None:
    led = broker.lead(replicas=BOTH)
    broker.append(2)
    broker.pass_time(2 * MAX_LAG_MS)
    led.log.close()
    check_isr(broker.replicas, broker.clock())
    assert changes.next_step(broker.clock()) == FOR_A_CALL


def test_a_follower_proposes_nothing(broker: Broker, changes: IsrDriver) -> None:
    broker.lead(leader=OTHER_BROKER, replicas=BOTH)
    broker.pass_time(2 * MAX_LAG_MS)
    check_isr(broker.replicas, broker.clock())
    assert changes.next_step(broker.clock()) == FOR_A_CALL


# -- how it is sent --------------------------------------------------------------------------------------


def test_all_that_has_gathered_goes_in_one_request_and_the_rest_waits_for_its_answer(
    broker: Broker, changes: IsrDriver
) -> None:
    out_of_sync(broker, 0)
    out_of_sync(broker, 1)
    out_of_sync(broker, 2)
    broker.follow(2, partition=0)
    broker.follow(2, partition=1)
    first = taken(changes, broker)
    assert first.proposals.keys() == {FIRST, SECOND}
    broker.follow(2, partition=2)
    assert changes.next_step(broker.clock()) == FOR_A_CALL
    changes.answered(first, accepted(first), broker.clock())
    assert taken(changes, broker).proposals.keys() == {TopicPartition(TOPIC, 2)}


def test_a_request_that_failed_is_sent_again_after_a_pause_for_ever(
    broker: Broker, changes: IsrDriver
) -> None:
    out_of_sync(broker)
    broker.follow(2)
    for _ in range(100):
        request = taken(changes, broker)
        assert request.proposals == {FIRST: IsrProposal(0, 0, BOTH)}
        failed(changes, broker, request)
        assert changes.next_step(broker.clock()) == Wait(broker.clock() + RETRY_MS)
        broker.pass_time(RETRY_MS)
    assert isinstance(changes.next_step(broker.clock()), Send)


def test_a_partition_that_the_answer_leaves_out_is_sent_again(broker: Broker, changes: IsrDriver) -> None:
    out_of_sync(broker)
    broker.follow(2)
    request = taken(changes, broker)
    changes.answered(request, {}, broker.clock())
    assert changes.counts.failures == 0
    assert taken(changes, broker).proposals == request.proposals


def test_an_answer_to_another_request_than_the_one_in_flight_changes_nothing(
    broker: Broker, changes: IsrDriver
) -> None:
    led = out_of_sync(broker)
    broker.follow(2)
    first = taken(changes, broker)
    failed(changes, broker, first)
    changes.answered(first, accepted(first), broker.clock())
    assert changes.counts == IsrCounts()
    failed(changes, broker, first)
    assert led.state.isr.pending == BOTH
    broker.pass_time(RETRY_MS)
    assert taken(changes, broker).proposals == first.proposals


@pytest.mark.parametrize(
    ("error", "pending", "sent_again"),
    [
        (ErrorCode.INELIGIBLE_REPLICA, None, False),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, None, False),
        (ErrorCode.INVALID_UPDATE_VERSION, BOTH, False),
        (ErrorCode.FENCED_LEADER_EPOCH, BOTH, False),
        (ErrorCode.UNKNOWN_SERVER_ERROR, BOTH, True),
    ],
)
def test_an_error_drops_the_proposal_or_keeps_it_or_sends_it_again(
    broker: Broker, changes: IsrDriver, error: ErrorCode, pending, sent_again
) -> None:
    led = out_of_sync(broker)
    broker.follow(2)
    request = taken(changes, broker)
    changes.answered(request, {FIRST: error}, broker.clock())
    assert changes.counts.failures == 1
    assert led.state.isr == IsrState((BROKER,), pending)
    assert isinstance(changes.next_step(broker.clock()), Send) == sent_again


def test_a_dropped_proposal_is_made_again_at_the_next_fetch(broker: Broker, changes: IsrDriver) -> None:
    out_of_sync(broker)
    broker.follow(2)
    changes.answered(taken(changes, broker), {FIRST: ErrorCode.INELIGIBLE_REPLICA}, broker.clock())
    broker.follow(2)
    assert taken(changes, broker).proposals[FIRST].isr == BOTH


def test_a_proposal_of_a_newer_epoch_is_sent_when_the_older_one_is_answered(
    broker: Broker, changes: IsrDriver
) -> None:
    led = out_of_sync(broker)
    broker.follow(2)
    old = taken(changes, broker)
    broker.lead(epoch=1, replicas=BOTH, isr=(BROKER,))
    assert led.state.isr.pending is None
    broker.follow(2)
    changes.answered(old, accepted(old), broker.clock())
    assert changes.counts == IsrCounts()
    assert led.state.isr == IsrState((BROKER,), BOTH)
    assert taken(changes, broker).proposals == {FIRST: IsrProposal(1, 0, BOTH)}


def test_a_proposal_of_a_partition_that_is_not_led_any_more_is_not_sent(
    broker: Broker, changes: IsrDriver
) -> None:
    out_of_sync(broker)
    broker.follow(2)
    broker.lead(leader=OTHER_BROKER, epoch=1, replicas=BOTH)
    assert changes.next_step(broker.clock()) == FOR_A_CALL


# -- with a controller -----------------------------------------------------------------------------------


class Controller:
    """Keeps one ISR as the tree does: a write names the partition epoch that it replaces."""

    def __init__(self, isr: tuple[int, ...]) -> None:
        self.isr = isr
        self.partition_epoch = 0

    def alter(self, proposals: Mapping[TopicPartition, IsrProposal]) -> IsrAnswers:
        sent = proposals[FIRST]
        if sent.isr != self.isr:
            if sent.partition_epoch != self.partition_epoch:
                return {FIRST: ErrorCode.INVALID_UPDATE_VERSION}
            self.isr, self.partition_epoch = sent.isr, self.partition_epoch + 1
        return {FIRST: IsrAccepted(0, self.partition_epoch, self.isr)}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 3)),
        st.tuples(st.just("follow"), st.tuples(st.sampled_from((2, 3)), st.integers(0, 12))),
        st.tuples(st.just("pass"), st.sampled_from((1, RETRY_MS, MAX_LAG_MS // 2, MAX_LAG_MS + 1))),
        st.tuples(st.just("exchange"), st.sampled_from(("answered", "lost", "answer lost"))),
    ),
    max_size=40,
)


@given(STEPS)
def test_the_high_watermark_is_never_above_what_a_member_of_the_controller_s_isr_has(
    tmp_path_factory: pytest.TempPathFactory, steps
) -> None:
    replicas = (BROKER, 2, 3)
    broker = Broker(tmp_path_factory.mktemp("isr"))
    changes, controller = broker.isr_changes, Controller(replicas)
    led = broker.lead(replicas=replicas)
    broker.tell(replicas=replicas, brokers=replicas)
    reached = {2: 0, 3: 0}
    for step, value in steps:
        if step == "append":
            broker.append(value)
        elif step == "follow":
            replica, ahead = value
            reached[replica] = max(reached[replica], min(ahead, led.log.log_end_offset))
            broker.follow(reached[replica], replica_id=replica)
        elif step == "pass":
            broker.pass_time(value)
            check_isr(broker.replicas, broker.clock())
        else:
            sent = changes.next_step(broker.clock())
            if isinstance(sent, Wait):
                continue
            request = sent.request
            answers = {} if value == "lost" else controller.alter(request.proposals)
            if value == "answered":
                changes.answered(request, answers, broker.clock())
            else:
                failed(changes, broker, request)
        for member in set(controller.isr) - {BROKER}:
            assert led.log.high_watermark <= reached[member], (step, value)
    for log in broker.logs.logs.values():
        log.release()


def test_after_a_lost_answer_the_same_proposal_finds_its_own_change(
    broker: Broker, changes: IsrDriver
) -> None:
    led = out_of_sync(broker)
    controller = Controller((BROKER,))
    broker.follow(2)
    request = taken(changes, broker)
    controller.alter(request.proposals)
    failed(changes, broker, request)
    broker.pass_time(RETRY_MS)
    again = taken(changes, broker)
    changes.answered(again, controller.alter(again.proposals), broker.clock())
    assert led.state == replace(led.state, isr=IsrState(BOTH), partition_epoch=1)
