"""An export whose tasks run on Spark writes what `klog export` writes, whatever happens to its tasks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from klog.export.run_export import RunOptions, run_export
from klog.formats.errors import CorruptRecordError, KlogError, StorageError
from klog.replicas.stages import Stage
from klog.spark.job import SparkRunner
from tests import corpora
from tests.export.export_support import EVERYTHING, Unwatched, export, job_of, tree
from tests.spark.combined import Combined

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from klog.replicas.splits import Split

TRANSACTIONS = corpora.corpora("k39-txn")[0].log_dir()


class Watched(Unwatched):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.pending_bytes: list[int] = []
        self.done_bytes = 0

    def planned(self, plan, pending_bytes, what) -> None:
        self.pending_bytes.append(pending_bytes)

    def advanced(self, size_bytes) -> None:
        self.done_bytes += size_bytes


def test_spark_writes_the_same_files_and_job_state_as_a_pool_for_all_corpora(
    spark: SparkSession, combined: Combined, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    alone = export(combined.path, here, read=EVERYTHING, processes=2)
    job = job_of(combined.path, there, read=EVERYTHING)
    watcher = Watched()
    on_spark = run_export(job, RunOptions(1, verify=True), watcher, SparkRunner(spark.sparkContext))
    assert tree(there) == tree(here)
    assert on_spark.findings == ()
    assert (on_spark.rows, on_spark.lost) == (alone.rows, alone.lost)
    assert watcher.done_bytes == sum(watcher.pending_bytes)


def split_of(task: Split) -> Split:
    return task


def unwatched(size_bytes: int) -> None:
    pass


def splits() -> tuple[Split, ...]:
    from klog.export.planner import plan

    return plan(job_of(TRANSACTIONS.path, "unused").options).splits[:2]


def runner(spark: SparkSession) -> SparkRunner:
    return SparkRunner(spark.sparkContext, 1)


def fail_once(marks: str, error: Exception) -> Callable[[Split, Callable[[int], None]], int]:
    def work(split: Split, _advance: Callable[[int], None]) -> int:
        try:
            (Path(marks) / str(split.number)).touch(exist_ok=False)
        except FileExistsError:
            return split.number
        raise error

    return work


def test_a_store_that_fails_once_is_tried_again(spark: SparkSession, tmp_path: Path) -> None:
    work = fail_once(str(tmp_path), StorageError("cannot be read: try later"))
    done = runner(spark)(Stage(work, splits(), split_of, "exporting"), unwatched)
    assert sorted(done) == sorted(split.number for split in splits())


def test_an_error_that_stays_is_raised_as_it_is_and_not_tried_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    work = fail_once(str(tmp_path), CorruptRecordError("bad bytes", file="x.log", cure="mend it"))
    with pytest.raises(CorruptRecordError, match="bad bytes") as caught:
        list(runner(spark)(Stage(work, splits(), split_of, "exporting"), unwatched))
    assert (caught.value.file, caught.value.cure) == ("x.log", "mend it")


def test_a_store_that_keeps_failing_ends_the_job_with_its_error_and_what_to_do(spark: SparkSession) -> None:
    def work(split: Split, _advance: Callable[[int], None]) -> int:
        raise StorageError("cannot be written: no space", file="out.parquet")

    with pytest.raises(KlogError, match=r"out\.parquet: cannot be written: no space") as caught:
        list(runner(spark)(Stage(work, splits(), split_of, "exporting"), unwatched))
    assert "--resume" in str(caught.value)


def test_a_task_that_runs_twice_writes_the_same_files(spark: SparkSession, tmp_path: Path) -> None:
    from klog.export.job_state import begin, finish
    from klog.export.planner import plan
    from klog.export.split_export import export_split

    once, twice = tmp_path / "once", tmp_path / "twice"
    export(TRANSACTIONS.path, once)
    job = job_of(TRANSACTIONS.path, twice)
    progress = begin(job, lambda: plan(job.options))

    def work(split: Split, _advance: Callable[[int], None]):
        export_split(split, job)
        return export_split(split, job)

    results = list(runner(spark)(Stage(work, progress.pending, split_of, "exporting"), unwatched))
    finish(progress, results)
    assert tree(twice) == tree(once)


def test_tasks_on_the_pure_python_kernel_are_told_to_the_driver(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def work(split: Split, _advance: Callable[[int], None]) -> int:
        return split.number

    list(runner(spark)(Stage(work, splits(), split_of, "exporting"), unwatched))
    assert caplog.messages == []
    monkeypatch.setitem(spark.sparkContext.environment, "KLOG_PURE_PYTHON", "1")
    list(runner(spark)(Stage(work, splits(), split_of, "exporting"), unwatched))
    (line,) = caplog.messages
    assert line.startswith("2 of 2 tasks ran on klog's pure-Python kernel")
    assert "install a wheel" in line


def test_sparks_ui_names_what_a_job_does(spark: SparkSession) -> None:
    context = spark.sparkContext
    described: list[str | None] = []
    context.setJobDescription("mine")

    def work(split: Split, _advance: Callable[[int], None]) -> str | None:
        from pyspark import TaskContext

        task = TaskContext.get()
        return None if task is None else task.getLocalProperty("spark.job.description")

    described = list(SparkRunner(context, 1 << 40)(Stage(work, splits(), split_of, "verifying"), unwatched))
    assert context.getLocalProperty("spark.job.description") == "mine"
    context.setJobDescription(None)  # type: ignore[arg-type]
    assert len(described) == 2
    for text in described:
        assert text is not None
        assert text.startswith("klog: verifying 2 splits, 0.0 MiB of t-")


def test_the_benchmark_does_not_measure_workers_on_the_pure_python_kernel(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarks.spark_rounds import require_compiled_workers

    require_compiled_workers(spark)
    monkeypatch.setitem(spark.sparkContext.environment, "KLOG_PURE_PYTHON", "1")
    with pytest.raises(SystemExit, match="not measured, in a worker of Spark: klog runs on its pure-Python"):
        require_compiled_workers(spark)
