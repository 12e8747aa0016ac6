"""Runs the command line inside the tests' process: arguments in, exit code and both streams out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

import pytest

from klog.commands import main


class Outcome(NamedTuple):
    """How a command ended and what it wrote."""

    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


def runner(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """A function that runs `klog` with the arguments it is given."""

    def run(*arguments: object) -> Outcome:
        monkeypatch.setattr("sys.argv", ["klog", *map(str, arguments)])
        code = 0
        handlers = list(logging.root.handlers)
        try:
            main.main()
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            # `serve` logs to stderr, which here is that of this test only. Threads of clients log later, too.
            logging.root.handlers[:] = handlers
        out, err = capfd.readouterr()
        return Outcome(code, out, err)

    return run
