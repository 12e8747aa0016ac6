"""Moves between log directories are redirected, and asked for twice, while they run."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode
from klog.replication.log_dir_move import LogDirMove
from klog.replication.partition import Partition, ReplicaContext
from klog.replication.quota import ReplicationQuota
from klog.server.logs.log_dir_moves import LogDirMoves
from klog.storage.log.future_logs import FutureLogs
from klog.storage.log.log_map import parent_of
from klog.storage.log.scheduler import monotonic_ms
from tests.control_requests import leader_and_isr_state
from tests.storage.log.building import NOW_MS, idempotent
from tests.storage.log.managing import Managed, new_log, partition
from tests.waiting import eventually

BROKER = 1
KEY = partition(0)


class Cleaner:
    """Counts the pauses of logs."""

    def __init__(self) -> None:
        self.pauses: Counter[TopicPartition] = Counter()

    def abort_and_pause(self, key: TopicPartition) -> None:
        self.pauses[key] += 1

    def resume(self, keys: list[TopicPartition]) -> None:
        self.pauses.subtract(keys)

    def moved(self, key: TopicPartition, source: str, target: str) -> None:
        pass


class Moving:
    """A broker with one replica, in the first of three log directories."""

    offline = frozenset[TopicPartition]()

    def __init__(self, root: Path) -> None:
        self.paths = [root / name for name in "abc"]
        self.manager = Managed(*self.paths).start()
        context = ReplicaContext(BROKER, lambda: NOW_MS, lambda: {BROKER}, 30_000)
        self.replica = Partition(KEY, context, new_log(self.manager), None)
        self.replica.apply(leader_and_isr_state(0, BROKER, (BROKER,)))
        for sequence in range(0, 60, 3):
            self.replica.append(idempotent(sequence, 3), 1, NOW_MS)
        self.partitions = {KEY: self.replica}
        self.cleaner = Cleaner()
        self.moves = LogDirMoves(
            self.manager,
            self.cleaner,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            [str(path) for path in self.paths],
            ReplicationQuota(lambda: None),
            threads=1,
            backoff_ms=10,
            timer_ms=monotonic_ms,
            clock_ms=lambda: NOW_MS,
        )

    def add_listener(self, _: object) -> None: ...

    def alter(self, number: int) -> None:
        assert self.moves.alter({KEY: str(self.paths[number])}) == {KEY: ErrorCode.NONE}

    def is_in(self, number: int) -> bool:
        return parent_of(self.replica.log) == str(self.paths[number])


@pytest.fixture
def moving(tmp_path: Path) -> Iterator[Moving]:
    moving = Moving(tmp_path)
    yield moving
    moving.moves.close()
    moving.manager.stop()


class Gate:
    """Holds up the first call of a method, before or after its work, until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, where: type, name: str, *, after: bool) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        work = getattr(where, name)

        def wait() -> None:
            if not self.reached.is_set():
                self.reached.set()
                assert self.opened.wait(60)

        def gated(*args: object, **kwargs: object) -> object:
            if not after:
                wait()
            done = work(*args, **kwargs)
            if after and done is not None:
                wait()
            return done

        monkeypatch.setattr(where, name, gated)


def test_a_move_goes_on_to_another_directory_while_the_first_one_is_copied(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    copying = Gate(monkeypatch, LogDirMove, "copy", after=False)
    moving.alter(1)
    assert copying.reached.wait(60)
    moving.alter(2)
    copying.opened.set()
    eventually(lambda: moving.is_in(2))
    eventually(lambda: not moving.cleaner.pauses[KEY])


def test_a_move_begins_just_after_another_has_taken_its_place(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    promoting = Gate(monkeypatch, LogDirMove, "promote", after=True)
    moving.alter(1)
    assert promoting.reached.wait(60)
    moving.alter(2)
    promoting.opened.set()
    eventually(lambda: moving.is_in(2))
    eventually(lambda: not moving.cleaner.pauses[KEY])


def test_two_requests_at_once_make_one_future_log(moving: Moving, monkeypatch: pytest.MonkeyPatch) -> None:
    create = FutureLogs.create
    made: list[object] = []
    other = threading.Thread(target=moving.alter, args=(1,))

    def slow_create(futures: FutureLogs, *args: object) -> object:
        made.append(args)
        if len(made) == 1:
            other.start()
            other.join(0.5)  # it has to wait for this request
        return create(futures, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(FutureLogs, "create", slow_create)
    moving.alter(1)
    other.join(60)
    assert len(made) == 1
    eventually(lambda: moving.is_in(1))
