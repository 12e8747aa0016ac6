"""Runs the command line inside the tests' process: arguments in, exit code and both streams out."""

from __future__ import annotations

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
        try:
            main.main()
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capfd.readouterr()
        return Outcome(code, out, err)

    return run
