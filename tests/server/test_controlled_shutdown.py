"""A broker that stops asks the controller to move its leaderships, as often as the configs say."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

import pytest

from klog.drivers.controller_requests import Build, Reply
from klog.formats.errors import KlogError
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import RequestTimeoutError
from klog.protocol.interbroker.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from klog.server.startup.controlled_shutdown import ShutdownSettings, hand_over


class Channel:
    """Gives these answers; None stands for one that never comes."""

    def __init__(self, answers: Sequence[Entity | KlogError | None]) -> None:
        self._answers = list(answers)
        self.sent: list[Entity] = []

    def send(self, api_key: int, build: Build, reply: Reply, *, timeout_ms: int | None = None) -> None:
        assert api_key == ApiKey.CONTROLLED_SHUTDOWN
        assert timeout_ms is not None
        self.sent.append(build(3))
        answer = self._answers.pop(0)
        if answer is not None:
            reply(answer)


def answer(error: ErrorCode = ErrorCode.NONE, remaining: int = 0) -> Entity:
    return ControlledShutdownResponse(
        error_code=error,
        remaining_partitions=tuple(
            RemainingPartition(topic_name="t", partition_index=each) for each in range(remaining)
        ),
    )


def handed_over(
    channel: Channel,
    *,
    attempts: int = 3,
    is_over: bool = False,
    backoff_ms: int = 0,
    others_leave: int = 0,
) -> bool:
    """`others_leave` is the number of brokers that go after the first request."""
    settings = ShutdownSettings(True, attempts, backoff_ms)
    return hand_over(
        settings,
        channel.send,
        7,
        lambda: 40 + len(channel.sent),
        lambda: frozenset(range(others_leave, 9) if channel.sent else range(9)),
        lambda: is_over,
    )


def test_a_broker_that_leads_nothing_any_more_may_stop() -> None:
    channel = Channel([answer()])
    assert handed_over(channel)
    assert channel.sent == [ControlledShutdownRequest(broker_id=7, broker_epoch=40)]


@pytest.mark.parametrize(
    ("failure", "why"),
    [
        (answer(remaining=12), "no other broker can lead t-0, t-1, .* t-9 and 2 more"),
        (answer(ErrorCode.STALE_BROKER_EPOCH), "the controller answered STALE_BROKER_EPOCH"),
        (RequestTimeoutError("the controller did not answer in time"), "did not answer in time"),
    ],
    ids=["remaining", "refused", "no-answer"],
)
def test_an_attempt_that_fails_is_repeated_with_the_present_epoch(
    failure: Entity | KlogError, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    channel = Channel([failure, failure, answer()])
    with caplog.at_level(logging.INFO):
        assert handed_over(channel)
    assert [each.broker_epoch for each in channel.sent] == [40, 41, 42]
    assert "failed, 1 attempts are left" in caplog.text
    caplog.clear()
    channel = Channel([failure, failure, answer()])
    assert not handed_over(channel, attempts=2)
    assert len(channel.sent) == 2
    assert "the broker stops without handing over all that it leads" in caplog.text
    assert re.search(why, caplog.text)


def test_a_controller_that_has_moved_is_looked_for_within_the_attempt() -> None:
    channel = Channel([answer(ErrorCode.STALE_CONTROLLER_EPOCH), answer()])
    assert handed_over(channel, attempts=1, backoff_ms=600_000)
    assert len(channel.sent) == 2


@pytest.mark.parametrize("first", [None, answer(remaining=1)], ids=["no-answer", "backing-off"])
def test_an_urgent_stop_waits_neither_for_an_answer_nor_between_attempts(first: Entity | None) -> None:
    channel = Channel([first])
    assert not handed_over(channel, is_over=True, backoff_ms=600_000)
    assert len(channel.sent) == 1


def test_the_controller_is_asked_again_when_other_brokers_go() -> None:
    """Brokers that stop together would wait for each other. This takes none of the attempts."""
    channel = Channel([answer(remaining=1), answer()])
    assert handed_over(channel, attempts=2, backoff_ms=600_000, others_leave=1)
    assert len(channel.sent) == 2
