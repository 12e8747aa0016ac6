"""Remembers earlier values of counters, for rates and quantiles of the last minute."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

_WINDOW_S: Final = 60.0
_SPACING_S: Final = 5.0

Value = TypeVar("Value")


class Recent(Generic[Value]):
    """Remembers the values that it is given, as far back as needed. Safe for threads."""

    def __init__(self, clock_s: Callable[[], float], first: Value) -> None:
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._past: deque[tuple[float, Value]] = deque([(clock_s(), first)])

    def compare(self, value: Value) -> tuple[float, Value]:
        """The earlier value to compare `value` with, and how many seconds ago it was given.

        It is at least a minute old, or the oldest if none is that old.
        """
        now_s = self._clock_s()
        with self._lock:
            past = self._past
            while len(past) > 1 and now_s - past[1][0] >= _WINDOW_S:
                past.popleft()
            then_s, before = past[0]
            # Few values are kept, however often this is called.
            if now_s - past[-1][0] >= _SPACING_S:
                past.append((now_s, value))
            return now_s - then_s, before
