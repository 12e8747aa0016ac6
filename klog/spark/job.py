"""Runs the tasks of an export on Spark's executors.

Each task exports its splits completely, files and job state included
(`klog.export.split_export.export_split`). It returns only the results; no row goes to the JVM. If Spark runs
a task twice, after a failure or by speculation, it writes the same bytes under the same names.
`klog.export.run_export` makes manifest, verification and report on the driver.
"""

from __future__ import annotations

import logging
import os
import re
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from klog.export.options import TARGET_SPLIT_BYTES
from klog.formats.errors import KlogError, StorageError, UsageError
from klog.jobs.processes import Work
from klog.kernel.kernel import slowness
from klog.replicas.splits import Split
from klog.replicas.stages import OnBytes, Stage
from klog.spark.dividing import divide_splits
from klog.spark.worker_python import CURE, choose_python, missing_module

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.accumulators import Accumulator

_log = logging.getLogger("klog.spark")

_POLL_INTERVAL_S: Final = 0.2
_PYTHON_ERROR: Final = re.compile(
    r"(?!org\.|java\.|py4j\.|scala\.)[\w.]*(?:Error|Exception|Exit|Interrupt): "
)
SLOW_TASKS: Final = (
    "%d of %d tasks ran on klog's pure-Python kernel, which is many times slower: "
    "install a wheel of klog in the Python of the executors (docs/spark.md)"
)
_DESCRIPTION: Final = "spark.job.description"
_CURE: Final = "what is done is kept: submit it again with --resume"

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class _Failed:
    """A task failed in a way that another attempt does not help."""

    error: KlogError


@contextmanager
def started(name: str, checkout: Path | None = None) -> Iterator[SparkContext]:
    """Start Spark with the settings of spark-submit (or the environment), and stop it at the end of the
    block.

    `checkout` is the checkout that klog was found in, if it is not installed. Executors get its path; those
    of a cluster, which may not have that path, get a copy.
    """
    from pyspark import SparkConf, SparkContext

    settings = SparkConf()
    settings.setAppName(settings.get("spark.app.name", name) or name)
    settings.set("spark.ui.showConsoleProgress", "false")  # the job shows its own progress
    choose_python(settings, os.environ)
    if checkout is not None:
        paths = [str(checkout), settings.get("spark.executorEnv.PYTHONPATH", "") or ""]
        settings.set("spark.executorEnv.PYTHONPATH", os.pathsep.join(filter(None, paths)))
    with ExitStack() as stack:
        context = SparkContext.getOrCreate(settings)
        stack.callback(context.stop)
        if checkout is not None and not str(context.master).startswith("local"):
            _log.warning(
                "klog is not installed: executors get a copy without its compiled kernel, which is slow"
            )
            context.addPyFile(stack.enter_context(packed(checkout)))
        yield context


@contextmanager
def packed(checkout: Path) -> Iterator[str]:
    """The path of an archive with klog's Python modules, for `--py-files`; it is removed at the end of the
    block.

    Compiled modules cannot be imported from an archive, so the pure-Python twin of the kernel is used.
    """
    with tempfile.TemporaryDirectory(prefix="klog-") as work:
        archive = Path(work) / "klog.zip"
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as files:
            for file in sorted((checkout / "klog").rglob("*.py")):
                files.write(file, file.relative_to(checkout))
        yield str(archive)


@dataclass(frozen=True, slots=True)
class SparkRunner:
    """Runs an export's tasks on the executors of `context`; one task of Spark runs several small ones."""

    context: SparkContext
    target_bytes: int = TARGET_SPLIT_BYTES

    @property
    def cores(self) -> int:
        """The cores of all executors, as far as Spark knows."""
        return int(self.context.defaultParallelism)

    def __call__(self, stage: Stage[TaskT, ResultT], on_bytes: OnBytes) -> Iterator[ResultT]:
        """Yield the results of all tasks when Spark has finished. Raises `KlogError` if a task failed."""
        if not stage.tasks:
            return
        divided = self._divided(stage.tasks, stage.split_of)
        done_bytes, slow_tasks = self.context.accumulator(0), self.context.accumulator(0)
        table = self.context.parallelize(divided, len(divided)).mapPartitions(
            _on_executor(stage.work, done_bytes, slow_tasks)
        )
        table.setName(f"klog: {stage.what}")
        with _progress_reported(done_bytes, on_bytes), self._described(_described(stage)):
            results = _collected(table.collect)
        if slow_tasks.value:
            _log.warning(SLOW_TASKS, slow_tasks.value, len(divided))
        for result in results:
            if isinstance(result, _Failed):
                raise result.error
            yield result

    @contextmanager
    def _described(self, text: str) -> Iterator[None]:
        """Name the jobs of the block in Spark's UI."""
        before: str | None = self.context.getLocalProperty(_DESCRIPTION)
        self.context.setLocalProperty(_DESCRIPTION, text)
        try:
            yield
        finally:
            self.context.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type]

    def _divided(self, tasks: Sequence[TaskT], split_of: Callable[[TaskT], Split]) -> list[list[TaskT]]:
        """The tasks for Spark, the longest first, so that short ones run at the end."""
        by_number = {split_of(task).number: task for task in tasks}
        divided = divide_splits((split_of(task) for task in tasks), self.target_bytes, self.cores)
        divided.sort(key=lambda several: -sum(split.length_bytes for split in several))
        return [[by_number[split.number] for split in several] for several in divided]


def _described(stage: Stage[TaskT, ResultT]) -> str:
    """`klog: exporting 12 splits, 700 MiB of orders and 3 other topics`."""
    splits = [stage.split_of(task) for task in stage.tasks]
    topics = sorted({split.topic for split in splits})
    mib = sum(split.length_bytes for split in splits) / (1 << 20)
    names = topics[0] if len(topics) == 1 else f"{topics[0]} and {len(topics) - 1} more topics"
    return f"klog: {stage.what} {len(splits):,} splits, {mib:,.1f} MiB of {names}"


def _on_executor(
    work: Work[TaskT, ResultT], done_bytes: Accumulator[int], slow_tasks: Accumulator[int]
) -> Callable[[Iterable[list[TaskT]]], Iterator[ResultT | _Failed]]:
    def run(divided: Iterable[list[TaskT]]) -> Iterator[ResultT | _Failed]:
        if slowness() is not None:  # of the executor's klog, which may be another than the driver's
            slow_tasks.add(1)
        for several in divided:
            for task in several:
                try:
                    yield work(task, done_bytes.add)
                except StorageError:
                    raise  # the next attempt may succeed: Spark tries again
                except KlogError as error:
                    yield _Failed(error)
                    return

    return run


def _collected(collect: Callable[[], list[ResultT]]) -> list[ResultT]:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        return collect()
    except (Py4JJavaError, PySparkException) as error:
        missing = missing_module(str(error))
        if missing is not None:
            raise UsageError(f"the Python of Spark's executors has no {missing}", cure=CURE) from error
        raise KlogError(f"Spark aborted the job: {_reason(error)}", cure=_CURE) from error


def _reason(error: Exception) -> str:
    """The line of a failed job's text with the reason: the error of the Python worker, if there is one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    of_python = [line for line in lines if _PYTHON_ERROR.match(line)]
    return (
        of_python or [line for line in lines if "Job aborted" in line] or lines or [type(error).__name__]
    )[0]


@contextmanager
def _progress_reported(done_bytes: Accumulator[int], on_bytes: OnBytes) -> Iterator[None]:
    """Report finished bytes to `on_bytes`, while the block waits for Spark."""
    ended = threading.Event()

    def report() -> None:
        reported_bytes = 0
        while True:
            last = ended.wait(_POLL_INTERVAL_S)
            on_bytes(done_bytes.value - reported_bytes)
            reported_bytes = done_bytes.value
            if last:
                return

    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
