"""Decides by the bytes that a connection moves whether it belongs to the threads for bulk traffic.

Receiving, checking, writing and sending many bytes are system calls and compiled passes that hold no
interpreter lock, so another thread runs meanwhile. A small request is mostly Python, which only one thread at
a time runs. So connections that move many bytes for each turn of their thread go to a thread of their own,
and small requests do not wait for them. There can be several such threads, but more than one makes each
request cost more while Python has its interpreter lock.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class TrafficLimits(NamedTuple):
    """When a connection counts as bulk traffic: it moves so many bytes for each turn, and so many a second.

    It stays bulk traffic down to a quarter of both, so that it does not move to and fro. A look is taken
    after `look_bytes` or `look_turns`, and not before `window_ms` have passed since the last one.
    """

    bytes_per_turn: int = 12 * 1024
    bytes_per_s: int = 1024 * 1024
    look_bytes: int = 256 * 1024
    look_turns: int = 64
    window_ms: int = 20


DEFAULT_LIMITS: Final = TrafficLimits()

# The part of the limits at which bulk traffic still counts as such.
_STAYS_PART: Final = 4


class ConnectionTraffic:
    """What one connection has received and sent since the last look. A turn is one read, or one request if a
    read brought several.
    """

    __slots__ = ("moved_bytes", "since_ms", "turns")

    def __init__(self, now_ms: int = 0) -> None:
        self.restart(now_ms)

    def restart(self, now_ms: int) -> None:
        """Begins to count anew."""
        self.moved_bytes = 0
        self.turns = 0
        self.since_ms = now_ms

    def is_due(self, now_ms: int, limits: TrafficLimits) -> bool:
        """Whether it is time for a look."""
        enough = self.moved_bytes >= limits.look_bytes or self.turns >= limits.look_turns
        return enough and now_ms - self.since_ms >= limits.window_ms

    def is_bulk(self, now_ms: int, limits: TrafficLimits, *, was_bulk: bool) -> bool:
        """Whether the connection belongs to the threads for bulk traffic."""
        part = _STAYS_PART if was_bulk else 1
        elapsed_ms = max(1, now_ms - self.since_ms)
        return (
            self.moved_bytes * part >= limits.bytes_per_turn * max(1, self.turns)
            and self.moved_bytes * part * 1000 >= limits.bytes_per_s * elapsed_ms
        )
