"""Keys as they are pressed, without Enter, for commands that show a screen."""

from __future__ import annotations

import os
import re
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_AT_ONCE: Final = 1024
_PRESSED: Final = re.compile(r"\x1b[\[O][0-9;]*[~A-Za-z]|.", re.DOTALL)
_NAMES: Final = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b": "escape",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\b": "backspace",
}


def keys_in(data: bytes) -> list[str]:
    """The keys that a terminal has sent: a character, or `up`, `down`, `enter`, `escape`, `backspace`.

    Keys that have no name here are left out.
    """
    pressed = _PRESSED.findall(data.decode(errors="ignore"))
    named = (_NAMES.get(each, each) for each in pressed)
    return [key for key in named if key.isprintable()]


class Keyboard:
    """The keys of the terminal that a descriptor reads."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._is_open = True

    def wait(self, longest_s: float) -> list[str]:
        """The keys that were pressed, none if none was within this time."""
        if not self._is_open:
            time.sleep(longest_s)
            return []
        ready, _, _ = select.select([self._descriptor], [], [], longest_s)
        data = os.read(self._descriptor, _AT_ONCE) if ready else b""
        self._is_open = bool(data) or not ready
        return keys_in(data)


@contextmanager
def keyboard() -> Iterator[Keyboard | None]:
    """The terminal at stdin, whose keys are not shown while the block runs; None if it is no terminal."""
    if not sys.stdin.isatty():
        yield None
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor, termios.TCSADRAIN)
    try:
        yield Keyboard(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
