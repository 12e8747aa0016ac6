"""Counts what this broker's controller does and how long it takes. Its thread counts, metrics read."""

from __future__ import annotations

from typing import Final

from klog.controller.observer import ControllerState
from klog.server.request_times import Timing


class ControllerTimes:
    """The ControllerObserver of a broker."""

    def __init__(self) -> None:
        self.unclean_elections = 0
        self.waits: Final = Timing()
        self.by_state: Final = {state: Timing() for state in ControllerState}

    def handled(self, state: ControllerState, waited_ns: int, took_ns: int) -> None:
        """See `ControllerObserver`."""
        self.waits.record(waited_ns)
        self.by_state[state].record(took_ns)

    def elected_unclean(self) -> None:
        """See `ControllerObserver`."""
        self.unclean_elections += 1
