"""Refuses new partitions for which this broker has no file descriptors.

Kafka has no such limit: it runs out of descriptors and halts. A broker knows its own limit only, so replicas
on other brokers are not counted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode
from klog.server.handlers.refusals import RefusedError

# A partition that has been promised and is not there after this time will not come.
_PROMISED_MS: Final = 60_000

Assignment = Mapping[int, Sequence[int]]


@dataclass(slots=True, eq=False)
class PartitionRoom:
    """Safe for threads. `room` says how many more logs the broker can open, `is_here` whether a partition has
    its log or will not get one.
    """

    broker_id: int
    room: Callable[[], int]
    is_here: Callable[[TopicPartition], bool]
    clock_ms: Callable[[], int]
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    # Partitions in the tree that have no log yet, with the time at which they are forgotten.
    _promised: dict[TopicPartition, int] = field(default_factory=dict, init=False)

    def require(self, replicas: Assignment) -> None:
        """Raises RefusedError if this broker cannot open the logs of these replicas that it is to have."""
        wanted = len(self._own(replicas))
        if not wanted:
            return
        with self._lock:
            self._forget_done()
            left = max(0, self.room() - len(self._promised))
        if wanted > left:
            raise RefusedError(
                ErrorCode.POLICY_VIOLATION,
                f"{wanted} new partitions on broker {self.broker_id}, whose limit of open files (ulimit -n)"
                f" leaves room for {left}.",
            )

    def promise(self, topic: str, replicas: Assignment) -> None:
        """These replicas will be created."""
        forget_ms = self.clock_ms() + _PROMISED_MS
        with self._lock:
            self._promised |= {TopicPartition(topic, number): forget_ms for number in self._own(replicas)}

    def _own(self, replicas: Assignment) -> list[int]:
        return [number for number, brokers in replicas.items() if self.broker_id in brokers]

    def _forget_done(self) -> None:
        now_ms = self.clock_ms()
        self._promised = {
            partition: forget_ms
            for partition, forget_ms in self._promised.items()
            if now_ms < forget_ms and not self.is_here(partition)
        }
