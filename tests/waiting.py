"""Waiting for what comes to be without an answer that says so."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_TIMEOUT_S: Final = 120  # generous: JVMs may start on a busy machine meanwhile
_PAUSE_S: Final = 0.02


def eventually(holds: Callable[[], object], timeout_s: float = _TIMEOUT_S) -> None:
    """Wait until it holds; fail where it does not in time."""
    deadline_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline_s, f"waited in vain for {timeout_s} s"
        time.sleep(_PAUSE_S)
