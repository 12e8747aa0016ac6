"""Prints each problem of a dump on stderr and counts it for the exit code, or raises it if strict."""

from __future__ import annotations

from klog.commands.shared.messages import print_error
from klog.formats.errors import KlogError


class Problems:
    """The `on_problem` of a dump. With `strict` the first problem is raised."""

    def __init__(self, *, strict: bool = False) -> None:
        self.count = 0
        self._strict = strict

    def __call__(self, problem: KlogError) -> None:
        """Report one problem."""
        if self._strict:
            raise problem
        self.count += 1
        print_error(problem)

    @property
    def exit_code(self) -> int:
        """1 if there was a problem, else 0."""
        return 1 if self.count else 0
