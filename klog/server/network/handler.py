"""What answers requests, as the network calls it."""

from __future__ import annotations

from typing import Protocol

from klog.server.network.connection import Connection
from klog.server.network.request import Request


class Handler(Protocol):
    """Answers requests. All methods are called from several threads."""

    def may_block(self, api_key: int, api_version: int) -> bool:
        """Whether such a request may wait for something slow, and so belongs on an I/O thread."""

    def handle(self, request: Request) -> None:
        """Answers the request, or keeps it to answer later. `failed` is called with what it raises."""

    def handle_run(self, connection: Connection, buffer: bytearray, start: int, end: int) -> int:  # noqa: ARG002
        """Answers as many whole frames as need no general treatment, and returns the position after the last
        of them: `start` if the first frame needs it or is incomplete.

        The frames begin at `start`, each with its size in front; what was read ends at `end`. The answers go
        to `connection.outbound`, in the order of the frames; it is sent after the return, so a handler that
        has added some hundred KiB returns. Answers that come later are `LateAnswers`, which the handler puts
        `in_flight` before it returns. The handler may write to the buffer and must not keep a view of
        it: the next read overwrites it. An exception closes the connection after the answers that were added.
        """
        return start

    def failed(self, request: Request, fault: Exception) -> None:
        """Answers in place of `handle`, which has raised `fault`; or raises, which closes the connection."""
