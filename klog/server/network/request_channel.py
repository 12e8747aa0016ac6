"""The bounded queue from the network threads to the I/O threads."""

from __future__ import annotations

from queue import Empty, SimpleQueue

from klog.server.network.connection import Connection


class RequestChannel:
    """Connections with work for an I/O thread; at most about `capacity` of them wait.

    If it is full (`offer` is False) a network thread keeps the connection, does not read it, and tries again
    later. So clients are slowed down. Two network threads that offer at the same moment may exceed the
    capacity by one, which does no harm.
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
        """An I/O thread queues its connection again behind the others, even beyond the capacity."""
        self._queue.put(connection)

    def take(self) -> Connection | None:
        """Waits for the next connection. None says that the calling I/O thread has to end."""
        return self._queue.get()

    def end_one(self) -> None:
        """Has one I/O thread end after the work that was queued before."""
        self._queue.put(None)

    def drain(self) -> list[Connection]:
        """Removes and returns all that waits, after the last I/O thread has ended."""
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
