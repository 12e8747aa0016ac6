"""Gives each partition that this broker follows to a thread, as the controller's requests say.

Rules: Kafka's `AbstractFetcherManager` and `ReplicaFetcherManager`. There is a thread for each pair of a
leader's broker and a fetcher id; the id is a hash of the partition modulo `num.replica.fetchers`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from klog.formats.java_hash import hash_of_string, remainder
from klog.formats.names import TopicPartition
from klog.metadata.values import Endpoint
from klog.replication.fetching.following import start_of
from klog.replication.fetching.values import FetchStart
from klog.replication.partition import Replicas
from klog.replication.roles import Role, RoleChange
from klog.server.fetching.fetcher_thread import FetcherThread

_log = logging.getLogger(__name__)

ThreadKey = tuple[int, int]
"""The id of the leader's broker, and the fetcher id."""

NewThread = Callable[[int, int], FetcherThread]
"""Makes a thread, not started, for a leader's broker and a fetcher id."""

_STOP_S: Final = 1.0
_UINT32: Final = 0xFFFF_FFFF


def fetcher_id(key: TopicPartition, fetchers: int) -> int:
    """The fetcher that copies a partition, as in Kafka."""
    return remainder((31 * hash_of_string(key.topic) + key.partition) & _UINT32, fetchers)


class FetcherCounts(NamedTuple):
    """The largest lag, how many partitions are not copied any more, how many threads have died."""

    max_lag: int
    failed_partitions: int
    dead_threads: int


@dataclass(slots=True, eq=False)
class FetcherManager:
    """A listener of the replica manager. Safe for threads; its lock is taken after the replica manager's.

    `address_of` gives the present address of a broker, None if it is not alive.
    """

    replicas: Replicas
    new_thread: NewThread
    fetchers: int
    address_of: Callable[[int], Endpoint | None]
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _threads: dict[ThreadKey, FetcherThread] = field(default_factory=dict, init=False)
    _of_partition: dict[TopicPartition, ThreadKey] = field(default_factory=dict, init=False)
    _addresses: dict[int, Endpoint | None] = field(default_factory=dict, init=False)
    _ending: list[FetcherThread] = field(default_factory=list, init=False)
    _stopped: bool = field(default=False, init=False)

    @property
    def counts(self) -> FetcherCounts:
        """The numbers of Kafka's `ReplicaFetcherManager`."""
        threads = self.threads.values()
        lags = [state.lag for thread in threads for state in list(thread.driver.fetcher.states.values())]
        return FetcherCounts(
            max([0, *lags]),
            sum(len(thread.driver.fetcher.failed_partitions) for thread in threads),
            sum(not thread.is_alive for thread in threads),
        )

    @property
    def threads(self) -> dict[ThreadKey, FetcherThread]:
        """The threads that run."""
        with self._lock:
            return dict(self._threads)

    def on_changes(self, changes: Sequence[RoleChange]) -> None:
        """Stop copying what is no longer followed, and copy what is followed now."""
        with self._lock:
            # The last change of a partition decides.
            latest = {change.partition: change.new for change in changes}
            self._remove(change.partition for change in changes if _ends(change))
            if not self._stopped:
                self._add(key for key, role in latest.items() if role is Role.FOLLOWER)
            self._end_idle()

    def resize(self, fetchers: int) -> None:
        """`num.replica.fetchers` has changed: partitions go to other threads and go on where they are."""
        with self._lock:
            if fetchers == self.fetchers or self._stopped:
                return
            _log.info("%d instead of %d threads copy from each broker", fetchers, self.fetchers)
            self.fetchers = fetchers
            starts: dict[ThreadKey, dict[TopicPartition, FetchStart]] = {}
            for (leader, _), thread in self._threads.items():
                for key, start in thread.remove_all().items():
                    starts.setdefault((leader, fetcher_id(key, fetchers)), {})[key] = start
            self._of_partition.clear()
            for place, of_thread in starts.items():
                self._give(place, of_thread)
            self._end_idle()

    def stop(self) -> None:
        """End all threads. Nothing is added any more, and no log is changed after this.

        A thread that is connecting to a host that does not answer ends later.
        """
        with self._lock:
            self._stopped = True
            threads = [*self._threads.values(), *self._ending]
            self._threads.clear()
            self._of_partition.clear()
        for thread in threads:
            thread.remove_all()
            thread.stop()
        end_s = time.monotonic() + _STOP_S
        for thread in threads:
            thread.join(max(0, end_s - time.monotonic()))

    # -- under the lock --------------------------------------------------------------------------------------

    def _remove(self, keys: Iterable[TopicPartition]) -> None:
        by_thread: dict[ThreadKey, list[TopicPartition]] = {}
        for key in keys:
            place = self._of_partition.pop(key, None)
            if place is not None:
                by_thread.setdefault(place, []).append(key)
        for place, gone in by_thread.items():
            self._threads[place].remove(gone)

    def _add(self, keys: Iterable[TopicPartition]) -> None:
        starts: dict[ThreadKey, dict[TopicPartition, FetchStart]] = {}
        for key in keys:
            partition = self.replicas.partitions.get(key)
            start = None if partition is None else start_of(partition)
            if partition is None or start is None:
                self._remove([key])
                continue
            place = partition.state.leader, fetcher_id(key, self.fetchers)
            if self._of_partition.get(key, place) != place:
                self._remove([key])
            starts.setdefault(place, {})[key] = start
        for place, of_thread in starts.items():
            self._give(place, of_thread)

    def _give(self, place: ThreadKey, starts: dict[TopicPartition, FetchStart]) -> None:
        leader = place[0]
        address = self.address_of(leader)
        if self._addresses.get(leader) not in (None, address):
            for (broker_id, _), each in self._threads.items():
                if broker_id == leader:
                    each.reconnect()
        self._addresses[leader] = address
        thread = self._threads.get(place)
        if thread is None:
            thread = self._threads[place] = self.new_thread(*place)
            thread.start()
        thread.add(starts)
        self._of_partition.update(dict.fromkeys(starts, place))

    def _end_idle(self) -> None:
        self._ending = [thread for thread in self._ending if thread.is_alive]
        for place, thread in list(self._threads.items()):
            if thread.driver.is_idle:
                del self._threads[place]
                thread.stop()
                self._ending.append(thread)


def _ends(change: RoleChange) -> bool:
    return change.old is Role.FOLLOWER and change.new is not Role.FOLLOWER
