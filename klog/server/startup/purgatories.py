"""The purgatories of a broker, one for each kind of operation that waits, on one timer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from klog.config.broker import BrokerConfig
from klog.replication.purgatory import Purgatory
from klog.server.threads.timer_thread import TimerThread


@dataclass(frozen=True, slots=True)
class Purgatories:
    """Each purgatory has the name that Kafka's metrics give it."""

    timer: TimerThread
    produce: Purgatory
    fetch: Purgatory
    delete_records: Purgatory
    topics: Purgatory
    elections: Purgatory


def new_purgatories(config: BrokerConfig, clock_ms: Callable[[], int]) -> Purgatories:
    """Empty purgatories, with a timer that is not started."""
    thread = TimerThread(clock_ms)
    timer = thread.timer

    def interval(name: str) -> int:
        return config.number(f"{name}.purgatory.purge.interval.requests")

    return Purgatories(
        thread,
        Purgatory("Produce", timer, interval("producer")),
        Purgatory("Fetch", timer, interval("fetch")),
        Purgatory("DeleteRecords", timer, interval("delete.records")),
        Purgatory("topic", timer),
        Purgatory("ElectLeader", timer),
    )
