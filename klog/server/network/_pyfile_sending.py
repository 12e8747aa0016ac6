"""Sends a slice of a file with the bytes around it, as one call: an answer to Fetch is made of these.

This is the meaning in pure Python; `_file_sending` does the same without taking the interpreter lock between
the steps. Threads that send for many clients at the same time wait for each other at each such step.

If bytes follow the slice, the socket is corked meanwhile (TCP_CORK): full segments leave at once, and what is
left of the slice leaves with those bytes. Otherwise sendfile, which knows no MSG_MORE, would send its last
segment without them, and the few bytes would be a segment of their own.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import Final

IMPLEMENTATION: Final = "python"

_MORE: Final = getattr(socket, "MSG_MORE", 0)
_CORK: Final[int | None] = getattr(socket, "TCP_CORK", None)


def send_with_file(sock: socket.socket, head: bytes, file: int, position: int, size: int, tail: bytes) -> int:
    """Sends `head`, then `size` bytes (at least one) of an open file from `position` on, then `tail`. Returns
    how many bytes the socket took, which may be fewer.

    Raises BlockingIOError if it takes none now, EOFError if the file ends before `position` and `head` is
    empty, and any other OSError if the connection is broken or the file cannot be read. If something was sent
    before an error, the next call meets the error again.
    """
    if not tail:
        return _send(sock, head, file, position, size, tail)
    _set_cork(sock, on=True)
    try:
        return _send(sock, head, file, position, size, tail)
    finally:
        _set_cork(sock, on=False)


def _send(sock: socket.socket, head: bytes, file: int, position: int, size: int, tail: bytes) -> int:
    sent = 0
    try:
        if head:
            sent = sock.send(head, _MORE)
            if sent < len(head):
                return sent
        of_file = os.sendfile(sock.fileno(), file, position, size)
        if of_file == 0 and not sent:
            raise EOFError
        sent += of_file
        if of_file == size and tail:
            sent += sock.send(tail)
    except OSError:
        if not sent:
            raise
    return sent


def _set_cork(sock: socket.socket, *, on: bool) -> None:
    if _CORK is not None:
        # A socket that is not TCP has none.
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, _CORK, on)
