"""Defects put into the drivers on purpose: the simulation must find each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

from klog.drivers.control_requests import ControlDriver
from klog.drivers.driver import FOR_A_CALL, Send, Wait
from klog.drivers.fetching import FetchDriver
from klog.drivers.isr_changes import IsrDriver
from klog.drivers.marker_queues import Entry, Transaction
from klog.drivers.markers import MarkerRequest, MarkerRoutes, _MarkerDriver
from klog.formats.constants import INT32_MAX
from klog.formats.names import TopicPartition
from klog.replication import isr_changes
from klog.replication.alter_partition import IsrAccepted, ProposalOutcome
from klog.replication.isr import IsrState
from klog.replication.isr_changes import IsrRequest
from klog.replication.partition_state import PartitionState
from klog.replication.replica_manager import ReplicaManager
from klog.storage.log.producers import Producers

_AFTER_ANSWER = isr_changes.after_answer
_ANSWERED = _MarkerDriver.answered
_CHECK_MARKER = Producers.check_marker
_ISR_ANSWERED = IsrDriver.answered
# The answers that each driver was given last.
_BEFORE: WeakKeyDictionary[IsrDriver, dict[TopicPartition, IsrAccepted]] = WeakKeyDictionary()
_NEXT_STEP = ControlDriver.next_step
_PAUSE = MarkerRoutes.pause
# As long as producers need for their next transaction.
_SECOND_MARKER_MS = 150


def _add_quietly(driver: FetchDriver, starts: Mapping[Any, Any]) -> None:
    driver.fetcher.add(starts)


def lost_wake_of_a_fetcher() -> Any:
    """A partition that is to be fetched does not wake the driver, which waits for one."""
    return patch.object(FetchDriver, "add", _add_quietly)


def _pause_quietly(routes: MarkerRoutes, entries: tuple[Entry, ...], due_ms: int) -> None:
    with patch.object(routes, "_wake"):
        _PAUSE(routes, entries, due_ms)


def lost_wake_of_markers() -> Any:
    """Markers that wait for the end of a pause do not wake the driver that ends it."""
    return patch.object(MarkerRoutes, "pause", _pause_quietly)


def _next_step_without_a_time(driver: ControlDriver, now_ms: int) -> Send[Any] | Wait:
    step = _NEXT_STEP(driver, now_ms)
    return step if isinstance(step, Send) else FOR_A_CALL


def forgotten_time_of_a_control_request() -> Any:
    """The time at which a control request is sent again is not named: the driver is never asked again."""
    return patch.object(ControlDriver, "next_step", _next_step_without_a_time)


def _apply_any_version(
    state: PartitionState, sent: Any, answer: Any
) -> tuple[PartitionState, ProposalOutcome]:
    if not isinstance(answer, IsrAccepted):
        return _AFTER_ANSWER(state, sent, answer)
    committed = IsrState(answer.isr)
    return replace(state, partition_epoch=answer.partition_epoch, isr=committed), ProposalOutcome.COMMITTED


def _answer_of_the_request_before(driver: IsrDriver, request: IsrRequest, answer: Any, now_ms: int) -> None:
    before = _BEFORE.setdefault(driver, {})
    accepted = {key: each for key, each in answer.items() if isinstance(each, IsrAccepted)}
    older = {
        key: before[key]
        for key, each in accepted.items()
        if key in before and _is_same_leader(before[key], each)
    }
    before |= accepted
    _ISR_ANSWERED(driver, request, {**answer, **older}, now_ms)


def _is_same_leader(one: IsrAccepted, other: IsrAccepted) -> bool:
    return one.leader_epoch == other.leader_epoch


def old_isr_answers() -> Any:
    """A leader is given the answer to the request before, and applies it although its version is older."""
    stack = ExitStack()
    stack.enter_context(patch.object(IsrDriver, "answered", _answer_of_the_request_before))
    stack.enter_context(patch.object(isr_changes, "after_answer", _apply_any_version))
    return stack


def _ignore(_partitions: Any, **_superseded: bool) -> None:
    """Nobody wants to know of the second marker."""


def _send_again(driver: _MarkerDriver, request: MarkerRequest, now_ms: int, older_by: int) -> None:
    routes = driver._routes
    for entry in request.entries:
        wanted = entry.transaction.wanted
        if entry.transaction.on_written is _ignore:
            continue
        marker = wanted.marker._replace(coordinator_epoch=wanted.marker.coordinator_epoch - older_by)
        again = Transaction(wanted._replace(marker=marker, partitions=entry.partitions), _ignore)
        routes.queues._missing.setdefault(wanted.coordinator_partition, {})[again] = set(entry.partitions)
        routes.pause((Entry(again, entry.partitions),), now_ms + _SECOND_MARKER_MS)


def _answered_twice(driver: _MarkerDriver, request: MarkerRequest, answer: Any, now_ms: int) -> None:
    _ANSWERED(driver, request, answer, now_ms)
    _send_again(driver, request, now_ms, older_by=0)


def _answered_twice_in_an_older_epoch(
    driver: _MarkerDriver, request: MarkerRequest, answer: Any, now_ms: int
) -> None:
    _ANSWERED(driver, request, answer, now_ms)
    _send_again(driver, request, now_ms, older_by=1)


def markers_sent_twice() -> Any:
    """A marker is sent again after it was written, when the producer may be in its next transaction."""
    return patch.object(_MarkerDriver, "answered", _answered_twice)


def _check_producer_only(producers: Producers, batch: Any, marker: Any) -> None:
    _CHECK_MARKER(producers, batch, marker._replace(coordinator_epoch=INT32_MAX))


def markers_sent_twice_in_an_older_epoch() -> Any:
    """A marker is sent again in an older coordinator epoch, and logs do not compare these epochs.

    Logs that compare them refuse it, and nothing is wrong.
    """
    stack = ExitStack()
    stack.enter_context(patch.object(_MarkerDriver, "answered", _answered_twice_in_an_older_epoch))
    stack.enter_context(patch.object(Producers, "check_marker", _check_producer_only))
    return stack


def replaced_controllers_obeyed() -> Any:
    """Brokers carry out requests of a controller that has been replaced."""
    return patch.object(ReplicaManager, "accepts", lambda _manager, _epoch: True)


DRIVER_MUTATIONS: dict[str, Callable[[], Any]] = {
    "a lost wake-up of a fetcher": lost_wake_of_a_fetcher,
    "a lost wake-up of markers that pause": lost_wake_of_markers,
    "a control request whose next time is forgotten": forgotten_time_of_a_control_request,
    "an ISR answer of an older version applied": old_isr_answers,
    "a marker sent twice": markers_sent_twice,
    "requests of a replaced controller obeyed": replaced_controllers_obeyed,
    "a marker sent twice with an older coordinator epoch": markers_sent_twice_in_an_older_epoch,
}
