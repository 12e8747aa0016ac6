"""Which partitions of an internal topic a coordinator owns: those that this broker leads.

Rules: Kafka's `GroupMetadataManager` and `TransactionStateManager`. A partition is loaded when its leadership
comes and forgotten when it goes, each in the order of the leader epochs, on one thread.

A partition is owned only after all records that were loaded are replicated. Otherwise a request could be
answered from records that the next leader does not have. Kafka does not wait: it serves a partition when it
has read the log to its end.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Generic, Protocol, TypeAlias, TypeVar

from klog.protocol.error_codes import ErrorCode
from klog.replication.roles import Role, RoleChange

_log = logging.getLogger(__name__)


class OwnedPartition(Protocol):
    """What a coordinator holds of one partition. `len` says how many groups or transactional ids."""

    leader_epoch: int

    def __len__(self) -> int: ...

    def close(self) -> None:
        """This broker leads the partition no longer: requests that wait are answered NOT_COORDINATOR."""


P = TypeVar("P", bound=OwnedPartition)

WhenReplicated: TypeAlias = Callable[[int, Callable[[], object]], bool]
"""See `OwnedTopic`."""


def always_replicated(number: int, then: Callable[[], object]) -> bool:  # noqa: ARG001 (as `WhenReplicated`)
    """For logs without followers: what is in the log is replicated."""
    return True


@dataclass(frozen=True, slots=True)
class OwnedTopic(Generic[P]):
    """How the partitions of a topic are loaded.

    `read` reads a partition's log in an epoch, for as long as the function that it is given returns true. It
    returns what makes the partition ready for requests, or None if there is nothing to own. `what` names what
    the partitions hold, for messages. If `reloads`, a partition is loaded again when its leader epoch rises
    although this broker has led it without a break.

    `when_replicated` is given a partition and a function. It returns true if the high watermark has reached
    the log end. If not, it calls the function when it has, from any thread, unless leadership is lost.
    """

    topic: str
    what: str
    read: Callable[[int, int, Callable[[], bool]], Callable[[], P] | None]
    when_replicated: WhenReplicated
    _: KW_ONLY
    reloads: bool = False


@dataclass(slots=True)
class LoadTimes:
    """How long partitions took to load, in milliseconds. One thread adds to it."""

    count: int = 0
    sum_ms: float = 0.0
    max_ms: float = 0.0

    @property
    def mean_ms(self) -> float:
        """The mean, 0.0 before the first load."""
        return self.sum_ms / self.count if self.count else 0.0

    def add(self, took_ms: float) -> None:
        """A partition was loaded."""
        self.count += 1
        self.sum_ms += took_ms
        self.max_ms = max(self.max_ms, took_ms)


class Loader(Protocol):
    """Runs calls one after the other, in the order in which they were submitted."""

    def submit(self, call: Callable[..., object], /, *arguments: object) -> object:
        """Run the call later, not in this one."""

    def shutdown(self, *, cancel_futures: bool) -> None:
        """Run nothing more, and wait for the call that runs."""


class Ownership(Generic[P]):
    """The partitions of one internal topic that this broker owns. Safe for threads.

    `loader` loads and forgets partitions; if there is none, a thread of its own does.
    """

    def __init__(
        self,
        owned_topic: OwnedTopic[P],
        thread_name: str,
        clock_s: Callable[[], float] = time.monotonic,
        loader: Loader | None = None,
    ) -> None:
        self._topic = owned_topic
        self._clock_s = clock_s
        self.load_times = LoadTimes()
        self._lock = threading.Lock()
        # By number. The newest epoch of which something is known, led or not.
        self._epochs: dict[int, int] = {}
        self._loading: dict[int, int] = {}
        self._owned: dict[int, P] = {}
        # What is to be done with partitions that are being loaded, after that.
        self._after_load: dict[int, list[Callable[[P], object]]] = {}
        self._loader: Loader = ThreadPoolExecutor(1, thread_name) if loader is None else loader
        self._stopped = False

    # -- which partitions ------------------------------------------------------------------------------------

    def owner_at(self, number: int) -> P | ErrorCode:
        """The partition, or why this broker does not own it now."""
        owned = self._owned.get(number)
        if owned is not None:
            return owned
        with self._lock:
            owned = self._owned.get(number)  # it may have been loaded just now
            if owned is not None:
                return owned
            if self._stopped:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            if number in self._loading:
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return ErrorCode.NOT_COORDINATOR

    def when_loaded(self, number: int, act: Callable[[P], object]) -> None:
        """Act on the partition: now, or if it is being loaded after that. Does nothing if it is not owned."""
        owned = self._owned.get(number)
        if owned is not None:
            act(owned)
            return
        with self._lock:
            owned = self._owned.get(number)  # it may have been loaded just now
            if owned is None and number in self._loading:
                self._after_load.setdefault(number, []).append(act)
        if owned is not None:
            act(owned)

    def owned(self) -> list[P]:
        """All partitions that are loaded."""
        with self._lock:
            return list(self._owned.values())

    @property
    def is_loading(self) -> bool:
        """Whether a partition is being loaded."""
        return bool(self._loading)

    # -- leadership ------------------------------------------------------------------------------------------

    def roles_changed(self, changes: Sequence[RoleChange]) -> None:
        """Take note of changed roles. A listener of the replica manager: the work is left to a thread.

        As in Kafka, a partition whose replica is only stopped stays owned, for it is still led.
        """
        for change in changes:
            if change.partition.topic == self._topic.topic and change.new is not Role.STOPPED:
                self._role_changed(change)

    def _role_changed(self, change: RoleChange) -> None:
        number, epoch = change.partition.partition, change.leader_epoch
        leads = change.new is Role.LEADER
        replaced = None
        with self._lock:
            if self._stopped:
                return
            if leads and epoch >= self._epochs.get(number, epoch):
                held = self._owned.get(number)
                if held is not None and self._topic.reloads and epoch > held.leader_epoch:
                    replaced = self._owned.pop(number)
                if held is None or replaced is not None:
                    self._loading[number] = epoch
                else:
                    held.leader_epoch = epoch
            if change.new is Role.DELETED:
                # If the topic is created again, its epochs start anew.
                self._epochs.pop(number, None)
            else:
                self._epochs[number] = max(epoch, self._epochs.get(number, epoch))
            # With the lock held: the loader is not shut down before it is free.
            if replaced is not None:
                self._loader.submit(replaced.close)
            self._loader.submit(self._load if leads else self._unload, number, epoch)

    def _load(self, number: int, epoch: int) -> None:
        with self._lock:
            if number in self._owned:
                return  # led in a newer epoch without a break: the partition stays as it is
        start = None
        begun_s = self._clock_s()
        if self._wants(number, epoch):
            try:
                start = self._topic.read(number, epoch, lambda: self._wants(number, epoch))
            except Exception:
                _log.exception("%s-%d is not loaded", self._topic.topic, number)
        if start is None:
            self._take(number, epoch, None)
            return
        finish = partial(self._finish, number, epoch, start, begun_s)
        if self._topic.when_replicated(number, partial(self._submit, finish)):
            finish()

    def _submit(self, call: Callable[[], object]) -> None:
        """Let the loader run the call, unless it was stopped."""
        with self._lock:
            if not self._stopped:
                self._loader.submit(call)

    def _finish(self, number: int, epoch: int, start: Callable[[], P], begun_s: float) -> None:
        """All that was loaded is replicated: own the partition."""
        if not self._wants(number, epoch):
            self._take(number, epoch, None)
            return
        partition = None
        try:
            # Nobody knows the partition yet. Its timers may fire before, which does no harm.
            partition = start()
        except Exception:
            _log.exception("%s-%d is not loaded", self._topic.topic, number)
        self.load_times.add((self._clock_s() - begun_s) * 1000)
        self._take(number, epoch, partition)

    def _take(self, number: int, epoch: int, partition: P | None) -> None:
        """End the load of an epoch: own what was loaded, if it is still wanted, and do what waited for it."""
        waiting: list[Callable[[P], object]] = []
        with self._lock:
            if self._loading.get(number) == epoch:
                del self._loading[number]
                waiting = self._after_load.pop(number, [])
            wanted = self._wants(number, epoch)
            if wanted and partition is not None:
                self._owned[number] = partition
        if partition is None:
            return
        if not wanted:
            partition.close()
            return
        self._report(partition, "loaded %d %s of %s-%d in epoch %d", number, epoch)
        for act in waiting:
            act(partition)

    def _wants(self, number: int, epoch: int) -> bool:
        """Whether nothing newer than this epoch is known of the partition."""
        return not self._stopped and self._epochs.get(number, epoch) <= epoch

    def _unload(self, number: int, epoch: int) -> None:
        with self._lock:
            if epoch < 0 or self._loading.get(number, epoch) <= epoch:
                self._loading.pop(number, None)
                self._after_load.pop(number, None)
            held = self._owned.get(number)
            if held is None or -1 < epoch < held.leader_epoch:
                return
            del self._owned[number]
        self._report(held, "forgot %d %s of %s-%d, which is led elsewhere", number)
        held.close()

    def _report(self, partition: P, message: str, *numbers: int) -> None:
        # Most of the 50 partitions of a small cluster hold nothing: they are not worth a line.
        level = logging.INFO if len(partition) else logging.DEBUG
        _log.log(level, message, len(partition), self._topic.what, self._topic.topic, *numbers)

    def stop(self) -> None:
        """Forget all partitions; requests are answered COORDINATOR_NOT_AVAILABLE from now on."""
        with self._lock:
            self._stopped = True
            held = list(self._owned.values())
            self._owned.clear()
            self._loading.clear()
            self._after_load.clear()
        self._loader.shutdown(cancel_futures=True)
        for partition in held:
            partition.close()
