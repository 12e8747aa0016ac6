"""Waiting for what comes to be without an answer that says so."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_TIMEOUT_S: Final = 120  # generous: JVMs may start on a busy machine meanwhile
_FIRST_PAUSE_S: Final = 0.001
_LONGEST_PAUSE_S: Final = 0.03


def eventually(
    holds: Callable[[], object],
    timeout_s: float = _TIMEOUT_S,
    problem: Callable[[], str] = lambda: "waited in vain",
) -> None:
    """Wait until it holds. Raise AssertionError with the problem, as it is then, if it does not in time."""
    deadline_s = time.monotonic() + timeout_s
    pause_s = _FIRST_PAUSE_S
    while not holds():
        if time.monotonic() > deadline_s:
            raise AssertionError(f"{problem()} for {timeout_s} s")
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def never(happens: Callable[[], object], within_s: float) -> None:
    """Raise AssertionError if it happens within this time."""
    until_s = time.monotonic() + within_s
    while time.monotonic() < until_s:
        assert not happens(), "it happened"
        time.sleep(_FIRST_PAUSE_S)
    assert not happens(), "it happened"
