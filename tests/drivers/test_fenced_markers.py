"""Markers that are refused as those of an older coordinator, although this one is the newest."""

from __future__ import annotations

import logging

import pytest

from klog.drivers.driver import FOR_A_CALL, Driver, Send, Wait
from klog.drivers.fenced_markers import EpochsRequest, FencedMarkers, KnownEpochs
from klog.drivers.markers import MarkerRequest, MarkerRoutes, MarkersHere, MarkersToBroker
from klog.formats.constants import INT32_MAX
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import ConnectionLostError
from tests.server.transactions.markers import A0, B0, Written, markers

OWN, OTHER = 0, 1
EPOCH, PRODUCER = 5, 9  # of `markers`
FIRST_PAUSE_MS = 50


class Coordinator:
    """The drivers of broker 0; another one leads the partitions."""

    def __init__(self) -> None:
        self.routes = MarkerRoutes(OWN, lambda _: OTHER, lambda _: None)
        self.other = MarkersToBroker(self.routes, OTHER)
        self.here = MarkersHere(self.routes)
        self.fenced = FencedMarkers(self.routes)
        self.woken = 0
        self.fenced.wake = self._woken

    def _woken(self) -> None:
        self.woken += 1

    def add(self, *partitions, **how) -> Written:
        written = Written()
        self.routes.add(markers(*partitions, **how), written)
        return written

    def send(self, now_ms: int, error: ErrorCode = ErrorCode.NONE) -> MarkerRequest:
        """Send what waits for the other broker, which answers with this error."""
        self.here.next_step(now_ms)  # ends pauses
        request = asked(self.other, now_ms)
        answer = {each.producer_id: dict.fromkeys(each.partitions, error) for each in request.markers}
        self.other.answered(request, answer, now_ms)
        for effect in self.other.take_effects():
            effect()
        return request


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def asked(driver: Driver, now_ms: int = 0):
    step = driver.next_step(now_ms)
    assert isinstance(step, Send), step
    return step.request


def fenced(coordinator: Coordinator) -> EpochsRequest:
    coordinator.send(0, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    return asked(coordinator.fenced)


def test_a_marker_is_sent_in_a_higher_epoch_than_the_partition_knows(
    coordinator: Coordinator, caplog
) -> None:
    written = coordinator.add(A0)
    request = fenced(coordinator)
    assert coordinator.woken == 1
    assert (request.producers, request.coordinator_partitions) == ({A0: {PRODUCER}}, [0])
    with caplog.at_level(logging.WARNING):
        coordinator.fenced.answered(request, KnownEpochs({(A0, PRODUCER): 40}, {0: EPOCH}), 0)
    assert "set back" in caplog.text
    (marker,) = coordinator.send(FIRST_PAUSE_MS).markers
    assert (marker.coordinator_epoch, marker.committed) == (40 + EPOCH + 1, True)
    assert written.partitions == {A0}


def test_the_marker_of_a_coordinator_that_was_elected_later_is_always_newer() -> None:
    """Both were told the same epoch of the partition. The older one cannot write after the newer one."""
    sent = []
    for epoch in (0, 1):
        coordinator = Coordinator()
        wanted = markers(A0)
        wanted = wanted._replace(marker=wanted.marker._replace(coordinator_epoch=epoch))
        coordinator.routes.add(wanted, Written())
        request = fenced(coordinator)
        coordinator.fenced.answered(request, KnownEpochs({(A0, PRODUCER): 40}, {0: epoch}), 0)
        sent += coordinator.send(FIRST_PAUSE_MS).markers
    first, second = sent
    assert 40 < first.coordinator_epoch < second.coordinator_epoch


def test_later_transactions_of_the_producer_keep_the_epoch_for_that_partition_only(
    coordinator: Coordinator,
) -> None:
    coordinator.add(A0)
    request = fenced(coordinator)
    coordinator.fenced.answered(request, KnownEpochs({(A0, PRODUCER): 40}, {0: EPOCH}), 0)
    coordinator.send(FIRST_PAUSE_MS)
    coordinator.add(A0, B0)
    coordinator.add(A0, producer_id=10)
    epochs = {}
    while isinstance(step := coordinator.other.next_step(FIRST_PAUSE_MS), Send):
        for each in step.request.markers:
            epochs.update({(each.producer_id, key): each.coordinator_epoch for key in each.partitions})
        coordinator.other.answered(step.request, {}, FIRST_PAUSE_MS)
    assert epochs == {(PRODUCER, A0): 46, (PRODUCER, B0): EPOCH, (10, A0): EPOCH}


def test_a_coordinator_that_is_not_the_newest_stays_fenced(coordinator: Coordinator) -> None:
    written = coordinator.add(A0)
    request = fenced(coordinator)
    coordinator.fenced.answered(request, KnownEpochs({(A0, PRODUCER): 40}, {0: EPOCH + 1}), 0)
    assert coordinator.here.next_step(10_000) == FOR_A_CALL
    assert coordinator.other.next_step(10_000) == FOR_A_CALL
    assert not written.calls


def test_a_new_epoch_of_the_coordinator_begins_with_its_own(coordinator: Coordinator) -> None:
    coordinator.add(A0)
    request = fenced(coordinator)
    coordinator.fenced.answered(request, KnownEpochs({(A0, PRODUCER): 40}, {0: EPOCH}), 0)
    coordinator.routes.queues.forget(0)
    coordinator.add(A0)
    assert [each.coordinator_epoch for each in coordinator.send(10_000).markers] == [EPOCH]


def test_the_highest_epoch_there_is_can_be_sent_again(coordinator: Coordinator) -> None:
    coordinator.add(A0)
    request = fenced(coordinator)
    coordinator.fenced.answered(request, KnownEpochs({(A0, PRODUCER): INT32_MAX}, {0: EPOCH}), 0)
    assert [each.coordinator_epoch for each in coordinator.send(FIRST_PAUSE_MS).markers] == [INT32_MAX]


def test_epochs_are_asked_for_until_there_is_an_answer(coordinator: Coordinator, caplog) -> None:
    coordinator.add(A0)
    coordinator.send(0, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    now_ms = 0
    with caplog.at_level(logging.ERROR):
        for _ in range(20):
            request = asked(coordinator.fenced, now_ms)
            coordinator.fenced.failed(request, ConnectionLostError("it is gone"), now_ms)
            step = coordinator.fenced.next_step(now_ms)
            assert isinstance(step, Wait)
            assert step.until_ms is not None
            now_ms = step.until_ms
    (line,) = caplog.records
    assert "it is gone" in line.getMessage()
    request = asked(coordinator.fenced, now_ms)
    coordinator.fenced.answered(request, KnownEpochs({(A0, PRODUCER): 40}, {0: EPOCH}), now_ms)
    assert coordinator.send(now_ms + FIRST_PAUSE_MS).markers


def test_what_is_forgotten_is_not_asked_for(coordinator: Coordinator) -> None:
    coordinator.add(A0, number=3)
    coordinator.send(0, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    coordinator.routes.queues.forget(3)
    assert coordinator.fenced.next_step(0) == FOR_A_CALL
