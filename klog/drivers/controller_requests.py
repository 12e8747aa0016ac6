"""Sends this broker's requests to the controller, wherever it is: in order, one at a time, each until it is
answered or its deadline has passed.

Rules: Kafka's `NodeToControllerChannelManager`. The metadata cache names the controller. If it is not known,
not reachable or not the controller any more, the request is sent again to the one that is known then.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from klog.drivers.driver import FOR_A_CALL, Driver, Send, Wait
from klog.formats.errors import KlogError
from klog.metadata.cache import ClusterSnapshot
from klog.metadata.values import BrokerRegistration
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import RequestTimeoutError, UnsupportedApiError
from klog.protocol.messages import error_codes

_log = logging.getLogger(__name__)

LOOKUP_MS: Final = 100
RETRY_MS: Final = 50

Reply = Callable[[Entity | KlogError], object]
"""Is given the answer's entity, or the error because of which there is none, as an effect of the driver."""

Build = Callable[[int], Entity]
"""Makes a request of the given version, each time that it is sent."""


@dataclass(frozen=True, slots=True, eq=False)
class ForController:
    """A request that waits for the controller. Without a deadline it is sent until it is answered."""

    api_key: int
    build: Build
    reply: Reply
    deadline_ms: int | None = None


class ToBroker(NamedTuple):
    """One attempt to send a request, to the broker that is the controller as far as this one knows."""

    broker: BrokerRegistration
    wanted: ForController


class ControllerRequests(Driver[ToBroker, Entity]):
    """The queue of requests to the controller. `snapshot` is what the metadata cache has."""

    def __init__(self, snapshot: Callable[[], ClusterSnapshot]) -> None:
        super().__init__()
        self._snapshot = snapshot
        self._queue: deque[ForController] = deque()
        self._is_under_way = False
        self._is_failing = False
        self._not_before_ms: int | None = None

    def put(self, wanted: ForController) -> None:
        """Send this request after all that were put before."""
        self._queue.append(wanted)
        self.wake()

    def next_step(self, now_ms: int) -> Send[ToBroker] | Wait:
        if self._is_under_way:
            return FOR_A_CALL
        self._give_up_expired(now_ms)
        if not self._queue:
            return FOR_A_CALL
        if self._not_before_ms is not None and now_ms < self._not_before_ms:
            return self._wait(self._not_before_ms)
        snapshot = self._snapshot()
        broker = None if snapshot.controller_id is None else snapshot.brokers.get(snapshot.controller_id)
        if broker is None:
            self._not_before_ms = now_ms + LOOKUP_MS
            return self._wait(self._not_before_ms)
        self._not_before_ms = None
        self._is_under_way = True
        return Send(ToBroker(broker, self._queue[0]))

    def _wait(self, until_ms: int) -> Wait:
        """Wait, but not longer than until a request expires."""
        deadlines_ms = [each.deadline_ms for each in self._queue if each.deadline_ms is not None]
        return Wait(min([until_ms, *deadlines_ms]))

    def _give_up_expired(self, now_ms: int) -> None:
        late = [each for each in self._queue if each.deadline_ms is not None and each.deadline_ms <= now_ms]
        for each in late:
            self._queue.remove(each)
            error = RequestTimeoutError("the controller did not answer in time")
            self._effects.append(partial(each.reply, error))

    def answered(self, request: ToBroker, answer: Entity, now_ms: int) -> None:
        self._is_failing = False
        if has_moved(answer):
            self._send_again(now_ms)
        else:
            self._end(request, answer)

    def failed(self, request: ToBroker, error: Exception, now_ms: int) -> None:
        if isinstance(error, UnsupportedApiError):
            self._end(request, error)
        elif isinstance(error, KlogError):
            if not self._is_failing:
                self._is_failing = True
                _log.info("a request to the controller is sent again: %s", error)
            self._send_again(now_ms)
        else:
            # A defect in one request must not keep the others from being sent.
            self._end(request, KlogError(f"the request to the controller could not be sent: {error}"))

    def _send_again(self, now_ms: int) -> None:
        self._is_under_way = False
        self._not_before_ms = now_ms + RETRY_MS

    def _end(self, request: ToBroker, answer: Entity | KlogError) -> None:
        self._is_under_way = False
        self._queue.popleft()
        self._effects.append(partial(request.wanted.reply, answer))


def has_moved(answer: Entity) -> bool:
    """Whether an answer says, for the whole or for a part, that its sender is not the controller."""
    return ErrorCode.NOT_CONTROLLER in error_codes(type(answer), answer)
