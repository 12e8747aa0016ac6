"""Trying again for a while: leaders move, connections break, and the next answer may be better."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from klog.formats.errors import KlogError

_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0


class Patience:
    """How long failures in a row are borne: `failed` pauses, and after `timeout_ms` it raises the failure.

    A success in between starts the time anew.
    """

    def __init__(
        self,
        timeout_ms: int,
        clock_s: Callable[[], float] = time.monotonic,
        sleep_s: Callable[[float], None] = time.sleep,
    ) -> None:
        self._timeout_s = timeout_ms / 1000
        self._clock_s = clock_s
        self._sleep_s = sleep_s
        self._deadline_s: float | None = None
        self._pause_s = _FIRST_PAUSE_S

    def succeeded(self) -> None:
        """Things go well again."""
        self._deadline_s = None
        self._pause_s = _FIRST_PAUSE_S

    def failed(self, error: KlogError) -> None:
        """Wait a little before the next try. Raises `error` when patience is at its end."""
        now_s = self._clock_s()
        if self._deadline_s is None:
            self._deadline_s = now_s + self._timeout_s
        if now_s + self._pause_s > self._deadline_s:
            raise error
        self._sleep_s(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
