"""Runs the same export in several ways, in turns, in one Spark application, and measures each.

`python -m benchmarks.spark_rounds JSON`: `slots` of the application, `source` (log directory), `output`,
`rounds`, `ways` (names of `WAYS`), and for Spark's Kafka source `bootstrap`, `jars` and `brokers` (process
ids whose CPU counts too). The first round warms up and does not count. The result is a JSON object on stdout.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks.processes import adopt_orphans, process_tree, require_possible, tree_cpu_s
from klog.commands.offline.exporting.lines import ProgressLines
from klog.export.options import ReadOptions
from klog.export.run_export import RunOptions, run_export
from klog.export.split_export import ExportJob
from klog.spark.job import SparkRunner
from klog.spark.source import register

LEVELS = ("topic", "partition")
Settings = dict[str, Any]


def kafka_source(spark: SparkSession, how: Settings) -> DataFrame:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", how["bootstrap"])
    return reader.option("subscribe", "records").load()


def klog_source(spark: SparkSession, how: Settings) -> DataFrame:
    return spark.read.format("klog").load(how["source"])


def to_parquet(frame: DataFrame, how: Settings, *levels: str) -> None:
    """Writes Parquet in a directory for each value of `levels`, or in one directory if there are none."""
    frame.write.option("compression", "zstd").partitionBy(*levels).parquet(how["output"])


def summed(frame: DataFrame) -> None:
    """Runs a query that reads every value."""
    frame.selectExpr("sum(length(value))", "max(offset)", "count(key)").collect()


def export_on_spark(spark: SparkSession, how: Settings) -> None:
    """Does what `commands/segment_export.py` does after the start of Spark."""
    job = ExportJob(ReadOptions((how["source"],)), how["output"])
    run_export(job, RunOptions(1), ProgressLines(quiet=True), SparkRunner(spark.sparkContext))


def export_alone(_spark: SparkSession, how: Settings) -> None:
    """Runs `klog export` with as many processes as Spark has slots."""
    klog = str(Path(sys.executable).with_name("klog"))
    command = [klog, "export", how["source"], "--output", how["output"], "--quiet"]
    subprocess.run([*command, "--jobs", str(how["slots"])], check=True)


WAYS: dict[str, Callable[[SparkSession, Settings], None]] = {
    "Kafka source to Parquet": lambda spark, how: to_parquet(kafka_source(spark, how), how, *LEVELS),
    "Kafka source to plain Parquet": lambda spark, how: to_parquet(kafka_source(spark, how), how),
    "klog source to Parquet": lambda spark, how: to_parquet(klog_source(spark, how), how, *LEVELS),
    "klog source to plain Parquet": lambda spark, how: to_parquet(klog_source(spark, how), how),
    "segment_export on Spark": export_on_spark,
    "klog export": export_alone,
    "Kafka source, a query": lambda spark, how: summed(kafka_source(spark, how)),
    "klog source, a query": lambda spark, how: summed(klog_source(spark, how)),
}


def main() -> None:
    how: Settings = json.loads(sys.argv[1])
    adopt_orphans()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{how['slots']}]").config("spark.ui.enabled", False)
    builder = builder.config("spark.driver.memory", "2g").config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.jars", how["jars"])
    spark = builder.config("spark.ui.showConsoleProgress", False).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    require_compiled_workers(spark)
    register(spark)  # Spark does not find the data source of an editable install itself.
    runs: dict[str, list[dict[str, float]]] = {way: [] for way in how["ways"]}
    for number in range(how["rounds"] + 1):
        for way in how["ways"]:
            shutil.rmtree(how["output"], ignore_errors=True)
            taken = _measured(lambda way=way: WAYS[way](spark, how), how["brokers"])  # type: ignore[misc]
            require_possible(way, taken["cpu_s"], taken["wall_s"])
            if number:
                runs[way].append(taken)
    size_bytes = sum(file.stat().st_size for file in Path(how["output"]).rglob("*.parquet"))
    print(json.dumps({"runs": runs, "written": size_bytes}))
    spark.stop()


def require_compiled_workers(spark: SparkSession) -> None:
    """Ends the program if Spark's Python workers import a klog without its compiled kernel."""

    def found(_: Iterable[int]) -> Iterable[str]:
        from klog.kernel.kernel import slowness  # noqa: PLC0415 (what a worker imports)

        yield slowness() or ""

    slots = spark.sparkContext.defaultParallelism
    complaints = set(spark.sparkContext.parallelize(range(slots), slots).mapPartitions(found).collect())
    if complaints != {""}:
        sys.exit(f"not measured, in a worker of Spark: {' '.join(sorted(complaints))}")


def _measured(do: Callable[[], None], brokers: list[int]) -> dict[str, float]:
    processes = [os.getpid(), *brokers]
    cpu_s, wall_s = _cpu_s(processes), time.perf_counter()
    do()
    wall_s = time.perf_counter() - wall_s
    return {"wall_s": wall_s, "cpu_s": _cpu_s(processes) - cpu_s, "task_peak_bytes": _task_peak_bytes()}


def _cpu_s(pids: list[int]) -> float:
    """CPU time so far of processes and all their descendants."""
    return sum(map(tree_cpu_s, pids))


def _task_peak_bytes() -> int:
    """The largest peak of memory of Spark's Python workers. Spark keeps its workers, so they still run."""
    peaks = [0]
    for pid in process_tree(os.getpid()):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"pyspark.daemon" in words:
            status = Path(f"/proc/{pid}/status").read_text()
            peaks += [int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")]
    return max(peaks)


if __name__ == "__main__":
    main()
