"""A thread that copies partitions from one leader broker over a connection of its own.

Rules: Kafka's `AbstractFetcherThread.doWork` and `ReplicaFetcherBlockingSend`. The lock is held while the
fetcher decides and while logs change, not while the leader answers: so `add` and `remove` wait for an append
at most, and after `remove` nothing is appended any more.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from klog.client.connection import Connection
from klog.formats.names import TopicPartition
from klog.protocol.errors import ChannelError, ConnectionLostError
from klog.replication.fetching.fetcher import Fetcher
from klog.replication.fetching.values import FetcherAnswer, FetcherRequest, FetchStart, Progress
from klog.server.fetching.requests import send
from klog.storage.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

Connect = Callable[[], Connection]
"""Makes a connection to the leader's broker, at its present address, without opening it.

Raises ChannelError if the broker is not known.
"""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What fetcher threads use of the broker.

    `clock_ms` is never set back. `received` is told the bytes of records taken for partitions,
    `high_watermark_moved` which partitions have more records for consumers, `truncated` which logs were
    truncated. All three are called without a lock.
    """

    clock_ms: Callable[[], int]
    request_timeout_ms: int
    received: Callable[[Mapping[TopicPartition, int]], None]
    high_watermark_moved: Callable[[Iterable[TopicPartition]], None]
    truncated: Callable[[Sequence[PartitionLog]], None]


class FetcherThread:
    """Starts with `start` and ends with `stop`. `requests` and `record_bytes` count what it has done."""

    def __init__(
        self,
        name: str,
        new_fetcher: Callable[[Callable[[PartitionLog], None]], Fetcher],
        connect: Connect,
        surroundings: Surroundings,
    ) -> None:
        """`new_fetcher` makes the fetcher, which calls its argument for each log that it truncates."""
        self.name = name
        self.requests = 0
        self.record_bytes = 0
        self._truncated: list[PartitionLog] = []
        self.fetcher = new_fetcher(self._truncated.append)
        self._connect = connect
        self._around = surroundings
        self._connection: Connection | None = None
        self._closings = 0  # a connection that is being opened cannot be closed: it is when it is open
        self._changed = threading.Condition()
        self._stopping = False
        self._is_connected = True  # as far as the operator has been told
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def add(self, starts: Mapping[TopicPartition, FetchStart]) -> None:
        """Copy these partitions, too."""
        with self._changed:
            self.fetcher.add(starts)
            self._changed.notify()

    def remove(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, FetchStart]:
        """Stop copying partitions; returns how far they are."""
        with self._changed:
            return self.fetcher.remove(keys)

    def remove_all(self) -> dict[TopicPartition, FetchStart]:
        """Stop copying all partitions; returns how far they are."""
        with self._changed:
            return self.fetcher.remove([*self.fetcher.states, *self.fetcher.failed_partitions])

    @property
    def is_idle(self) -> bool:
        """Whether it has no partition."""
        return not self.fetcher.states and not self.fetcher.failed_partitions

    def reconnect(self) -> None:
        """The broker has another address: what waits for an answer from the old one fails."""
        self._closings += 1
        connection = self._connection
        if connection is not None:
            connection.close()

    def stop(self) -> None:
        """Let the thread end; it does not wait for that."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self.reconnect()

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until the thread has ended."""
        self._thread.join(timeout_s)

    # -- the thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._step()
            except Exception:
                # The other partitions must not wait for ever because of one defect.
                logger.exception("%s goes on after an unexpected error", self.name)
                with self._changed:
                    self._pause()
        self.reconnect()

    def _pause(self) -> None:
        """Wait for a change of the partitions, or until one of them has waited long enough.

        The caller holds the lock.
        """
        if not self._stopping:
            self._changed.wait(self.fetcher.idle_ms(self._around.clock_ms()) / 1000)

    def _step(self) -> None:
        """One request with its answer, or a wait if there is nothing to send."""
        clock_ms = self._around.clock_ms
        try:
            with self._changed:
                request = self.fetcher.next_request(clock_ms())
                if request is None:
                    self._pause()
                    return
            answer = self._ask(request)
            with self._changed:
                if answer is None:
                    self.fetcher.failed(request, clock_ms())
                    return
                progress = self.fetcher.answered(request, answer, clock_ms())
        finally:
            self._note_truncated()
        self._made(progress)

    def _ask(self, request: FetcherRequest) -> FetcherAnswer | None:
        try:
            connection = self._connected()
            self.requests += 1
            answer = send(connection, request, self._around.request_timeout_ms)
        except ChannelError as error:
            if self._is_connected and not self._stopping:
                self._is_connected = False
                logger.warning("%s waits for broker %d: %s", self.name, self.fetcher.leader_id, error)
            self.reconnect()
            return None
        if not self._is_connected:
            self._is_connected = True
            logger.info("%s copies from broker %d again", self.name, self.fetcher.leader_id)
        return answer

    def _connected(self) -> Connection:
        connection = self._connection
        if connection is None or not connection.connected:
            closings = self._closings
            self._connection = connection = self._connect()
            connection.connect()
            if closings != self._closings or self._stopping:
                connection.close()
                raise ConnectionLostError("this side has closed the connection")
        return connection

    def _note_truncated(self) -> None:
        if self._truncated:
            logs, self._truncated[:] = list(self._truncated), []
            self._around.truncated(logs)

    def _made(self, progress: Progress) -> None:
        if progress.received:
            self.record_bytes += progress.record_bytes
            self._around.received(progress.received)
        if progress.high_watermark_moved:
            self._around.high_watermark_moved(progress.high_watermark_moved)
