"""Stages of jobs: tasks on splits, which a runner does in other processes, here or on Spark's executors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from klog.jobs.processes import Advanced, Done, Work, run_tasks
from klog.replicas.splits import Split

OnBytes = Callable[[int], None]

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Stage(Generic[TaskT, ResultT]):
    """One stage of a job: tasks, the longest first, and how to do them. `split_of` gives the split of a task;
    `what` is exporting, verifying or converting."""

    work: Work[TaskT, ResultT]
    tasks: Sequence[TaskT]
    split_of: Callable[[TaskT], Split]
    what: str


class Runner(Protocol):
    """Runs tasks in other processes."""

    @property
    def cores(self) -> int:
        """How many tasks run at once."""

    def __call__(self, stage: Stage[TaskT, ResultT], on_bytes: OnBytes) -> Iterator[ResultT]:
        """Yield the results of all tasks, in any order. Raises `KlogError` if a task fails.

        `on_bytes` is told how many bytes more are done.
        """


@dataclass(frozen=True, slots=True)
class Pool:
    """The runner for one machine: tasks of less than `small_bytes` in all run in this process, because
    starting others takes longer; `describe` and `cure` are for errors. See `run_tasks`.
    """

    cores: int
    small_bytes: int
    describe: Callable[[Split], str]
    cure: str
    start_method: str | None = "spawn"

    def __call__(self, stage: Stage[TaskT, ResultT], on_bytes: OnBytes) -> Iterator[ResultT]:
        """Yield the results of the tasks as they become ready."""
        if sum(stage.split_of(task).length_bytes for task in stage.tasks) < self.small_bytes:
            for task in stage.tasks:
                yield stage.work(task, on_bytes)
            return
        events = run_tasks(
            stage.work,
            stage.tasks,
            self.cores,
            describe=lambda task: self.describe(stage.split_of(task)),
            cure=self.cure,
            start_method=self.start_method,
        )
        for event in events:
            match event:
                case Advanced():
                    on_bytes(event.size_bytes)
                case Done():
                    yield event.result
