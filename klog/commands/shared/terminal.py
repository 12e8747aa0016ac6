"""Parts that all commands use: stdout as bytes, progress and questions on stderr, counts as text."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final

import typer

from klog.commands.shared.messages import print_note
from klog.formats.visible import visible

_LONG_BYTES: Final = 16 << 20  # the pure-Python kernel takes about a second for them


Progress = Callable[[int], None]
"""Receives how many bytes of the work were done."""


def stdout_bytes() -> BinaryIO:
    """Standard output as bytes; the caller buffers."""
    return sys.stdout.buffer


def _no_progress(advanced_bytes: int) -> None:
    pass


def note_slowness(total_bytes: int, *, quiet: bool = False) -> None:
    """Say in one line that the pure-Python kernel runs, if so much work takes long on it."""
    if quiet or total_bytes < _LONG_BYTES:
        return
    from klog.kernel.kernel import slowness

    if (slow := slowness()) is not None:
        print_note(slow)


@contextmanager
def progress(title: str, total_bytes: int, *, quiet: bool = False) -> Iterator[Progress]:
    """Shows a progress bar on stderr for long work on a terminal, and nothing elsewhere."""
    if quiet or total_bytes < 64 << 20 or not sys.stderr.isatty():
        yield _no_progress
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    from klog.commands.shared.cells import human_bytes

    # Sizes are in the units of all other output; rich's own columns of speed have other ones.
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[done]}"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(visible(title), total=total_bytes, done="")

        def advance(advanced_bytes: int) -> None:
            bar.advance(task, advanced_bytes)
            found = bar.tasks[0]
            speed = f", {human_bytes(found.speed)}/s" if found.speed else ""
            bar.update(task, done=f"{human_bytes(found.completed)} of {human_bytes(total_bytes)}{speed}")

        yield advance


def confirmed(question: str, *, yes: bool) -> bool:
    """Whether the user agrees, by `--yes` or by an answer on a terminal. Without a terminal it is no.

    If it is no, this says so; the command then exits with 1.
    """
    if yes:
        return True
    if sys.stdin.isatty() and sys.stderr.isatty():
        print(f"{visible(question)} [y/N] ", end="", file=sys.stderr, flush=True)  # noqa: T201
        answer = sys.stdin.readline()
        if answer.strip().lower() in {"y", "yes"}:
            return True
        if not answer:  # Ctrl-D leaves the cursor in the line of the question
            print(file=sys.stderr)  # noqa: T201
    print_note("nothing was changed (--yes does it without asking)")
    return False


def agree(question: str, *, yes: bool) -> None:
    """Ask as `confirmed` does; exit with 1 if it is no."""
    if not confirmed(question, yes=yes):
        raise typer.Exit(1)


def count_of(number: int, noun: str) -> str:
    """A number with its noun: `1 segment`, `2,000 segments`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
