"""Pauses between attempts and the time limit for failures in a row."""

from __future__ import annotations

import pytest

from klog.client.errors import ClientError, RefusedError, UnknownTopicError, is_retriable
from klog.client.retry import Retry, RetryPolicy
from klog.formats.errors import UsageError
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import ConnectionLostError, UnsupportedApiError

FAILURE = ClientError("it failed")


class FakeTime:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pauses_s: list[float] = []

    def read(self) -> float:
        return self.now_s

    def sleep(self, pause_s: float) -> None:
        self.pauses_s.append(pause_s)
        self.now_s += pause_s


def test_pauses_double_up_to_a_second_and_the_time_limit_raises_the_error():
    time = FakeTime()
    retry = Retry(RetryPolicy(5_000), time.read, time.sleep)

    def fail_for_ever() -> None:
        while True:
            retry.failed(FAILURE)

    with pytest.raises(ClientError):
        fail_for_ever()
    assert time.pauses_s[:4] == [0.05, 0.1, 0.2, 0.4]
    assert max(time.pauses_s) == 1.0
    assert 4 <= time.now_s <= 5


def test_a_success_resets_the_pause_and_the_time_limit():
    time = FakeTime()
    retry = Retry(RetryPolicy(1_000), time.read, time.sleep)
    for _ in range(100):
        retry.failed(FAILURE)
        retry.succeeded()
    assert set(time.pauses_s) == {0.05}


def test_without_a_time_limit_retries_never_end():
    time = FakeTime()
    retry = Retry(RetryPolicy(None, 100, 100), time.read, time.sleep)
    for _ in range(10_000):
        retry.failed(FAILURE)
    assert set(time.pauses_s) == {0.1}
    assert retry.failures == 10_000


@pytest.mark.parametrize(
    ("error", "retriable"),
    [
        (ConnectionLostError("lost"), True),
        (ClientError("t-0 has no leader"), True),
        (RefusedError("t-0", ErrorCode.NOT_LEADER_OR_FOLLOWER), True),
        (RefusedError("t-0", ErrorCode.TOPIC_AUTHORIZATION_FAILED), False),
        (UnknownTopicError("no topic"), True),
        (UnsupportedApiError("too old"), False),
        (UsageError("wrong"), False),
    ],
)
def test_lost_connections_missing_leaders_and_retriable_codes_are_retried(error, retriable):
    assert is_retriable(error) is retriable


def test_failures_that_last_are_told_once_with_the_time_that_is_left():
    time = FakeTime()
    told: list[tuple[Exception, float | None]] = []
    retry = Retry(
        RetryPolicy(10_000), time.read, time.sleep, lambda error, left_s: told.append((error, left_s))
    )
    while time.now_s < 1.9:
        retry.failed(FAILURE)
    assert not told
    while time.now_s < 5:
        retry.failed(FAILURE)
    ((error, left_s),) = told
    assert error is FAILURE
    assert left_s is not None
    assert 7 <= left_s <= 8
    retry.succeeded()
    while time.now_s < 10:
        retry.failed(FAILURE)
    assert len(told) == 2
