"""Sends this broker's requests to the controller, wherever it is: one thread, one request at a time.

Rules: Kafka's `NodeToControllerChannelManager`. The metadata cache names the controller. If it is not known,
not reachable or not the controller any more, the request is sent again to the one that is known then.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from klog.client.connection import ReconnectingConnection
from klog.formats.errors import KlogError
from klog.metadata.cache import ClusterSnapshot
from klog.metadata.values import BrokerRegistration
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import RequestTimeoutError, UnsupportedApiError

_log = logging.getLogger(__name__)

LOOKUP_MS: Final = 100
RETRY_MS: Final = 50
_STOP_S: Final = 1.0  # it may be connecting to a host that does not answer

Reply = Callable[[Entity | KlogError], object]
"""Is given the answer's entity, or the error because of which there is none, on the sending thread."""

Build = Callable[[int], Entity]
"""Makes a request of the given version, each time that it is sent."""


@dataclass(frozen=True, slots=True, eq=False)
class _Queued:
    api_key: int
    build: Build
    reply: Reply
    deadline_ms: int | None


class ToController:
    """A queue of requests to the controller. Safe for threads.

    `connect` makes a connection to a broker without opening it. `clock_ms` is never set back.
    """

    def __init__(
        self,
        snapshot: Callable[[], ClusterSnapshot],
        connect: Callable[[BrokerRegistration], ReconnectingConnection],
        clock_ms: Callable[[], int],
    ) -> None:
        self._snapshot = snapshot
        self._connect = connect
        self._clock_ms = clock_ms
        self._queue: deque[_Queued] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._to: BrokerRegistration | None = None
        self._connection: ReconnectingConnection | None = None
        self._thread = threading.Thread(target=self._run, name="klog-to-controller", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and the request that waits for its answer. What is queued gets no reply."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            connection = self._connection
        if connection is not None:
            connection.close()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    def send(self, api_key: int, build: Build, reply: Reply, *, timeout_ms: int | None = None) -> None:
        """Send a request; `reply` is called once, with its answer.

        Without a timeout the request is sent until the controller answers. With one, `reply` is given a
        `RequestTimeoutError` if there is no answer by then, unless an attempt is on its way: its own timeout
        ends that. If the controller does not know the API, `reply` is given `UnsupportedApiError`.
        """
        deadline_ms = None if timeout_ms is None else self._clock_ms() + timeout_ms
        with self._changed:
            self._queue.append(_Queued(api_key, build, reply, deadline_ms))
            self._changed.notify_all()

    # -- on the thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping or self._queue)
                if self._stopping:
                    return
                expired = self._take_expired()
                first = self._queue[0] if self._queue else None
            for each in expired:
                self._reply(each, RequestTimeoutError("the controller did not answer in time"))
            if first is not None:
                self._try(first)

    def _take_expired(self) -> list[_Queued]:
        now_ms = self._clock_ms()
        expired = [
            each for each in self._queue if each.deadline_ms is not None and each.deadline_ms <= now_ms
        ]
        for each in expired:
            self._queue.remove(each)
        return expired

    def _try(self, first: _Queued) -> None:
        """Send the first request. It stays first in the queue unless it is answered."""
        answer: Entity | KlogError
        try:
            connection = self._to_controller()
            if connection is None:
                self._pause(LOOKUP_MS)
                return
            answer = connection.send(first.build(connection.version_of(first.api_key)))
        except UnsupportedApiError as error:
            answer = error
        except KlogError as error:
            if not self._stopping:
                _log.info("a request to the controller is sent again: %s", error)
            self._forget()
            self._pause(RETRY_MS)
            return
        except Exception as error:
            # A defect in one request must not keep the others from being sent.
            _log.exception("a request to the controller could not be sent")
            answer = KlogError(f"the request to the controller could not be sent: {error}")
        if not isinstance(answer, KlogError) and has_moved(answer):
            self._forget()
            self._pause(RETRY_MS)
            return
        with self._changed:
            self._queue.popleft()
        self._reply(first, answer)

    def _to_controller(self) -> ReconnectingConnection | None:
        snapshot = self._snapshot()
        broker = None if snapshot.controller_id is None else snapshot.brokers.get(snapshot.controller_id)
        if broker is None:
            return None
        if self._connection is None or broker != self._to:
            self._forget()
            with self._changed:
                if self._stopping:
                    return None
                self._to, self._connection = broker, self._connect(broker)
        return self._connection

    def _forget(self) -> None:
        with self._changed:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _pause(self, duration_ms: int) -> None:
        """Wait, but not longer than until a request expires."""
        with self._changed:
            now_ms = self._clock_ms()
            due_ms = [each.deadline_ms for each in self._queue if each.deadline_ms is not None]
            wait_ms = min([duration_ms, *(max(0, each - now_ms) for each in due_ms)])
            self._changed.wait_for(lambda: self._stopping, wait_ms / 1000)

    def _reply(self, queued: _Queued, answer: Entity | KlogError) -> None:
        try:
            queued.reply(answer)
        except Exception:
            _log.exception("an answer of the controller could not be used")


def has_moved(answer: Entity) -> bool:
    """Whether an answer says, for the whole or for a part, that its sender is not the controller."""
    return any(code == ErrorCode.NOT_CONTROLLER for code in _error_codes(answer))


def _error_codes(entity: Entity) -> Iterator[int]:
    for field in dataclasses.fields(entity):
        value = getattr(entity, field.name)
        if field.metadata.get("kafka_type") == "error_code":
            yield value
        elif isinstance(value, tuple):
            for each in value:
                if dataclasses.is_dataclass(each):
                    yield from _error_codes(each)
