"""Metrics of the session with ZooKeeper: Kafka's `kafka.server:type=SessionExpireListener`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from klog.metadata.store import SessionState
from klog.server.metrics.exposition import Metric, Sample, counter

_PREFIX: Final = "kafka_server_sessionexpirelistener_"
_NAMES: Final = {
    SessionState.CONNECTED: ("CONNECTED", "zookeepersyncconnects", "times that it connected"),
    SessionState.SUSPENDED: ("CONNECTING", "zookeeperdisconnects", "times that it was disconnected"),
    SessionState.EXPIRED: ("EXPIRED", "zookeeperexpires", "times that it expired"),
}


class SessionCounts:
    """Counts the states of a session. `changed` is its session listener."""

    def __init__(self) -> None:
        self._state = SessionState.CONNECTED
        self._times = dict.fromkeys(SessionState, 0)

    def changed(self, state: SessionState) -> None:
        """The session is in another state."""
        self._state = state
        self._times[state] += 1

    def metrics(self) -> Iterator[Metric]:
        """The present state, as 1 of the three, and how often each has occurred."""
        yield Metric(
            f"{_PREFIX}zookeepersessionstate",
            "gauge",
            "1 for the present state of the session with ZooKeeper",
            [Sample({"state": name}, state is self._state) for state, (name, _, _) in _NAMES.items()],
        )
        for state, (_, name, help_text) in _NAMES.items():
            yield counter(f"{_PREFIX}{name}_total", help_text, self._times[state])
