"""Runs `klog` on a terminal of a given width, for tests of what people see."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

RUN = "from klog.commands.main import main; main()"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Screen(NamedTuple):
    """What a terminal received: the raw text, and its lines without colours.

    `is_restored` says whether the terminal has the modes that it had before.
    """

    code: int
    raw: str
    is_restored: bool = True

    @property
    def lines(self) -> list[str]:
        """The lines without colours."""
        return [line.rstrip("\r") for line in _COLOUR.sub("", self.raw).split("\n")]

    @property
    def text(self) -> str:
        """The lines as one text."""
        return "\n".join(self.lines)


def on_screen(
    *arguments: object,
    columns: int = 80,
    keys: bytes = b"",
    steps: Sequence[tuple[str, bytes]] = (),
    **environment: str,
) -> Screen:
    """Run a command whose three streams are a terminal; `keys` are typed at its start.

    In `steps` are texts, and the keys that are typed when the text is seen, after what was seen before.
    """
    ours, theirs = pty.openpty()
    modes = termios.tcgetattr(ours)
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    hidden = {"NO_COLOR", "COLUMNS", "LINES"}
    env = {name: value for name, value in os.environ.items() if name not in hidden}
    env |= {"TERM": "xterm-256color", "TZ": "UTC", "LC_ALL": "C.UTF-8", **environment}
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, *map(os.fspath, map(_text, arguments))],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=env,
        start_new_session=True,
    )
    os.close(theirs)
    if keys:
        os.write(ours, keys)
    received, seen = b"", 0
    left = list(steps)
    while piece := _read(ours):
        received += piece
        while left and (at := received.find(left[0][0].encode(), seen)) >= 0:
            seen = at + len(left[0][0].encode())
            os.write(ours, left.pop(0)[1])
    code = process.wait()
    is_restored = termios.tcgetattr(ours) == modes
    os.close(ours)
    assert not left, f"never seen: {left[0][0]!r}"
    return Screen(code, received.decode("utf-8", "replace"), is_restored)


def _text(argument: object) -> str | Path:
    return argument if isinstance(argument, Path) else str(argument)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # the command has ended
        return b""
