"""How long failures are borne."""

from __future__ import annotations

import pytest

from klog.client.errors import ClientError
from klog.client.patience import Patience

FAILURE = ClientError("it failed")


class Clock:
    """A clock that sleeping moves."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pauses_s: list[float] = []

    def read(self) -> float:
        return self.now_s

    def sleep(self, pause_s: float) -> None:
        self.pauses_s.append(pause_s)
        self.now_s += pause_s


def test_pauses_grow_up_to_a_second_and_failures_end_in_the_error():
    clock = Clock()
    patience = Patience(5_000, clock.read, clock.sleep)

    def fail_for_ever() -> None:
        while True:
            patience.failed(FAILURE)

    with pytest.raises(ClientError):
        fail_for_ever()
    assert clock.pauses_s[:4] == [0.05, 0.1, 0.2, 0.4]
    assert max(clock.pauses_s) == 1.0
    assert 4 <= clock.now_s <= 5


def test_a_success_starts_the_time_anew():
    clock = Clock()
    patience = Patience(1_000, clock.read, clock.sleep)
    for _ in range(100):
        patience.failed(FAILURE)
        patience.succeeded()
    assert set(clock.pauses_s) == {0.05}
