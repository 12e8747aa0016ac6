"""Each worker does one task at a time; every death and every error is reported, and Ctrl-C ends all
workers.
"""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from klog.formats.errors import KlogError, StorageError
from klog.jobs.cores import available_cores, own_cores
from klog.jobs.processes import Advanced, Done, WorkerDiedError, map_in_order, run_tasks
from tests.storage import process_tasks
from tests.waiting import eventually

CURE = "run with fewer --jobs, --resume"
SCRIPT = """
import os, sys, time
from klog.storage.files.files import write_atomically
from klog.jobs.processes import map_in_order

def slow_parts():
    yield b"half"
    os.mkdir(sys.argv[1] + ".started")
    for _ in range(6000):  # a signal that comes just before one long sleep would be seen at its end
        time.sleep(0.01)

def write(path, advance):
    write_atomically(path, slow_parts())

try:
    list(map_in_order(write, [sys.argv[1]], 2))
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.fixture(autouse=True)
def nobody_left():
    yield
    assert multiprocessing.active_children() == []


def test_every_task_is_done_once_and_its_progress_is_reported() -> None:
    events = list(run_tasks(process_tasks.square, [5, 4, 3, 2, 1], 2, cure=CURE))
    assert sorted(event.result for event in events if isinstance(event, Done)) == [1, 4, 9, 16, 25]
    assert sum(event.size_bytes for event in events if isinstance(event, Advanced)) == 15


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_a_worker_process_has_one_core_of_its_own(start_method: str) -> None:
    events = run_tasks(process_tasks.cores_of_its_own, [1, 2], 2, cure=CURE, start_method=start_method)
    assert {event.result for event in events if isinstance(event, Done)} == {1}
    assert own_cores() == available_cores()


def test_no_task_is_done_here_and_all_processes_take_part() -> None:
    events = run_tasks(process_tasks.who, list(range(8)), 2, cure=CURE)
    workers = {event.result for event in events if isinstance(event, Done)}
    assert len(workers) == 2
    assert os.getpid() not in workers


def test_there_are_no_more_processes_than_tasks() -> None:
    assert len(list(run_tasks(process_tasks.who, [1], 8, cure=CURE))) == 1


def test_an_error_keeps_its_position_and_cure() -> None:
    with pytest.raises(StorageError) as caught:
        list(run_tasks(process_tasks.refuse_three, [1, 2, 3, 4], 2, cure=CURE))
    assert str(caught.value) == "three at byte 7: cannot be read (leave it)"


def test_a_process_that_is_killed_is_an_error_that_names_its_task_and_the_cure() -> None:
    with pytest.raises(WorkerDiedError) as caught:
        list(
            run_tasks(
                process_tasks.die_at_three, [1, 2, 3, 4], 2, describe=lambda task: f"task {task}", cure=CURE
            )
        )
    assert "killed by SIGKILL (often the kernel, out of memory) while it was at task 3" in str(caught.value)
    assert "--resume" in str(caught.value)


def test_a_process_that_ends_is_an_error_with_its_status() -> None:
    with pytest.raises(WorkerDiedError, match="ended with status 4"):
        list(run_tasks(process_tasks.exit_at_three, [3], 1, cure=CURE))


def test_running_out_of_memory_says_what_to_do() -> None:
    with pytest.raises(KlogError, match="fewer --jobs"):
        list(run_tasks(process_tasks.run_out_of_memory, [1], 1, cure=CURE))


def test_tasks_that_are_given_up_end_at_once() -> None:
    started = time.monotonic()
    events = run_tasks(process_tasks.wait_a_minute, [1, 2], 2, cure=CURE)
    assert next(events) == Advanced(process_tasks.REPORTED_BYTES)
    events.close()
    assert time.monotonic() - started < 20


def test_a_worker_without_a_task_may_die(tmp_path: Path) -> None:
    path = tmp_path / "continue"
    results = []
    for event in run_tasks(process_tasks.wait_for, ["", str(path)], 2, cure=CURE):
        assert isinstance(event, Done)
        results.append(event.result)
        if not path.exists():
            os.kill(event.result, signal.SIGKILL)
            path.touch()
    assert len(set(results)) == 2


def test_results_can_come_in_the_order_of_the_tasks() -> None:
    tasks = [5, 4, 3, 2, 1, 0]
    advanced: list[int] = []
    assert list(map_in_order(process_tasks.square_slowly, tasks, 3, advanced.append)) == [25, 16, 9, 4, 1, 0]
    assert sum(advanced) == sum(tasks)


def test_progress_is_reported_in_large_steps_and_in_full() -> None:
    steps = 1 << 10
    events = list(run_tasks(process_tasks.advance_in_steps, [steps], 2, cure=CURE))
    sizes = [event.size_bytes for event in events if isinstance(event, Advanced)]
    assert sum(sizes) == steps * process_tasks.STEP_BYTES
    assert 10 < len(sizes) < 20


def test_a_report_of_nothing_arrives_at_once() -> None:
    events = run_tasks(process_tasks.advance_in_steps_and_wait, [3], 1, cure=CURE)
    assert next(events) == Advanced(3 * process_tasks.STEP_BYTES)
    events.close()


def test_an_interrupt_ends_workers_quietly_and_leaves_no_half_written_file(tmp_path: Path) -> None:
    target = tmp_path / "x.index"
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(target)], stderr=subprocess.PIPE, start_new_session=True
    )
    started = tmp_path / "x.index.started"
    eventually(lambda: started.exists() or process.poll() is not None)
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, b"")
    assert list(tmp_path.iterdir()) == [started]


@pytest.fixture
def signal_seen() -> Iterator[Callable[[], None]]:
    """Waits until the interpreter has noticed a signal, in whatever thread."""
    noticed, notice = os.pipe()
    os.set_blocking(notice, False)
    before = signal.set_wakeup_fd(notice)

    def seen() -> None:
        assert select.select([noticed], [], [], 60)[0], "no thread has received the signal"

    try:
        yield seen
    finally:
        signal.set_wakeup_fd(before)
        os.close(noticed)
        os.close(notice)


def test_an_interrupt_that_another_thread_receives_waits_until_a_worker_has_started(
    monkeypatch: pytest.MonkeyPatch, signal_seen: Callable[[], None]
) -> None:
    process_class = multiprocessing.get_context("spawn").Process
    start, started = process_class.start, []
    end = threading.Event()
    other = threading.Thread(target=end.wait)
    other.start()

    def interrupted(process: multiprocessing.Process) -> None:
        signal.pthread_kill(other.ident or 0, signal.SIGINT)
        signal_seen()
        start(process)
        started.append(process)

    monkeypatch.setattr(process_class, "start", interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            list(run_tasks(process_tasks.wait_for, [""], 1, cure=CURE))
    finally:
        end.set()
        other.join()
    assert len(started) == 1
