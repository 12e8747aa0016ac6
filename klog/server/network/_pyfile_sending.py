"""Sends a slice of a file with the bytes around it, as one call: an answer to Fetch is made of these.

This is the meaning in pure Python; `_file_sending` does the same without taking the interpreter lock between
the steps. Threads that send for many clients at the same time wait for each other at each such step.
"""

from __future__ import annotations

import os
import socket
from typing import Final

IMPLEMENTATION: Final = "python"

_MORE: Final = getattr(socket, "MSG_MORE", 0)


def send_with_file(sock: socket.socket, head: bytes, file: int, position: int, size: int, tail: bytes) -> int:
    """Sends `head`, then `size` bytes (at least one) of an open file from `position` on, then `tail`. Returns
    how many bytes the socket took, which may be fewer.

    Raises BlockingIOError if it takes none now, EOFError if the file ends before `position` and `head` is
    empty, and any other OSError if the connection is broken or the file cannot be read. If something was sent
    before an error, the next call meets the error again.
    """
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
