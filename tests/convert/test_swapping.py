"""A conversion that is killed at any step loses nothing, whatever goes on with the directory afterwards."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from klog.convert import run_convert as running
from klog.convert.converting import convert
from klog.convert.finishing import PartitionOutcome, finish, settle
from klog.convert.options import ConvertOptions
from klog.convert.partition_state import PartitionState
from klog.convert.run_convert import do_task, pool, run_convert
from klog.convert.tasks import ConvertTask, TaskResult
from klog.formats.compression import ZSTD
from klog.formats.errors import StorageError
from klog.replicas.stages import OnBytes
from klog.storage.repair.index_reports import RebuildOptions
from klog.storage.repair.problem import Severity
from klog.storage.repair.recovery import plan_recovery
from klog.storage.repair.recovery_plan import RecoverySettings
from klog.storage.repair.recovery_run import run_recovery
from klog.storage.repair.segment_scan import IndexSettings
from klog.storage.repair.verify import scope_of, verify
from tests.convert.logs import contents, converted, log_bytes, planned, records_of, with_codec
from tests.peers import KafkaPeer
from tests.peers.load_server import LoadServer
from tests.storage.cleaner.logs import NOW_MS, random_log
from tests.storage.cleaner.test_swap import InterruptedChanges, KilledError

OPTIONS = with_codec(ZSTD, batch_bytes=600, segment_bytes=3000)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    directory = tmp_path / "original" / "events-0"
    random_log(directory, 5)
    assert len(list(directory.glob("*.log"))) > 3
    return directory


def prepared(log: Path, work: Path) -> tuple[Path, list[TaskResult]]:
    """A copy of the log whose tasks are done, so that only the swap is missing."""
    directory = work / "events-0"
    shutil.copytree(log, directory)
    plan = planned(directory, OPTIONS)
    assert len(plan.tasks) > 1
    assert PartitionState(str(directory)).begin(plan) == {}
    results = [do_task(task, lambda _: None, verifies=False) for task in plan.tasks]
    return directory, [result for result in results if isinstance(result, TaskResult)]


def interruptions(log: Path, work: Path) -> Iterator[Path]:
    """The directory after a kill at each step of the end of a conversion."""
    for steps in count():
        directory, results = prepared(log, work / str(steps))
        remains = work / f"remains-{steps}" / "events-0"
        remains.parent.mkdir()
        try:
            finish(planned(directory, OPTIONS), results, InterruptedChanges(steps, directory, remains))
        except KilledError:
            yield remains
            continue
        assert steps > 10
        return


def recover(directory: Path, quarantine: Path) -> None:
    """What a broker does with the directory after an unclean stop."""
    settings = RecoverySettings(NOW_MS, IndexSettings())
    run_recovery(plan_recovery(str(directory), settings), settings, str(quarantine))


def test_verify_names_the_conversion_that_goes_on(log: Path, tmp_path: Path) -> None:
    directory, _ = prepared(log, tmp_path)
    options = RebuildOptions(NOW_MS, IndexSettings(), check=True)
    found = verify(scope_of([str(directory)]), options, on_bytes=lambda _: None)
    # The log itself is a generated one, in which there are problems, too.
    problems = [problem for problem in found if not (log / Path(problem.file).name).exists()]
    problems = [problem for problem in problems if Path(problem.file).exists()]
    assert {problem.severity for problem in problems} == {Severity.NOTE}
    assert {problem.cure for problem in problems} == {"klog convert with the same options goes on with it"}
    states = {Path(problem.file).name for problem in problems}
    assert "klog-convert.json" in states
    assert any(name.endswith(".log.cleaned") for name in states)


def test_klog_goes_on_after_a_kill_at_any_step(log: Path, tmp_path: Path) -> None:
    before = records_of(log)
    whole = tmp_path / "whole" / "events-0"
    shutil.copytree(log, whole)
    converted(whole, OPTIONS)
    assert records_of(whole) == before
    wanted = contents(whole)
    for remains in interruptions(log, tmp_path):
        settle(str(remains))
        if (remains / "klog-convert.json").exists():
            converted(remains, OPTIONS)
        assert contents(remains) == wanted


def test_recovery_goes_on_after_a_kill_at_any_step(log: Path, tmp_path: Path) -> None:
    before = records_of(log)
    for remains in interruptions(log, tmp_path):
        recover(remains, tmp_path / "quarantine" / remains.parent.name)
        assert records_of(remains) == before


def test_a_swap_that_was_completed_by_a_broker_is_not_repeated(log: Path, tmp_path: Path) -> None:
    directory, results = prepared(log, tmp_path)
    remains = tmp_path / "remains"
    with pytest.raises(KilledError):
        finish(planned(directory, OPTIONS), results, InterruptedChanges(8, directory, remains))
    recover(remains, tmp_path / "quarantine")
    recovered = {name: data for name, data in contents(remains).items() if not name.startswith("klog-")}
    settle(str(remains))
    assert contents(remains) == recovered


@pytest.mark.kafka
def test_kafka_goes_on_after_a_kill_at_any_step(log: Path, tmp_path: Path, kafka3: KafkaPeer) -> None:
    before = records_of(log)
    with LoadServer(kafka3, tmp_path / "loading.log") as server:
        for remains in interruptions(log, tmp_path):
            loaded = server.load(remains, clean=True)
            assert loaded.refusal == ""
            assert loaded.log_end_offset == before[-1]["offset"] + 1
            for left in remains.glob("*.deleted"):
                left.unlink()
            assert records_of(remains) == before


def test_done_tasks_are_not_repeated(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "events-0"
    shutil.copytree(log, directory)
    whole = tmp_path / "whole" / "events-0"
    shutil.copytree(log, whole)
    converted(whole, OPTIONS)
    begun: list[int] = []

    def convert_two(task: ConvertTask, on_bytes: OnBytes) -> TaskResult:
        begun.append(task.number)
        if len(begun) == 3:
            raise KilledError
        return convert(task, on_bytes)

    monkeypatch.setattr(running, "convert", convert_two)
    with pytest.raises(KilledError):
        list(run_convert([planned(directory, OPTIONS)], pool(1)))
    assert begun == [0, 1, 2]
    ((_, outcome),) = run_convert([planned(directory, OPTIONS)], pool(1))
    assert isinstance(outcome, PartitionOutcome)
    assert begun[3:] == list(range(2, len(outcome.plan.tasks)))
    assert contents(directory) == contents(whole)


def test_other_options_begin_anew(log: Path, tmp_path: Path) -> None:
    directory, _ = prepared(log, tmp_path)
    other = with_codec(None, batch_bytes=0)
    assert PartitionState(str(directory)).begin(planned(directory, other)) == {}
    assert not list(directory.glob("*.cleaned"))
    assert records_of(directory) == records_of(log)


def test_a_log_that_has_changed_begins_anew(log: Path, tmp_path: Path) -> None:
    directory, _ = prepared(log, tmp_path)
    first = min(directory.glob("*.log"))
    os.utime(first, (1, 1))
    assert PartitionState(str(directory)).begin(planned(directory, OPTIONS)) == {}


def test_a_failed_task_leaves_the_partition_as_it_was(log: Path, tmp_path: Path) -> None:
    directory = tmp_path / "events-0"
    shutil.copytree(log, directory)
    damaged = sorted(directory.glob("*.log"))[2]
    data = bytearray(damaged.read_bytes())
    assert len(data) > 100
    data[90] ^= 1
    damaged.write_bytes(data)
    before = contents(directory)
    options = with_codec(ZSTD, batch_bytes=0)
    ((_, error),) = run_convert([planned(directory, options)], pool(1))
    assert isinstance(error, Exception)
    assert f"{damaged} at byte 0: batch fails its checksum" in str(error)
    assert contents(directory) == before


def test_a_full_disk_leaves_the_partition_as_it_was(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "events-0"
    shutil.copytree(log, directory)
    before = contents(directory)
    real = os.fsync
    chance = random.Random(3)

    def full(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(".cleaned") and chance.random() < 0.5:
            raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    plan = planned(directory, ConvertOptions(codec=ZSTD, converts_active=True, segment_bytes=2000))
    ((_, error),) = run_convert([plan], pool(1))
    assert isinstance(error, StorageError)
    assert "No space left on device" in str(error)
    assert contents(directory) == before
    assert log_bytes(directory) == log_bytes(log)
