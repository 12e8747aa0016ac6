"""Waiting for many sockets: epoll where there is one, poll elsewhere; and waking the one who waits."""

from __future__ import annotations

import os
import select
import socket
from contextlib import suppress
from typing import Final, Protocol

READABLE: Final = 1
WRITABLE: Final = 4
# Always reported, asked for or not: an error, or both directions shut.
BROKEN: Final = 8 | 16


class Poller(Protocol):
    """Descriptors and what is waited for; the masks are those of poll(2), which epoll shares."""

    def register(self, fd: int, mask: int) -> None:
        """Begins to watch a descriptor."""

    def modify(self, fd: int, mask: int) -> None:
        """Changes what a descriptor is watched for."""

    def unregister(self, fd: int) -> None:
        """Stops watching a descriptor."""

    def wait(self, timeout_ms: int) -> list[tuple[int, int]]:
        """(descriptor, mask) of all that something happened to, after at most `timeout_ms`."""

    def close(self) -> None:
        """Frees what the poller holds."""


class EpollPoller:
    """Linux: the cost does not grow with the descriptors that are idle."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self.register = self._epoll.register
        self.modify = self._epoll.modify
        self.unregister = self._epoll.unregister
        self.close = self._epoll.close

    def wait(self, timeout_ms: int) -> list[tuple[int, int]]:
        return self._epoll.poll(timeout_ms / 1000)


class PollPoller:
    """Any other POSIX system."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self.register = self._poll.register
        self.modify = self._poll.modify
        self.unregister = self._poll.unregister
        self.wait = self._poll.poll

    def close(self) -> None:
        """Nothing is held."""


def new_poller() -> Poller:
    """The best poller of this system."""
    return EpollPoller() if hasattr(select, "epoll") else PollPoller()


class Waker:
    """Lets any thread end a poller's wait: `fd` becomes readable."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._set = False
        self.fd = self._reader.fileno()

    def wake(self) -> None:
        """Ends the wait; many calls before the waiter has come round count as one."""
        if not self._set:
            self._set = True
            with suppress(OSError):  # closed: the waiter is gone
                os.write(self._writer.fileno(), b"\0")

    def reset(self) -> None:
        """Called by the waiter before it looks at what it was woken for, so that no later call is lost."""
        with suppress(BlockingIOError):
            self._reader.recv(64)
        self._set = False

    def close(self) -> None:
        """Closes both ends."""
        self._reader.close()
        self._writer.close()
