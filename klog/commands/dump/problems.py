"""Problems met while dumping: told on stderr one by one, counted for the exit code, raised when strict."""

from __future__ import annotations

import sys

from klog.formats.errors import KlogError


class Problems:
    """The `on_problem` of a dump. `strict` raises the first problem instead of telling it."""

    def __init__(self, *, strict: bool = False) -> None:
        self.count = 0
        self._strict = strict

    def __call__(self, problem: KlogError) -> None:
        """Take one problem in."""
        if self._strict:
            raise problem
        self.count += 1
        print(f"klog: {problem}", file=sys.stderr)  # noqa: T201 (stderr is for people)

    @property
    def exit_code(self) -> int:
        """1 when there was a problem, else 0."""
        return 1 if self.count else 0
