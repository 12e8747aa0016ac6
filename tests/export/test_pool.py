"""Processes that work through tasks: in order, one at a time each, and no death or error goes unnoticed."""

from __future__ import annotations

import multiprocessing
import os
import time

import pytest

from klog.export.pool import Advanced, Done, WorkerDiedError, run
from klog.formats.errors import KlogError, StorageError
from tests.export import pool_work


@pytest.fixture(autouse=True)
def nobody_left():
    yield
    assert multiprocessing.active_children() == []


def test_every_task_is_done_once_and_its_progress_told() -> None:
    events = list(run(pool_work.square, [5, 4, 3, 2, 1], 2))
    assert sorted(event.result for event in events if isinstance(event, Done)) == [1, 4, 9, 16, 25]
    assert sum(event.size_bytes for event in events if isinstance(event, Advanced)) == 15


def test_no_task_is_done_here_and_all_processes_take_part() -> None:
    workers = {event.result for event in run(pool_work.who, list(range(8)), 2) if isinstance(event, Done)}
    assert len(workers) == 2
    assert os.getpid() not in workers


def test_there_are_no_more_processes_than_tasks() -> None:
    assert len(list(run(pool_work.who, [1], 8))) == 1


def test_an_error_keeps_its_place_and_cure() -> None:
    with pytest.raises(StorageError) as caught:
        list(run(pool_work.refuse_three, [1, 2, 3, 4], 2))
    assert str(caught.value) == "three at byte 7: cannot be read (leave it)"


def test_a_process_that_is_killed_is_an_error_that_names_its_task_and_the_cure() -> None:
    with pytest.raises(WorkerDiedError) as caught:
        list(run(pool_work.die_at_three, [1, 2, 3, 4], 2, describe=lambda task: f"task {task}"))
    assert "killed by SIGKILL (often the kernel, out of memory) while it was at task 3" in str(caught.value)
    assert "--resume" in str(caught.value)


def test_a_process_that_ends_is_an_error_that_tells_its_status() -> None:
    with pytest.raises(WorkerDiedError, match="ended with status 4"):
        list(run(pool_work.exit_at_three, [3], 1))


def test_running_out_of_memory_says_what_to_do() -> None:
    with pytest.raises(KlogError, match="fewer --jobs"):
        list(run(pool_work.run_out_of_memory, [1], 1))


def test_tasks_that_are_given_up_end_at_once() -> None:
    started = time.monotonic()
    events = run(pool_work.wait_a_minute, [1, 2], 2)
    assert next(events) == Advanced(1)
    events.close()
    assert time.monotonic() - started < 20
