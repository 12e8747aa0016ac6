"""The bounded way from network threads to I/O threads."""

from __future__ import annotations

from queue import Empty, SimpleQueue

from klog.server.network.connection import Connection


class RequestChannel:
    """Connections with work for an I/O thread, at most about `capacity` of them waiting.

    When it is full a network thread keeps the connection, unread, and tries again (`offer` says so): that
    is the back pressure. Two network threads that offer at the same moment may exceed the capacity by one;
    nobody is hurt.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._queue: SimpleQueue[Connection | None] = SimpleQueue()

    def offer(self, connection: Connection) -> bool:
        """Hands the connection over, unless the channel is full."""
        if self._queue.qsize() >= self._capacity:
            return False
        self._queue.put(connection)
        return True

    def put_back(self, connection: Connection) -> None:
        """An I/O thread queues its connection again behind the others; there is always room for that."""
        self._queue.put(connection)

    def take(self) -> Connection | None:
        """The next connection, waiting for it; None when an I/O thread is to end."""
        return self._queue.get()

    def end_one(self) -> None:
        """Lets one I/O thread end after all that was queued before."""
        self._queue.put(None)

    def drain(self) -> list[Connection]:
        """Takes all that waits, for nobody will serve it any more."""
        left: list[Connection] = []
        while True:
            try:
                item = self._queue.get_nowait()
            except Empty:
                return left
            if item is not None:
                left.append(item)

    def __len__(self) -> int:
        return self._queue.qsize()
