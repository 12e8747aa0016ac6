"""What counters were a while ago, for rates and quantiles of the last minute."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

_WINDOW_S: Final = 60.0
_SPACING_S: Final = 5.0

Value = TypeVar("Value")


class Recent(Generic[Value]):
    """Remembers what it is shown, as far back as needed. Safe for threads."""

    def __init__(self, clock_s: Callable[[], float], first: Value) -> None:
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._past: deque[tuple[float, Value]] = deque([(clock_s(), first)])

    def compare(self, value: Value) -> tuple[float, Value]:
        """What to compare `value` with: how many seconds ago that was, and what it was then.

        It is at least a minute old where something that old was shown, else the oldest there is.
        """
        now_s = self._clock_s()
        with self._lock:
            past = self._past
            while len(past) > 1 and now_s - past[1][0] >= _WINDOW_S:
                past.popleft()
            then_s, before = past[0]
            # However often somebody looks, little is kept.
            if now_s - past[-1][0] >= _SPACING_S:
                past.append((now_s, value))
            return now_s - then_s, before
