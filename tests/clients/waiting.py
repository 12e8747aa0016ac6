"""Waiting for what comes to be without an answer that says so."""

from __future__ import annotations

import time
from collections.abc import Callable

_TIMEOUT_S = 20
_PAUSE_S = 0.01


def eventually(holds: Callable[[], object]) -> None:
    """Wait until it holds; fail where it does not in time."""
    deadline_s = time.monotonic() + _TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline_s, "waited in vain"
        time.sleep(_PAUSE_S)
