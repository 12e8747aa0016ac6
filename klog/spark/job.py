"""An export's tasks on Spark: what a pool of processes does on one machine, the executors of a cluster do.

Each task exports its splits itself, files and state and all (`klog.export.split_export.export_split`), and
what it hands back is what became of them; no row crosses to the JVM. A task that Spark runs twice, after a
failure or by speculation, writes the same bytes under the same names. Results, manifest, verification and
report are `klog.export.run_export`'s, on the driver.
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
from klog.export.run_export import Watcher
from klog.export.splits import Split
from klog.formats.errors import KlogError, StorageError
from klog.spark.grouping import group_splits
from klog.storage.processes import Work

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.accumulators import Accumulator

_log = logging.getLogger("klog.spark")

_POLL_INTERVAL_S: Final = 0.2
_PYTHON_ERROR: Final = re.compile(
    r"(?!org\.|java\.|py4j\.|scala\.)[\w.]*(?:Error|Exception|Exit|Interrupt): "
)
_CURE: Final = "what is done is kept: submit it again with --resume"

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class _Failed:
    """A task cannot be done, however often it is tried."""

    error: KlogError


@contextmanager
def started(name: str, checkout: Path | None = None) -> Iterator[SparkContext]:
    """Spark, as spark-submit (or the environment) says; stopped with the block.

    `checkout` is where klog was found if it is not installed: executors are told where it is, and those of a
    cluster, which may not see that place, are sent it.
    """
    from pyspark import SparkConf, SparkContext

    settings = SparkConf()
    settings.setAppName(settings.get("spark.app.name", name) or name)
    settings.set("spark.ui.showConsoleProgress", "false")  # the job shows its own
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
    """klog's Python modules as an archive, for the time of the block: what `--py-files` takes.

    The compiled kernel cannot come along, for nothing compiled is imported from an archive: its twin in
    Python steps in.
    """
    with tempfile.TemporaryDirectory(prefix="klog-") as work:
        archive = Path(work) / "klog.zip"
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as files:
            for file in sorted((checkout / "klog").rglob("*.py")):
                files.write(file, file.relative_to(checkout))
        yield str(archive)


@dataclass(frozen=True, slots=True)
class SparkRunner:
    """Does an export's tasks on the executors of `context`, small ones several to a task of Spark."""

    context: SparkContext
    target_bytes: int = TARGET_SPLIT_BYTES

    def __call__(
        self,
        work: Work[TaskT, ResultT],
        tasks: Sequence[TaskT],
        split_of: Callable[[TaskT], Split],
        watcher: Watcher,
    ) -> Iterator[ResultT]:
        """The results of all tasks, once Spark is through. Raises `KlogError` where one failed for good."""
        if not tasks:
            return
        groups = self._grouped(tasks, split_of)
        done_bytes = self.context.accumulator(0)
        table = self.context.parallelize(groups, len(groups)).mapPartitions(_on_executor(work, done_bytes))
        with _progress_reported(done_bytes, watcher):
            results = _collected(table.collect)
        for result in results:
            if isinstance(result, _Failed):
                raise result.error
            yield result

    def _grouped(self, tasks: Sequence[TaskT], split_of: Callable[[TaskT], Split]) -> list[list[TaskT]]:
        """The tasks for Spark, longest first: the last to end are then short ones."""
        by_number = {split_of(task).number: task for task in tasks}
        groups = group_splits(
            (split_of(task) for task in tasks), self.target_bytes, self.context.defaultParallelism
        )
        groups.sort(key=lambda group: -sum(split.length_bytes for split in group))
        return [[by_number[split.number] for split in group] for group in groups]


def _on_executor(
    work: Work[TaskT, ResultT], done_bytes: Accumulator[int]
) -> Callable[[Iterable[list[TaskT]]], Iterator[ResultT | _Failed]]:
    def run(groups: Iterable[list[TaskT]]) -> Iterator[ResultT | _Failed]:
        for group in groups:
            for task in group:
                try:
                    yield work(task, done_bytes.add)
                except StorageError:
                    raise  # a store that does not answer may do so the next time: Spark tries again
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
        raise KlogError(f"Spark gave the job up: {_reason(error)}", cure=_CURE) from error


def _reason(error: Exception) -> str:
    """The line of a failed job's text that says why: the error of the Python that ran the task, if any."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    of_python = [line for line in lines if _PYTHON_ERROR.match(line)]
    return (
        of_python or [line for line in lines if "Job aborted" in line] or lines or [type(error).__name__]
    )[0]


@contextmanager
def _progress_reported(done_bytes: Accumulator[int], watcher: Watcher) -> Iterator[None]:
    """Tells the watcher what tasks have finished, while the block waits for Spark."""
    ended = threading.Event()

    def look() -> None:
        reported_bytes = 0
        while True:
            last = ended.wait(_POLL_INTERVAL_S)
            watcher.advanced(done_bytes.value - reported_bytes)
            reported_bytes = done_bytes.value
            if last:
                return

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
