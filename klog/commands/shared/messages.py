"""Lines for people: errors and notes on stderr, text on stdout; each is safe and readable on a terminal.

On a terminal, control characters are shown as escapes, long lines are wrapped at words with a hanging indent,
and the first word has a colour. Elsewhere the text is written as it is, for scripts and files.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, Protocol, TextIO

from klog.formats.visible import visible

RED: Final = "1;31"
YELLOW: Final = "33"
BOLD: Final = "1"


class Screen(Protocol):
    """A stream that may write to a terminal."""

    def isatty(self) -> bool:
        """Whether it does."""


_LEAST_COLUMNS: Final = 20
_UNIT: Final = re.compile(r"(?<=\d) (?=(?:[KMGTPE]i)?B\b|m?s\b)")
INDENT: Final = "    "


def columns_of(stream: Screen) -> int | None:
    """The width of the terminal that a stream writes to, None if it is no terminal."""
    return max(_LEAST_COLUMNS, shutil.get_terminal_size().columns) if stream.isatty() else None


def coloured(stream: Screen) -> bool:
    """Whether colours may be written: to a terminal, unless NO_COLOR is set or the terminal is dumb."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, style: str, stream: Screen) -> str:
    """The text in a colour or in bold, if the stream may have colours."""
    return f"\x1b[{style}m{text}\x1b[0m" if coloured(stream) else text


def hanging(text: str, columns: int, indent: str = INDENT) -> str:
    """The text wrapped at words; further lines are indented.

    A word that is longer than a line is not cut, and a number stays with its unit.
    """
    kept = textwrap.fill(
        _UNIT.sub("\u00a0", text),
        columns,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
        drop_whitespace=True,
    )
    return kept.replace("\u00a0", " ")


def print_line(text: str, *, word: str = "", style: str = "", stream: TextIO | None = None) -> None:
    """Print one line. On a terminal it is made visible and wrapped, and `word`, its start, gets the style."""
    out = stream or sys.stdout
    columns = columns_of(out)
    if columns is not None:
        lead = text[: len(text) - len(text.lstrip(" "))]
        text = lead + hanging(visible(text[len(lead) :]), columns - len(lead), lead + INDENT)
        if word and style and text.startswith(word):
            text = paint(word, style, out) + text[len(word) :]
    print(text, file=out)


def print_lines(lines: Iterable[str]) -> None:
    """Print each line."""
    for line in lines:
        print_line(line)


def print_error(error: object) -> None:
    """Print an error as one line on stderr."""
    _print_to_stderr(f"klog: {error}", RED)


def print_note(text: str) -> None:
    """Print a note on stderr: something to know that does not change the exit code."""
    _print_to_stderr(f"klog: {text}", YELLOW)


def print_report(text: str) -> None:
    """Print what was done on stderr, line by line."""
    for line in text.split("\n"):
        _print_to_stderr(line, "")


def _print_to_stderr(line: str, style: str) -> None:
    # If stderr is full or gone, nobody can be told. The exit code still counts.
    with suppress(OSError):
        print_line(line, word="klog:", style=style, stream=sys.stderr)
        sys.stderr.flush()
