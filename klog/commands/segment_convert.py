"""`spark-submit commands/segment_convert.py --input ...`: runs the tasks of `klog convert` on Spark.

This is a script and not a subcommand: spark-submit runs it on the driver. Options, files, state and report
are those of `klog convert` (`klog.commands.offline.convert`), with two differences: `--input` names the
partitions, and Spark decides how many tasks run at once. The executors must see the directories under the
same paths. It works with an installed klog, and from a checkout.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from klog.spark.job import SparkRunner


def main() -> None:
    """Run the command line of this process and exit with its code."""
    checkout: Path | None = _segment_export().find_klog()
    from klog.commands.main import run_to_exit

    @contextmanager
    def on_spark() -> Iterator[SparkRunner]:
        from klog.spark.job import SparkRunner, started

        with started("klog segment convert", checkout) as context:
            yield SparkRunner(context, target_bytes=1)  # each task as a task of Spark

    run_to_exit(lambda: command().main(prog_name="segment_convert.py", obj=on_spark, standalone_mode=False))


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


if __name__ == "__main__":
    main()
