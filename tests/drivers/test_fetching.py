"""Steps of follower fetching: one request at a time, waits with deadlines, and what others are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from klog.drivers.driver import FOR_A_CALL, Send, Wait
from klog.drivers.fetching import FetchDriver, FetchListeners
from klog.protocol.errors import ConnectionLostError
from klog.replication.fetching.fetcher import Fetcher
from klog.replication.fetching.following import start_of
from klog.replication.fetching.values import FetcherRequest, FetchSettings
from tests.replication.fetching.parts import BOTH, BROKER_EPOCH, KEY, Node, content
from tests.server.handlers.parts import BROKER, OTHER_BROKER, batch

BACKOFF_MS = 400


class Copy:
    """Broker 2 copies from broker 1."""

    def __init__(self, root: Path) -> None:
        self.leader, self.follower = Node(root / "a", BROKER), Node(root / "b", OTHER_BROKER)
        self.leader.lead(replicas=BOTH)
        self.follower.lead(leader=BROKER, replicas=BOTH)
        self.told: list[object] = []
        self.wakes = 0
        self.driver = FetchDriver(
            lambda truncated: Fetcher(
                BROKER,
                FetchSettings(OTHER_BROKER, backoff_ms=BACKOFF_MS),
                self.follower.replicas,
                broker_epoch=lambda: BROKER_EPOCH,
                wall_clock_ms=self.follower.clock,
                truncated=truncated,
            ),
            FetchListeners(
                lambda received: self.told.append(("received", received)),
                lambda keys: self.told.append(("moved", list(keys))),
                lambda logs: self.told.append(("truncated", list(logs))),
            ),
        )
        self.driver.wake = self._woken

    def _woken(self) -> None:
        self.wakes += 1

    def add(self) -> None:
        start = start_of(self.follower.partition())
        assert start is not None
        self.driver.add({KEY: start})

    def sent(self, now_ms: int) -> FetcherRequest:
        step = self.driver.next_step(now_ms)
        assert isinstance(step, Send), step
        return step.request

    def answer(self, request: FetcherRequest, now_ms: int) -> None:
        self.driver.answered(request, self.leader.answer(request), now_ms)

    def tell(self) -> list[object]:
        """What others are told now."""
        for effect in self.driver.take_effects():
            effect()
        told, self.told = self.told, []
        return told


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


def test_it_waits_for_a_partition_which_wakes_it(copy: Copy) -> None:
    assert copy.driver.next_step(0) == FOR_A_CALL
    copy.add()
    assert copy.wakes == 1
    copy.sent(0)
    assert copy.driver.next_step(0) == FOR_A_CALL, "one request is under way"


def test_records_are_appended_and_told_once(copy: Copy) -> None:
    copy.leader.append(3)
    copy.add()
    copy.answer(copy.sent(0), 0)
    size_bytes = len(content(copy.leader.log()))
    assert copy.tell() == [("received", {KEY: size_bytes})]
    assert copy.driver.record_bytes == size_bytes
    assert copy.tell() == []
    for now_ms in (1, 2):
        # The leader hears that the follower has them, and then says so.
        copy.answer(copy.sent(now_ms), now_ms)
    assert copy.tell() == [("moved", [KEY])]


def test_after_a_lost_connection_it_names_the_time_of_the_next_request(copy: Copy) -> None:
    copy.add()
    copy.driver.failed(copy.sent(100), ConnectionLostError("lost"), 130)
    assert copy.driver.next_step(130) == Wait(130 + BACKOFF_MS)
    copy.sent(130 + BACKOFF_MS)


def test_an_answer_to_another_request_than_that_under_way_has_no_effect(copy: Copy) -> None:
    copy.add()
    first = copy.sent(0)
    copy.driver.failed(first, ConnectionLostError("lost"), 0)
    second = copy.sent(BACKOFF_MS)
    copy.leader.append(2)
    copy.answer(first, BACKOFF_MS)
    assert copy.follower.log().log_end_offset == 0
    assert copy.driver.next_step(BACKOFF_MS) == FOR_A_CALL
    copy.answer(second, BACKOFF_MS)
    assert copy.follower.log().log_end_offset == 2


def test_nothing_is_appended_to_a_partition_that_was_removed_meanwhile(copy: Copy) -> None:
    copy.add()
    request = copy.sent(0)
    (start,) = copy.driver.remove([KEY]).values()
    assert start.offset == 0
    assert copy.driver.is_idle
    copy.leader.append(2)
    copy.answer(request, 0)
    assert copy.follower.log().log_end_offset == 0
    assert copy.tell() == []


def test_a_truncated_log_is_told_before_anything_else(copy: Copy) -> None:
    copy.follower.lead(leader=OTHER_BROKER, epoch=1, replicas=BOTH, isr=(2,))
    copy.follower.partition().append(memoryview(batch(value=b"lost")), 1, copy.follower.clock())
    copy.leader.lead(epoch=2, replicas=BOTH)
    copy.follower.lead(leader=BROKER, epoch=2, replicas=BOTH)
    copy.leader.append(1)
    copy.add()
    copy.answer(copy.sent(0), 0)
    assert copy.tell() == [("truncated", [copy.follower.log()])]
