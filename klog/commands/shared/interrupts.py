"""Ctrl-C and SIGTERM at a moment of our choice: what was begun is finished first.

In a `shield`, the first signal waits until the block ends. A second one does not wait, so that output that
nobody reads can still be interrupted.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Final, Self

_TERMINATED: Final = 128 + signal.SIGTERM


class Interrupts:
    """While entered, signals raise KeyboardInterrupt, or SystemExit for SIGTERM, outside of shields only."""

    def __init__(self) -> None:
        self._shielded = False
        self._pending: int | None = None
        self._arrived: int | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._received)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal gave

    def check(self) -> None:
        """For threads beside the main one, which gets the signals: raise what was raised there."""
        if self._arrived is not None:
            _interrupt(self._arrived)

    def _received(self, number: int, _: FrameType | None) -> None:
        if self._shielded and self._pending is None:
            self._pending = number
            return
        self._arrived = number
        _interrupt(number)

    @contextmanager
    def shield(self) -> Iterator[None]:
        """Finish the block before the first signal interrupts."""
        self._shielded = True
        try:
            yield
        finally:
            self._shielded = False
            pending, self._pending = self._pending, None
        if pending is not None:
            _interrupt(pending)


def _interrupt(number: int) -> None:
    if number == signal.SIGTERM:
        raise SystemExit(_TERMINATED)
    raise KeyboardInterrupt
