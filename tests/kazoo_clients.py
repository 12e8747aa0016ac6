"""Finds clients of ZooKeeper that a test has left running: their threads reconnect while other tests run."""

from __future__ import annotations

import threading
from weakref import WeakKeyDictionary


def threads() -> list[threading.Thread]:
    """The threads of kazoo that run now: one for a client's connection, and one for each of its queues."""
    found = []
    for each in threading.enumerate():
        target = getattr(each, "_target", None)  # kazoo gives its threads no names
        if str(getattr(target, "__module__", "")).startswith("kazoo."):
            found.append(each)
    return found


class KazooClients:
    """After which test each running thread of kazoo was there first."""

    def __init__(self) -> None:
        self._first: WeakKeyDictionary[threading.Thread, str] = WeakKeyDictionary()

    def note(self, test: str) -> None:
        """Note the threads that are new at the end of a test."""
        for each in threads():
            self._first.setdefault(each, test)

    def left(self) -> set[str]:
        """The tests whose clients run still."""
        return {self._first.get(each, "no test") for each in threads()}
