"""Having requests worked on, so that whatever goes wrong costs one connection and one log line."""

from __future__ import annotations

import logging
from collections.abc import Callable

from klog.formats.errors import KlogError
from klog.server.network.connection import Connection
from klog.server.network.request import Request

_log = logging.getLogger("klog.server.network")

Work = Callable[[Request], None]
Failed = Callable[[Request, Exception], None]
Run = Callable[[Connection, bytearray, int, int], int]


def work_on(request: Request, work: Work, failed: Failed) -> None:
    """Does `work`. Where that raises anything, `failed` may answer for it; what this raises closes the
    connection.

    This is the boundary of a thread that serves all the others: a bug, a failing machine and exhausted memory
    end in exceptions of any kind, none of which is to end it. So all are caught, as Kafka does.
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


def run_on(connection: Connection, run: Run, buffer: bytearray, start: int, end: int) -> int:
    """The position after the frames that `run` has answered. What it raises closes the connection, as for
    `work_on`; the answers that were added before are still sent.
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


def queue_answer(request: Request) -> None:
    """Puts the answer behind what its connection is to send; a file that cannot be read closes the
    connection.
    """
    if request.on_answered is not None:
        request.on_answered()
    connection = request.connection
    try:
        connection.queue_answer(request)
    except KlogError as error:
        log_closing(connection, error)
        connection.closing = True


def log_closing(connection: Connection, error: Exception) -> None:
    """The one line about a connection that broke a rule."""
    _log.warning("Closing %s: %s", connection, error)
