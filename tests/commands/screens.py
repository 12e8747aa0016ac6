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
from pathlib import Path
from typing import NamedTuple

RUN = "from klog.commands.main import main; main()"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Screen(NamedTuple):
    """What a terminal received: the raw text, and its lines without colours."""

    code: int
    raw: str

    @property
    def lines(self) -> list[str]:
        """The lines without colours."""
        return [line.rstrip("\r") for line in _COLOUR.sub("", self.raw).split("\n")]

    @property
    def text(self) -> str:
        """The lines as one text."""
        return "\n".join(self.lines)


def on_screen(*arguments: object, columns: int = 80, keys: bytes = b"", **environment: str) -> Screen:
    """Run a command whose three streams are a terminal; `keys` are typed at its start."""
    ours, theirs = pty.openpty()
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
    pieces = []
    while piece := _read(ours):
        pieces.append(piece)
    os.close(ours)
    return Screen(process.wait(), b"".join(pieces).decode("utf-8", "replace"))


def _text(argument: object) -> str | Path:
    return argument if isinstance(argument, Path) else str(argument)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # the command has ended
        return b""
