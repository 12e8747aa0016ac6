"""Gives each request to the handler of its API. This is the one `Handler` that the network layer calls.

If a handler fails, the answer is UNKNOWN_SERVER_ERROR, as in Kafka, or the connection closes if the API has
no field for an error. Bytes that are no valid request always close the connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from klog.formats.errors import KlogError, UsageError
from klog.metadata.errors import StoreFailedError
from klog.protocol.apis import SERVED, api_name
from klog.protocol.entity_fields import entity_fields
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import ProtocolError, UnsupportedApiError
from klog.protocol.file_slice import BodyPart
from klog.protocol.messages import encode_response, response_class
from klog.server.counters.request_times import ApiCounter, RequestCounters
from klog.server.handlers.answers import answer_of
from klog.server.handlers.request_charge import Charging
from klog.server.network.connection import Connection
from klog.server.network.request import Request

_log = logging.getLogger(__name__)

# The size and the API key of a frame end here; more answers than this are sent before more frames are read.
_API_KEY_END: Final = 6
_ANSWERS_MAX_BYTES: Final = 128 * 1024

Run = Callable[[Connection, bytearray, int, int], int]
Failed = Callable[[Request, ErrorCode], Sequence[BodyPart] | None]


def top_level_error(request: Request, error: ErrorCode) -> Sequence[BodyPart] | None:
    """An answer with only the error; None if the version has no error for the whole request."""
    fields = entity_fields(response_class(request.api_key, request.api_version))
    if not any(field.name == "error_code" for field in fields):
        return None
    values = {field.name: field.default for field in fields}
    return [encode_response(answer_of(request, **values | {"error_code": error}))]


class Route(NamedTuple):
    """What serves one API.

    `may_block`: it may wait for a disk, the metadata store or an import, and belongs on an I/O thread.
    Versions before `short_from` belong there in any case.
    `failed` makes the answer of a request whose handler broke; None closes the connection. `run` answers the
    first frames of a buffer without making requests of them, if they are of a kind that it knows: it is given
    a connection, a buffer and the positions where the frames begin and end, and returns the position after
    the last frame that it has answered.
    """

    handle: Callable[[Request], None]
    may_block: bool = True
    failed: Failed = top_level_error
    run: Run | None = None
    short_from: int = 0


class Dispatcher:
    """The broker's handlers by API key."""

    def __init__(
        self,
        routes: Mapping[int, Route],
        counters: RequestCounters,
        clock_ns: Callable[[], int],
        charging: Charging | None = None,
    ) -> None:
        """`charging` charges requests to quotas.

        Raises UsageError if an announced API has no route: what is announced must be served.
        """
        unserved = ", ".join(api_name(key) for key in SERVED if key not in routes)
        if unserved:
            raise UsageError(f"no handler for {unserved}")
        self._routes = dict(routes)
        self._runs = {key: route.run for key, route in routes.items() if route.run is not None}
        self._charging = charging
        self._counters = counters
        self._clock_ns = clock_ns

    def may_block(self, api_key: int, api_version: int) -> bool:
        """Whether such a request belongs on an I/O thread."""
        route = self._routes.get(api_key)
        return route is not None and (route.may_block or api_version < route.short_from)

    def handle_run(self, connection: Connection, buffer: bytearray, start: int, end: int) -> int:
        """Answer as many frames as need no `Request`; the position after the last of them."""
        position = start
        while end - position >= _API_KEY_END:
            run = self._runs.get(buffer[position + 4] << 8 | buffer[position + 5])
            if run is None:
                break
            if self._charging is not None and self._charging.is_due(connection, buffer, position, end):
                break
            after = run(connection, buffer, position, end)
            is_enough = connection.outbound.size_bytes >= _ANSWERS_MAX_BYTES
            if after == position or is_enough or connection.in_flight is not None:
                return after
            position = after
        return position

    def handle(self, request: Request) -> None:
        """Call the handler of the request's API. Raises what the handler raises."""
        api_key = request.api_key
        route = self._routes.get(api_key)
        if route is None:
            raise UnsupportedApiError(f"{api_name(api_key)} is not served")
        start_ns = self._clock_ns()
        charge = None if self._charging is None else self._charging.begin(request, start_ns)
        try:
            route.handle(request)
        finally:
            now_ns = self._clock_ns()
            if charge is not None:
                charge.handled(now_ns - start_ns)
            if self._charging is not None:
                self._charging.measure_exempt(request, charge, now_ns - start_ns)
            counter = self._counters.of(request)
            if request.answered and not request.queued_ns:
                counter.handled(request.connection, 1, start_ns, now_ns)
            else:
                self._count_slow(request, counter, start_ns, now_ns)

    def failed(self, request: Request, fault: Exception) -> None:
        """Answer with UNKNOWN_SERVER_ERROR, or KAFKA_STORAGE_ERROR if the metadata store has failed.

        Raises `fault`, which closes the connection, if the bytes were no valid request, if the answer has no
        field for an error, or if the request has been answered.
        """
        if isinstance(fault, ProtocolError):
            raise fault
        self._counters.of(request).failures += 1
        body = None
        if not request.answered:
            is_storage = isinstance(fault, StoreFailedError)
            code = ErrorCode.KAFKA_STORAGE_ERROR if is_storage else ErrorCode.UNKNOWN_SERVER_ERROR
            body = self._routes[request.api_key].failed(request, code)
        if body is None:
            raise fault
        # Bugs are logged with a traceback; the messages of klog's own errors are enough.
        _log.error("%r failed: %s", request, fault, exc_info=None if isinstance(fault, KlogError) else fault)
        request.respond(body)

    def _count_slow(self, request: Request, counter: ApiCounter, start_ns: int, handled_ns: int) -> None:
        """Count a request that has waited for its handler, or waits for its answer."""
        counter.local.record(handled_ns - start_ns)
        since_ns = request.queued_ns or start_ns
        if since_ns != start_ns:
            counter.queues.record(start_ns - since_ns)

        def answered() -> None:
            counter.answered_later(request, 1, since_ns, handled_ns, self._clock_ns())

        request.on_answered = answered
