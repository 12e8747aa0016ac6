"""Runs a conversion: plans, tasks, verification and swaps, and what each partition gained.

The tasks run in a pool of processes on this machine, or on Spark's executors. A partition is swapped in as
soon as its tasks are done. If a task fails, its partition stays as it was, and the others go on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from klog.convert.converting import convert
from klog.convert.finishing import PartitionOutcome, finish
from klog.convert.partition_plan import PartitionPlan
from klog.convert.partition_state import PartitionState
from klog.convert.pieces import LEAST_PIECE_BYTES, Merging, divided, number_after, piece_bytes
from klog.convert.tasks import ConvertTask, Failure, TaskResult
from klog.convert.verifying import verify
from klog.formats.errors import KlogError
from klog.jobs.processes import Work
from klog.replicas.splits import Split
from klog.replicas.stages import OnBytes, Pool, Runner, Stage

SMALL_BYTES: Final = 16 << 20
"""Less than this is converted in this process, since starting others takes longer."""

_CURE: Final = "what is done is kept: run the command again, with fewer --jobs if memory was short"


def do_task(task: ConvertTask, on_bytes: OnBytes, *, verifies: bool) -> TaskResult | Failure:
    """Convert and verify one task, in any process, and commit it unless it is a piece of another one."""
    try:
        result = convert(task, on_bytes)
        if verifies:
            result = replace(result, records_compared=verify(task, result, on_bytes))
        if task.whole is None:
            PartitionState(task.target).commit(result)
    except KlogError as error:
        return Failure(task.number, error)
    return result


def pool(processes: int, small_bytes: int = SMALL_BYTES) -> Pool:
    """The runner for one machine: at most `processes`; little work is done in this process."""
    # By a fork on Linux: fresh interpreters import for a third of a second on each core, in which a core
    # converts 100 MiB. This process has no threads but that of its progress bar.
    small_bytes = small_bytes if processes > 1 else sys.maxsize
    return Pool(processes, small_bytes, _described, _CURE, start_method=None)


def _described(split: Split) -> str:
    return f"{split.file} from byte {split.start_bytes} on"


def pending_bytes(plans: Sequence[PartitionPlan], *, verifies: bool) -> int:
    """The bytes that a conversion will report, if it does all of it."""
    return sum(plan.convertible_bytes for plan in plans) * (2 if verifies else 1)


def run_convert(
    plans: Sequence[PartitionPlan],
    runner: Runner,
    *,
    verifies: bool = False,
    on_bytes: OnBytes = lambda _: None,
    least_piece_bytes: int = LEAST_PIECE_BYTES,
) -> Iterator[tuple[PartitionPlan, PartitionOutcome | KlogError]]:
    """Convert the partitions; yields each as soon as it is finished or has failed.

    Numbers of tasks are unique. A task is divided among the runner's cores into pieces of `least_piece_bytes`
    or more. Raises `WorkerDiedError`; what is done is kept then, and when the iteration
    is abandoned.
    """
    owners: dict[int, PartitionPlan] = {}
    results: dict[str, list[TaskResult | Failure]] = {}
    pending: list[ConvertTask] = []
    for plan in plans:
        try:
            done = PartitionState(plan.target).begin(plan)
        except KlogError as error:
            yield plan, error
            continue
        if verifies:
            done = {number: one for number, one in done.items() if one.records_compared is not None}
        results[plan.target] = list(done.values())
        for task in plan.tasks:
            owners[task.number] = plan
            if task.number in done:
                on_bytes(task.size_bytes * (2 if verifies else 1))
            else:
                pending.append(task)
        if len(done) == len(plan.tasks):
            yield plan, _finished(plan, results[plan.target])
    work = partial(do_task, verifies=verifies)
    for result in _results(pending, runner, work, on_bytes, least_piece_bytes):
        plan = owners[result.number]
        results[plan.target].append(result)
        if len(results[plan.target]) == len(plan.tasks):
            yield plan, _finished(plan, results[plan.target])


def _results(
    tasks: Sequence[ConvertTask],
    runner: Runner,
    work: Work[ConvertTask, TaskResult | Failure],
    on_bytes: OnBytes,
    least_piece_bytes: int,
) -> Iterator[TaskResult | Failure]:
    """The results of all tasks. Large ones are divided, so that the cores share them."""
    numbers = number_after(tasks)
    size_bytes = piece_bytes(tasks, runner.cores, least_piece_bytes)
    pieces: list[ConvertTask] = []
    merging: dict[int, Merging] = {}
    for task in tasks:
        parts = [task] if runner.cores == 1 else divided(task, size_bytes, numbers)
        pieces += parts
        if len(parts) > 1:
            merged = Merging(task, parts)
            merging |= {part.number: merged for part in parts}
    try:
        for result in runner(Stage(work, pieces, lambda task: task.split, "converting"), on_bytes):
            merged_in = merging.get(result.number)
            whole = result if merged_in is None else merged_in.add(result)
            if whole is not None:
                yield whole
    finally:
        for merged in merging.values():
            merged.close()


def _finished(plan: PartitionPlan, results: Sequence[TaskResult | Failure]) -> PartitionOutcome | KlogError:
    failures = [one for one in results if isinstance(one, Failure)]
    try:
        if failures:
            PartitionState(plan.target).discard()
            return min(failures, key=lambda one: one.number).error
        return finish(plan, [one for one in results if isinstance(one, TaskResult)])
    except KlogError as error:
        return error
