"""What commands share at the edge: stdout as a byte stream, progress and questions on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Protocol


class Progress(Protocol):
    """Told how many bytes of the work have been done."""

    def __call__(self, advanced_bytes: int) -> None:
        """Advance by `advanced_bytes`."""


def stdout_bytes() -> BinaryIO:
    """Standard output for machine formats: bytes, block-buffered by the caller."""
    return sys.stdout.buffer


def _unseen(advanced_bytes: int) -> None:
    pass


@contextmanager
def progress(title: str, total_bytes: int, *, quiet: bool = False) -> Iterator[Progress]:
    """A progress bar on stderr, for long work on a terminal; elsewhere nothing is shown."""
    if quiet or total_bytes < 64 << 20 or not sys.stderr.isatty():
        yield _unseen
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total_bytes)
        yield lambda advanced_bytes: bar.advance(task, advanced_bytes)


def confirmed(question: str, *, yes: bool) -> bool:
    """Whether the user agrees: `--yes`, or an answer on a terminal; without either, no."""
    if yes:
        return True
    if not sys.stdin.isatty() or not sys.stderr.isatty():
        return False
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)  # noqa: T201
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
