"""Waits for events of many sockets, by epoll if the system has it, else by poll; and ends such a wait."""

from __future__ import annotations

import os
import select
import socket
from contextlib import suppress
from typing import Final, Protocol

READABLE: Final = 1
WRITABLE: Final = 4
# Reported even if not asked for: an error, or both directions are shut down.
BROKEN: Final = 8 | 16


class Poller(Protocol):
    """Watches descriptors for events. The masks are those of poll(2), which epoll shares."""

    def register(self, fd: int, mask: int) -> None:
        """Begins to watch a descriptor."""

    def modify(self, fd: int, mask: int) -> None:
        """Changes what a descriptor is watched for."""

    def unregister(self, fd: int) -> None:
        """Stops watching a descriptor."""

    def wait(self, timeout_ms: int) -> list[tuple[int, int]]:
        """Waits at most `timeout_ms` for events; returns (descriptor, mask) of each descriptor that has
        any.
        """

    def close(self) -> None:
        """Closes the poller."""

    @property
    def fd(self) -> int | None:
        """A descriptor that is readable while there are events; None if the system has none."""


class EpollPoller:
    """For Linux. Idle descriptors cost nothing."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self.register = self._epoll.register
        self.modify = self._epoll.modify
        self.unregister = self._epoll.unregister
        self.close = self._epoll.close

    def wait(self, timeout_ms: int) -> list[tuple[int, int]]:
        return self._epoll.poll(timeout_ms / 1000)

    @property
    def fd(self) -> int | None:
        """The epoll instance."""
        return self._epoll.fileno()


class PollPoller:
    """For any other POSIX system."""

    fd = None

    def __init__(self) -> None:
        self._poll = select.poll()
        self.register = self._poll.register
        self.modify = self._poll.modify
        self.unregister = self._poll.unregister
        self.wait = self._poll.poll

    def close(self) -> None:
        """Does nothing: there is nothing to close."""


def new_poller() -> Poller:
    """The best poller of this system."""
    return EpollPoller() if hasattr(select, "epoll") else PollPoller()


class Waker:
    """Lets any thread end a poller's wait, by making `fd` readable."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._set = False
        self.fd = self._reader.fileno()

    def wake(self) -> None:
        """Ends the wait. Further calls before `reset` do nothing."""
        if not self._set:
            self._set = True
            with suppress(OSError):  # closed: the thread has ended
                os.write(self._writer.fileno(), b"\0")

    def reset(self) -> None:
        """Called after the wait, before the thread looks for work, so that no later `wake` is lost."""
        with suppress(BlockingIOError):
            self._reader.recv(64)
        self._set = False

    def close(self) -> None:
        """Closes both ends."""
        self._reader.close()
        self._writer.close()
