"""Calls the handler so that any failure costs one connection and one log line."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from klog.formats.errors import KlogError
from klog.server.network.connection import Connection
from klog.server.network.request import Request

_log = logging.getLogger("klog.server.network")

Work = Callable[[Request], None]
Failed = Callable[[Request, Exception], None]
Run = Callable[[Connection, bytearray, int, int], int]


def work_on(request: Request, work: Work, failed: Failed) -> None:
    """Calls `work`. If it raises, `failed` may answer in its place; what that raises closes the connection.

    Exceptions of any kind are caught, as in Kafka: the thread serves other connections, too, and a bug, a
    broken disk or a lack of memory must not end it.
    """
    try:
        try:
            work(request)
        except Exception as fault:
            failed(request, fault)
    except KlogError as error:
        _log.warning("Closing %s: %r: %s", request.connection, request, error)
        _give_up(request)
    except Exception:
        _log.exception("Closing %s: the handler failed at %r", request.connection, request)
        _give_up(request)


def serve_frame(
    connection: Connection,
    frame: bytearray,
    now_ms: int,
    may_block: Callable[[int, int], bool],
    work: Work,
    failed: Failed,
) -> bool:
    """Has one request handled; False if it belongs on an I/O thread. Then, and until its answer is there, it
    is in flight.
    """
    try:
        request = Request(connection, frame, now_ms)
    except KlogError as error:
        log_closing(connection, error)
        return True
    connection.in_flight = request
    if may_block(request.api_key, request.api_version):
        request.queued_ns = time.perf_counter_ns()
        return False
    work_on(request, work, failed)
    if not request.park():
        queue_answer(connection, request)
    return True


def run_on(connection: Connection, run: Run, buffer: bytearray, start: int, end: int) -> int:
    """Calls `run`, and returns the position after the frames that it has answered. If it raises, the
    connection is closed after the answers that were added before.
    """
    try:
        return run(connection, buffer, start, end)
    except KlogError as error:
        log_closing(connection, error)
    except Exception:
        _log.exception("Closing %s: the handler failed", connection)
        connection.closing = True
    return start


def _give_up(request: Request) -> None:
    if not request.answered:
        request.close_connection()
    else:
        request.connection.closing = True


def queue_answer(connection: Connection, request: Request) -> None:
    """Queues the answer behind what the connection still has to send. A file that cannot be read closes the
    connection.
    """
    if request.on_answered is not None:
        request.on_answered()
    try:
        connection.queue_answer(request)
    except KlogError as error:
        log_closing(connection, error)
    if not connection.outbound.size_bytes:
        # There is no answer, so nothing is left to be sent.
        connection.count_sent()


def log_closing(connection: Connection, error: KlogError | OSError) -> None:
    """Has a connection closed after what it still has to send: it broke a rule, or is broken itself, which is
    a debug line.
    """
    level = logging.WARNING if isinstance(error, KlogError) else logging.DEBUG
    _log.log(level, "Closing %s: %s", connection, error)
    connection.closing = True
