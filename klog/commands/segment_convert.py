"""`spark-submit commands/segment_convert.py --input ...`: runs the tasks of `klog convert` on Spark.

This is a script and not a subcommand: spark-submit runs it on the driver. Options, files, state and report
are those of `klog convert` (`klog.commands.offline.convert`), with two differences: `--input` names the
partitions, and Spark decides how many tasks run at once. The executors must see the directories under the
same paths. It works with an installed klog, and from a checkout.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext

    from klog.convert.run_convert import OnBytes, Runner, Work
    from klog.convert.tasks import ConvertTask, Failure, TaskResult
    from klog.replicas.splits import Plan


def main() -> None:
    """Run the command line of this process and exit with its code."""
    checkout: Path | None = _segment_export().find_klog()
    from klog.commands.main import run_to_exit

    run_to_exit(
        lambda: command().main(prog_name="segment_convert.py", obj=OnSpark(checkout), standalone_mode=False)
    )


def _segment_export() -> Any:  # noqa: ANN401 (a module)
    """The script of the export, which finds klog; it is beside this one if klog is not installed."""
    try:
        return importlib.import_module("klog.commands.segment_export")
    except ModuleNotFoundError:
        return importlib.import_module("segment_export")


def command() -> Any:  # noqa: ANN401 (click's own)
    """The command of `klog convert`, with `--input` in place of the arguments and without `--jobs`."""
    from klog.commands.main import load
    from klog.commands.segment_export import with_input_option

    convert = load("convert")
    with_input_option(convert)
    about = (convert.help or "").partition("Examples:")[0]
    convert.help = about + _EXAMPLES
    return convert


_EXAMPLES = """Examples:

    spark-submit commands/segment_convert.py --input /mnt/kafka --compression zstd --yes

    spark-submit commands/segment_convert.py -i /mnt/backup/kafka -c zstd --verify -o /mnt/backup/converted
"""


class OnSpark:
    """Starts Spark for a conversion, with the settings of spark-submit, and stops it at the end."""

    def __init__(self, checkout: Path | None) -> None:
        self._checkout = checkout

    @contextmanager
    def __call__(self) -> Iterator[Runner]:
        """Yield a runner of tasks on the executors."""
        from klog.spark.job import started

        with started("klog segment convert", self._checkout) as context:
            yield _Tasks(context)


class _Tasks:
    """Runs tasks on the executors, each as a task of its own."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context

    @property
    def cores(self) -> int:
        """The cores of all executors, as far as Spark knows."""
        return int(self._context.defaultParallelism)

    def __call__(
        self, work: Work, tasks: Sequence[ConvertTask], on_bytes: OnBytes
    ) -> Iterator[TaskResult | Failure]:
        """Yield the results when Spark has finished."""
        from klog.export.run_export import Stage
        from klog.spark.job import SparkRunner

        stage = Stage(work, tasks, lambda task: task.split, "converting")
        yield from SparkRunner(self._context, target_bytes=1)(stage, _Watcher(on_bytes))


class _Watcher:
    """Passes the progress of Spark's tasks on."""

    def __init__(self, on_bytes: OnBytes) -> None:
        self._on_bytes = on_bytes

    def planned(self, plan: Plan, pending_bytes: int, what: str) -> None:
        """A stage begins; conversions have only one."""

    def advanced(self, size_bytes: int) -> None:
        """That many bytes more are done."""
        self._on_bytes(size_bytes)


if __name__ == "__main__":
    main()
