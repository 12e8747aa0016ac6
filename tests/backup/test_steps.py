"""Runs and prunes at once, each killed at any step: no backup that is there ever lacks what it needs.

Each access to the store is a step. A schedule, which follows from its seed, says whose turn it is and when
one is killed, and lets time pass. Time is the schedule's own.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from klog.backup.catalogue import Summariser
from klog.backup.directories import LogDirectories
from klog.backup.joining import JoinRules
from klog.backup.model import RepositoryInfo
from klog.backup.prune import Rules, plan_prune, prune
from klog.backup.repository import Repository, open_or_create
from klog.backup.run import RunOptions, run_backup
from klog.backup.store import UNFINISHED, Store
from klog.backup.verify import VerifyOptions, verify
from klog.export.outputs import FileStatus, LocalOutput, PendingFile
from klog.formats.names import TopicPartition
from tests.backup.repositories import LATER_MS, log_files, restored
from tests.export.logs import Log, batch

SEEDS = int(os.environ.get("KLOG_TEST_STEPS", "2"))
ROUNDS = 8
HOUR_MS = 3_600_000
GRACE_MS = 12 * HOUR_MS
MOST_STEP_MS = 20_000
KILLED_SHARE = 0.5
STEPS = 40
JOINED = JoinRules(fewest=3, most=5, limits_bytes=(1 << 20,))
ORDERS = TopicPartition("orders", 0)


class KilledError(BaseException):
    """The process ends here."""


class Schedule:
    """Lets one of several threads take a step at a time."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = time.time_ns() // 1_000_000 + LATER_MS
        self.killed = 0
        self._changed = threading.Condition()
        self._steps_left: dict[int, int] = {}
        self._next = -1
        self._own = threading.local()

    def play(self, actors: Sequence[Callable[[], object]]) -> None:
        """Run all actors until they have ended or were killed. Raises what they raise."""
        failed: list[BaseException] = []

        def act(number: int, work: Callable[[], object]) -> None:
            self._own.number = number
            try:
                with self._changed:
                    self._wait()
                work()
            except KilledError:
                self.killed += 1
            except BaseException as error:
                failed.append(error)
            with self._changed:
                del self._steps_left[number]
                self._choose()

        self._steps_left = {
            number: self.random.randrange(STEPS) if self.random.random() < KILLED_SHARE else 1 << 30
            for number in range(len(actors))
        }
        self._next = self.random.choice(list(self._steps_left))
        threads = [threading.Thread(target=act, args=each, daemon=True) for each in enumerate(actors)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        for error in failed:
            raise error

    def step(self) -> None:
        """Let the others go on, and wait for the next turn. Raises `KilledError`."""
        number = getattr(self._own, "number", None)
        if number is None:
            return  # the test itself
        with self._changed:
            self._choose()
            self._wait()
            self.now_ms += self.random.randrange(MOST_STEP_MS)
            self._steps_left[number] -= 1
            if self._steps_left[number] < 0:
                raise KilledError

    def _choose(self) -> None:
        if self._steps_left:
            self._next = self.random.choice(list(self._steps_left))
            self._changed.notify_all()

    def _wait(self) -> None:
        self._changed.wait_for(lambda: self._next == self._own.number)


class SteppedOutput(LocalOutput):
    """A store each of whose accesses is a step; files have the schedule's time."""

    def __init__(self, root: str, schedule: Schedule) -> None:
        super().__init__(root)
        self._schedule = schedule

    def commit_all(self, files: Sequence[tuple[PendingFile, str]]) -> None:
        for pending, name in files:  # a kill may come between two
            self._schedule.step()
            super().commit_all([(pending, name)])
            self._stamp(name)

    def create(self) -> PendingFile:
        pending = super().create()
        commit = pending.commit

        def commit_in_a_step(name: str) -> None:
            self._schedule.step()
            commit(name)
            self._stamp(name)

        pending.commit = commit_in_a_step  # type: ignore[method-assign]
        return pending

    def _stamp(self, name: str) -> None:
        os.utime(self.path_of(name), ns=(0, self._schedule.now_ms * 1_000_000))

    def open(self, name: str) -> BinaryIO:
        self._schedule.step()
        return super().open(name)

    def status(self, name: str) -> FileStatus | None:
        self._schedule.step()
        return super().status(name)

    def files(self, below: str = "") -> dict[str, FileStatus]:
        self._schedule.step()
        found = super().files(below)
        now = {name for name in found if name.startswith(UNFINISHED)}  # their time is not the schedule's
        return {**found, **{name: FileStatus(found[name].size_bytes, self._schedule.now_ms) for name in now}}

    def remove(self, name: str) -> None:
        self._schedule.step()
        super().remove(name)


class World:
    """A repository, a log that changes between rounds, and what it had at each run."""

    def __init__(self, directory: Path, schedule: Schedule) -> None:
        self._place = directory / "repository"
        self._logs = directory / "logs"
        self._schedule = schedule
        self._log = Log(self._logs / "orders-0")
        self._offset = 0
        self._runs = 0
        self.contents: dict[str, dict[str, bytes]] = {}

    def repository(self) -> Repository:
        store = Store(SteppedOutput(str(self._place), self._schedule))
        return open_or_create(store, RepositoryInfo("test", compression="none"))

    def change(self) -> None:
        chance = self._schedule.random
        for _ in range(chance.randint(1, 3)):
            self._log.append(batch(self._offset, 5))
            self._offset += 5
        self._log.write()
        if chance.random() < 0.3:
            self._log.roll()
        if len(self._log.segments) > 2 and chance.random() < 0.3:  # retention
            [first, *_] = sorted((self._logs / "orders-0").glob("*.log"))
            first.unlink()
            self._log.segments.pop(0)
        self._schedule.now_ms += chance.choice((0, 10_000, HOUR_MS, 5 * HOUR_MS, GRACE_MS))

    def run(self) -> None:
        self._runs += 1
        suffix = f"{self._runs:04d}"
        self.contents[suffix] = log_files(self._logs / "orders-0")
        repository = self.repository()
        options = RunOptions(suffix, "1.0", joining=JOINED, now_ms=lambda: self._schedule.now_ms)
        run_backup(repository, LogDirectories([str(self._logs)]), options)
        Summariser(repository, 3, settled_ms=0).after_run()

    def prune(self, rules: Rules) -> None:
        repository = self.repository()
        plan = plan_prune(repository, rules, self._schedule.now_ms, GRACE_MS)
        prune(repository, plan, lambda _name: None)

    def check(self, kept: set[str]) -> None:
        repository = self.repository()
        ids = repository.ids()
        assert kept <= set(ids)
        assert not verify(repository, ids, VerifyOptions()).findings
        for identifier in ids:
            manifest = repository.manifest(identifier)
            state = repository.state(ORDERS, repository.partitions(manifest)[ORDERS])
            assert restored(repository, state) == self.contents[identifier.rpartition("-")[2]]


def play(directory: Path, seed: int) -> Schedule:
    """Rounds of runs and prunes at once."""
    schedule = Schedule(seed)
    world = World(directory, schedule)
    rules = Rules(last=1)
    world.change()
    world.run()
    for _ in range(ROUNDS):
        world.change()
        kept = set(world.repository().ids()[-1:])
        actors: list[Callable[[], Any]] = [world.run, lambda: world.prune(rules)]
        if schedule.random.random() < 0.5:
            actors.append(world.run)
        schedule.play(actors)
        world.check(newest_of(kept, world))
    return schedule


def newest_of(kept: set[str], world: World) -> set[str]:
    """Those of some backups that are still the newest."""
    return kept & set(sorted(kept | set(world.repository().ids()))[-1:])


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_that_a_backup_needs_is_lost(tmp_path: Path, seed: int) -> None:
    schedule = play(tmp_path, seed)
    assert schedule.killed
