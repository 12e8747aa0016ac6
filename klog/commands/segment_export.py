"""`spark-submit commands/segment_export.py --input ... --output ...`: runs the tasks of `klog export` on
Spark.

This is a script and not a subcommand: spark-submit runs it on the driver. Options, files, job state and
report are those of `klog export` (`klog.commands.offline.export`), with two differences: `--input` names the
segments, and Spark decides how many tasks run at once. It works with an installed klog, from a checkout, and
with klog shipped by `--py-files`.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from klog.export.split_export import ExportJob
    from klog.spark.job import SparkRunner


_NOT_ON_SPARK = {"paths", "jobs", "print_spark_submit"}


def main() -> None:
    """Run the command line of this process and exit with its code."""
    checkout = find_klog()
    from klog.commands.main import run_to_exit

    @contextmanager
    def on_spark(job: ExportJob) -> Iterator[SparkRunner]:
        from klog.spark.job import SparkRunner, started

        with started("klog segment export", checkout) as context:
            yield SparkRunner(context, job.options.target_split_bytes)

    run_to_exit(lambda: command().main(prog_name="segment_export.py", obj=on_spark, standalone_mode=False))


def find_klog() -> Path | None:
    """Make `klog` importable. Returns the root of this script's checkout if klog is found only there.

    Python puts a script's directory first on its path. Here it holds klog's commands, and modules such as
    `formats` or `verify` must not hide others of these names.
    """
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != here]
    if importlib.util.find_spec("klog") is not None:
        return None
    root = here.parent.parent
    if not (root / "klog" / "commands").is_dir():
        sys.exit("klog is not installed here, nor shipped: `pip install klog`, or --py-files klog.zip")
    sys.path.insert(0, str(root))
    return root


def command() -> Any:  # noqa: ANN401 (click's own)
    """The command of `klog export`, with `--input` in place of the arguments, for Spark."""
    from klog.commands.main import load

    export = load("export")
    with_input_option(export)
    about = (export.help or "").partition("Examples:")[0]
    export.help = about.replace("no broker, no JVM", "no broker, the tasks on Spark") + _EXAMPLES
    return export


def with_input_option(command: Any) -> None:  # noqa: ANN401 (click's own)
    """Put `--input` in place of a command's arguments, and remove what is not for Spark."""
    from typer.core import TyperOption

    paths = next(one for one in command.params if one.name == "paths")
    named = TyperOption(
        param_decls=["paths", "--input", "-i"],
        type=paths.type,
        multiple=True,
        required=True,
        metavar="PATH",
        help=f"{paths.help} May be given several times.",
    )
    command.params = [named, *(one for one in command.params if one.name not in _NOT_ON_SPARK)]


_EXAMPLES = """Examples:

    spark-submit commands/segment_export.py --input /mnt/kafka --output /mnt/tables
    spark-submit commands/segment_export.py -i s3a://backup/broker-1 -i s3a://backup/broker-2
    --subscribe orders --isolation read_committed --resume --verify -o s3a://lake/kafka
"""


if __name__ == "__main__":
    main()
