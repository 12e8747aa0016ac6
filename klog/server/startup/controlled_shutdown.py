"""Asks the controller to move the leaderships of this broker to others before the broker stops.

Rules: Kafka's `KafkaServer.controlledShutdown` and its configs `controlled.shutdown.*`. A broker that is
alone has nobody to hand over to. If there is no controller, Kafka sleeps between its attempts; klog looks for
one during that time. Kafka's brokers that stop together wait for each other; klog asks again when another one
has gone, and its controller lets the last ones stop (`BrokerChanges.controlled_shutdown`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Final, Protocol

from klog.config.broker import BrokerConfig
from klog.drivers.controller_requests import Build, Reply
from klog.formats.errors import KlogError
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode, error_code
from klog.protocol.interbroker.controlled_shutdown import ControlledShutdownRequest
from klog.server.peers.registration import Registration

_log = logging.getLogger(__name__)

_LOOK_EVERY_S: Final = 0.1
_NAMED: Final = 10


class Send(Protocol):
    """Sends a request to the controller (`ToController.send`)."""

    def __call__(
        self, api_key: int, build: Build, reply: Reply, *, timeout_ms: int | None = None
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class ShutdownSettings:
    """The configs `controlled.shutdown.*`."""

    is_enabled: bool
    attempts: int
    backoff_ms: int

    @classmethod
    def of(cls, config: BrokerConfig) -> ShutdownSettings:
        return cls(
            config.flag("controlled.shutdown.enable"),
            config.number("controlled.shutdown.max.retries"),
            config.number("controlled.shutdown.retry.backoff.ms"),
        )


def before_stop(
    settings: ShutdownSettings,
    send: Send,
    registration: Registration,
    broker_id: int,
    brokers: Callable[[], Mapping[int, object]],
    is_urgent: Callable[[], bool],
    on_begin: Callable[[], None],
) -> None:
    """Hand over, if that is enabled and somebody is there to take over. `on_begin` is called before.

    `brokers` are those that are alive. When `is_urgent` becomes true, nothing is waited for any more.
    """

    def alive() -> Set[int]:
        return brokers().keys()

    def is_over() -> bool:
        return is_urgent() or alive() <= {broker_id} or registration.is_cut_off

    if settings.is_enabled and not is_over():
        on_begin()
        hand_over(settings, send, broker_id, lambda: registration.epoch, alive, is_over)


def hand_over(
    settings: ShutdownSettings,
    send: Send,
    broker_id: int,
    broker_epoch: Callable[[], int],
    brokers: Callable[[], Set[int]],
    is_over: Callable[[], bool],
) -> bool:
    """Have all leaderships moved that others can take over. Returns whether that succeeded.

    `brokers` are those that are alive. `is_over` ends the waiting when it becomes true: nobody is left to
    take over, or the stop is urgent.
    """

    def build(_: int) -> Entity:
        return ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch())

    left, end_s = settings.attempts, 0.0
    while left:
        if time.monotonic() >= end_s:
            left, end_s = left - 1, time.monotonic() + settings.backoff_ms / 1000
        known = brokers()
        failure = _attempt(send, build, end_s, is_over)
        if failure is None:
            _log.info("the controller lets this broker stop: others lead what they can take over")
            return True
        if is_over():
            break
        _log.warning("the controlled shutdown failed, %d attempts are left: %s", left, failure)
        if left:
            _wait_for_change(known, brokers, end_s, is_over)
    _log.warning("the broker stops without handing over all that it leads")
    return False


def _attempt(send: Send, build: Build, end_s: float, is_over: Callable[[], bool]) -> str | None:
    """Why an attempt has failed, None if it has not. A controller is looked for until `end_s`."""
    while True:
        answer = _ask(send, build, end_s, is_over)
        if isinstance(answer, KlogError):
            return str(answer)
        if answer.error_code != ErrorCode.STALE_CONTROLLER_EPOCH or time.monotonic() > end_s:
            break
        # The one that was asked is not the controller any more, and the next one will be known soon.
        _wait(time.monotonic() + _LOOK_EVERY_S, is_over)
    if answer.error_code != ErrorCode.NONE:
        return f"the controller answered {error_code(answer.error_code).name}"
    remaining = [f"{each.topic_name}-{each.partition_index}" for each in answer.remaining_partitions]
    if remaining:
        more = f" and {len(remaining) - _NAMED} more" if len(remaining) > _NAMED else ""
        return f"no other broker can lead {', '.join(remaining[:_NAMED])}{more}"
    return None


def _ask(send: Send, build: Build, end_s: float, is_over: Callable[[], bool]) -> Entity | KlogError:
    answered = threading.Event()
    answers: list[Entity | KlogError] = []

    def reply(answer: Entity | KlogError) -> None:
        answers.append(answer)
        answered.set()

    timeout_ms = max(0, int((end_s - time.monotonic()) * 1000))
    send(ApiKey.CONTROLLED_SHUTDOWN, build, reply, timeout_ms=timeout_ms)
    while not answered.wait(_LOOK_EVERY_S):
        if is_over():
            return KlogError("the controller has not answered yet")
    return answers[0]


def _wait_for_change(
    known: Set[int], brokers: Callable[[], Set[int]], end_s: float, is_over: Callable[[], bool]
) -> None:
    """Wait until brokers come or go. Then the attempt is repeated, since others may take over now."""
    _wait(end_s, lambda: is_over() or brokers() != known)


def _wait(until_s: float, is_over: Callable[[], bool]) -> None:
    while (left_s := until_s - time.monotonic()) > 0 and not is_over():
        time.sleep(min(left_s, _LOOK_EVERY_S))
