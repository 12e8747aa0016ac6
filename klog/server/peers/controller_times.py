"""Counts what this broker's controller does and how long it takes. Its threads count, metrics read."""

from __future__ import annotations

from typing import Final

from klog.controller.observer import ControllerState
from klog.server.counters.request_times import Timing


class ControllerTimes:
    """The ControllerObserver of a broker. `requests` has how long requests to each broker were queued."""

    def __init__(self) -> None:
        self.unclean_elections = 0
        self.waits: Final = Timing()
        self.by_state: Final = {state: Timing() for state in ControllerState}
        self.requests: Final[dict[int, Timing]] = {}

    def handled(self, state: ControllerState, waited_ns: int, took_ns: int) -> None:
        """See `ControllerObserver`."""
        self.waits.record(waited_ns)
        self.by_state[state].record(took_ns)

    def elected_unclean(self) -> None:
        """See `ControllerObserver`."""
        self.unclean_elections += 1

    def request_taken(self, broker_id: int, waited_ns: int) -> None:
        """A request to a broker has left its queue. The broker's own thread calls this."""
        self.requests.setdefault(broker_id, Timing()).record(waited_ns)
