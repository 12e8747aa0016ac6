"""Lets the threads of the listener between brokers go before those of other listeners.

While Python runs one thread at a time, a thread of its own does not keep a listener apart: beside a thread
that always has something to do, it waits for the interpreter lock after each of its system calls. So the
threads of the other listeners look between their connections whether a connection between brokers is ready.
Then they wait for the turn of its thread to end: from the end of its wait for events to the beginning of the
next wait.
"""

from __future__ import annotations

import select
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from klog.server.network.poller import READABLE

# How many connections are served between two looks at those that go first.
_EVENTS_AT_ONCE: Final = 8


class Turns:
    """The turns of one thread, whose poller has the descriptor `fd`."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.ended = 0
        self._waiting: deque[threading.Lock] = deque()

    def end(self) -> None:
        """Called by the thread when it is about to wait for events."""
        self.ended += 1
        while self._waiting:
            self._waiting.popleft().release()

    def await_end(self, ended: int, timeout_s: float) -> None:
        """Called by other threads: waits until more turns have ended than `ended`."""
        lock = threading.Lock()
        lock.acquire()
        self._waiting.append(lock)
        # If a turn has ended before the lock could be seen, the lock is released only after the next one.
        if self.ended == ended:
            lock.acquire(timeout=timeout_s)


class Precedence:
    """`first` are the turns of the threads that go first. They are replaced together, by any thread."""

    def __init__(self) -> None:
        self.first: Sequence[Turns] = ()


class GivingWay:
    """How one thread lets the first ones go. It waits for at most as long as it has run, so that it has half
    of the time while those always have something to do. Time is saved up to `most_s`.
    """

    def __init__(self, precedence: Precedence, most_s: float) -> None:
        self._precedence = precedence
        self._most_s = most_s
        self._left_s = most_s
        self._since_s = time.monotonic()
        self._first: Sequence[Turns] = ()
        self._poll = select.poll()

    def serve(
        self, events: Sequence[tuple[int, int]], on_events: Callable[[Sequence[tuple[int, int]]], None]
    ) -> None:
        """Has all events handled, a few at a time, and gives way before each of these."""
        if not self._precedence.first:
            on_events(events)
            return
        for at in range(0, len(events), _EVENTS_AT_ONCE):
            self._give_way()
            on_events(events[at : at + _EVENTS_AT_ONCE])

    def _give_way(self) -> None:
        first = self._precedence.first
        if first is not self._first:
            self._watch(first)
        ended = {turns.fd: turns.ended for turns in first}
        ready = self._poll.poll(0)
        now_s = time.monotonic()
        self._left_s = min(self._most_s, self._left_s + now_s - self._since_s)
        self._since_s = now_s
        for fd, mask in ready:
            if mask & READABLE and self._left_s > 0:
                self._wait(next(turns for turns in first if turns.fd == fd), ended[fd])

    def _watch(self, first: Sequence[Turns]) -> None:
        for turns in self._first:
            self._poll.unregister(turns.fd)
        for turns in first:
            self._poll.register(turns.fd, READABLE)
        self._first = first

    def _wait(self, turns: Turns, ended: int) -> None:
        turns.await_end(ended, self._left_s)
        now_s = time.monotonic()
        self._left_s -= now_s - self._since_s
        self._since_s = now_s
