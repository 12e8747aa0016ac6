"""Brings the controller's requests to one broker: in order, one at a time, each until the broker answers.

Rules: Kafka's `RequestSendThread` in `ControllerChannelManager`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from klog.controller.events import ResponseReceived
from klog.drivers.driver import FOR_A_CALL, Driver, Send, Wait
from klog.formats.errors import KlogError
from klog.metadata.control_requests import ControlRequest, ControlResponse

_log = logging.getLogger(__name__)

RETRY_BACKOFF_MS: Final = 100


@dataclass(frozen=True, slots=True, eq=False)
class QueuedRequest:
    """A request, and when it was queued, by a clock that is finer than the driver's."""

    request: ControlRequest
    queued_ns: int


class ControlDriver(Driver[QueuedRequest, ControlResponse]):
    """The queue of one broker. `on_taken` gets each request that leaves it, before it is sent first."""

    def __init__(
        self,
        broker_id: int,
        on_response: Callable[[ResponseReceived], object],
        on_taken: Callable[[QueuedRequest], object] = lambda queued: None,  # noqa: ARG005
        retry_backoff_ms: int = RETRY_BACKOFF_MS,
    ) -> None:
        super().__init__()
        self._broker_id = broker_id
        self._on_response = on_response
        self._on_taken = on_taken
        self._retry_backoff_ms = retry_backoff_ms
        self._queue: deque[QueuedRequest] = deque()
        self._current: QueuedRequest | None = None
        self._not_before_ms: int | None = None  # None: the current request is under way
        self._failures = 0  # of the current request

    @property
    def queued(self) -> int:
        """The number of requests that wait for the one that is on its way."""
        return len(self._queue)

    def put(self, request: ControlRequest, queued_ns: int = 0) -> None:
        """Send this request after all that were put before. Safe for threads without a lock."""
        self._queue.append(QueuedRequest(request, queued_ns))
        self.wake()

    def next_step(self, now_ms: int) -> Send[QueuedRequest] | Wait:
        if self._current is None:
            if not self._queue:
                return FOR_A_CALL
            self._current, self._failures = self._queue.popleft(), 0
            self._effects.append(partial(self._on_taken, self._current))
        elif self._not_before_ms is None:
            return FOR_A_CALL
        elif now_ms < self._not_before_ms:
            return Wait(self._not_before_ms)
        self._not_before_ms = None
        return Send(self._current)

    def answered(self, request: QueuedRequest, answer: ControlResponse, now_ms: int) -> None:  # noqa: ARG002
        if request is self._current:
            self._current = None
            received = ResponseReceived(self._broker_id, request.request, answer)
            self._effects.append(partial(self._on_response, received))

    def failed(self, request: QueuedRequest, error: Exception, now_ms: int) -> None:
        if request is not self._current:
            return
        self._not_before_ms = now_ms + self._retry_backoff_ms
        self._failures += 1
        if self._failures == 1:
            kind = type(request.request).__name__
            trace = None if isinstance(error, KlogError) else error
            _log.warning("%s to broker %d is sent again: %s", kind, self._broker_id, error, exc_info=trace)
