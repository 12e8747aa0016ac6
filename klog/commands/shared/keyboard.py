"""Keys as they are pressed, without Enter, for commands that show a screen."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
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


RESUMED: Final = "resumed"
"""Not a key: the command goes on after Ctrl-Z, and its screen is gone."""


class Keyboard:
    """The keys of the terminal that a descriptor reads. A byte on `resumed` says that Ctrl-Z came."""

    def __init__(self, descriptor: int, resumed: int) -> None:
        self._open = [descriptor, resumed]
        self._resumed = resumed

    def wait(self, longest_s: float) -> list[str]:
        """The keys that were pressed, and RESUMED; none if nothing was within this time."""
        ready, _, _ = select.select(self._open, [], [], longest_s)
        found: list[str] = []
        for descriptor in ready:
            data = os.read(descriptor, _AT_ONCE)
            if not data:
                self._open.remove(descriptor)
            found += [RESUMED] if descriptor == self._resumed else keys_in(data)
        return found


@contextmanager
def keyboard() -> Iterator[Keyboard | None]:
    """The terminal at stdin, whose keys are not shown while the block runs; None if it is no terminal.

    While Ctrl-Z has stopped the command, the terminal has the modes that it had before.
    """
    if not sys.stdin.isatty():
        yield None
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    resumed, resumes = os.pipe()

    def suspend(number: int, _: object) -> None:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)  # returns when the command goes on
        signal.signal(number, suspend)
        tty.setcbreak(descriptor, termios.TCSADRAIN)

    tty.setcbreak(descriptor, termios.TCSADRAIN)
    former = signal.signal(signal.SIGTSTP, suspend)
    # A signal that comes just before `wait` waits would be handled after it.
    os.set_blocking(resumes, False)
    former_descriptor = signal.set_wakeup_fd(resumes, warn_on_full_buffer=False)
    try:
        yield Keyboard(descriptor, resumed)
    finally:
        signal.set_wakeup_fd(former_descriptor)
        signal.signal(signal.SIGTSTP, former)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        os.close(resumed)
        os.close(resumes)
