"""Compares exports with klog on Spark with Spark's Kafka source, which reads the same records from a broker.

All run in one warm application, in turns (`spark_rounds`). CPU seconds are those of the driver, the JVM and
the Python workers, and for the Kafka source also those of the broker (Kafka 3.9.1 with its stock flags on a
copy of the same segments). All write the same Parquet files in directories by topic and partition. Spark
sorts the rows of each task for that, so both sources are also measured writing Parquet without such
directories.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.brokers import RunningBroker, start_kafka
from benchmarks.contestants import program
from benchmarks.exporting import PEAK_LIMIT_BYTES, topics
from benchmarks.measure import MIB, run_once
from benchmarks.rows import Rows
from tests.peers.spark_kafka import spark_kafka_jars
from tests.peers.zookeeper import ZooKeeperServer

PEER = "Kafka source to Parquet"
PLAIN_PEER = "Kafka source to plain Parquet"
QUERY_PEER = "Kafka source, a query"
EXPORT = "segment_export on Spark"
AIMS = {
    EXPORT: (PEER, 0.5, 0.5),
    "klog source to Parquet": (PEER, 1.0, 1.0),
    "klog export": (PEER, None, 0.25),
    "klog source to plain Parquet": (PLAIN_PEER, 1.0, 1.0),
    "klog source, a query": (QUERY_PEER, 1.0, 1.0),
}
"""For each way the one that it is compared with, and the share of its wall and CPU time that it may take."""


@dataclass(frozen=True)
class Taken:
    """Medians of one way."""

    wall_s: float
    cpu_s: float
    task_peak_bytes: int


def beside_kafka(scratch: Path, output: Path, rounds: int, size_bytes: int, codec: str, rows: Rows) -> str:
    """Every way with two task slots."""
    source = topics(scratch, size_bytes, codec)
    ways = [PEER, PLAIN_PEER, QUERY_PEER, *AIMS]
    with _kafka_on(source, output / "kafka") as broker:
        taken = _rounds(source, output, rounds, 2, ways, broker)
    lines = [f"{size_bytes // MIB} MiB of records, {codec}, two task slots (medians of {rounds}, warm)"]
    lines += _table(taken)
    for way, (peer, wall, cpu) in AIMS.items():
        ours, theirs = taken[way], taken[peer]
        rows.add(f"{way} / {peer}, wall s", ours.wall_s, theirs.wall_s)
        rows.add(f"{way} / {peer}, CPU s", ours.cpu_s, theirs.cpu_s)
        of_wall = _share("wall", ours.wall_s / theirs.wall_s, wall)
        lines.append(f"  {way} / {peer}: {of_wall}, {_share('CPU', ours.cpu_s / theirs.cpu_s, cpu)}")
    peak_bytes = taken[EXPORT].task_peak_bytes
    verdict = "met" if peak_bytes < PEAK_LIMIT_BYTES else "MISSED"
    lines.append(f"  largest task: {peak_bytes / MIB:.0f} MiB (limit: {PEAK_LIMIT_BYTES // MIB}, {verdict})")
    return "\n".join(lines)


def scaling(scratch: Path, output: Path, rounds: int, size_bytes: int) -> str:
    """The export on one and on two task slots."""
    source = topics(scratch, size_bytes, "zstd")
    one, two = (_rounds(source, output, rounds, slots, [EXPORT])[EXPORT] for slots in (1, 2))
    ratio = one.wall_s / two.wall_s
    verdict = f"(aim: 1.8, {'met' if ratio >= 1.8 else 'MISSED'})"
    return "\n".join(
        [
            f"{EXPORT}, {size_bytes // MIB} MiB of records, zstd (medians of {rounds}, warm)",
            *_table({"one task slot": one, "two task slots": two}),
            f"  two slots: {ratio:.2f} times as fast {verdict}",
        ]
    )


def _share(what: str, ratio: float, most: float | None) -> str:
    verdict = "" if most is None else f" (aim: {most:g}, {'met' if ratio <= most else 'MISSED'})"
    return f"{ratio:.2f} of its {what}{verdict}"


def _table(taken: dict[str, Taken]) -> list[str]:
    width = max(map(len, taken))
    lines = [f"  {'':{width}}  {'wall s':>8}  {'CPU s':>8}"]
    return lines + [f"  {way:{width}}  {one.wall_s:8.2f}  {one.cpu_s:8.2f}" for way, one in taken.items()]


def _rounds(
    source: Path,
    output: Path,
    rounds: int,
    slots: int,
    ways: Sequence[str],
    broker: RunningBroker | None = None,
) -> dict[str, Taken]:
    how = {
        "slots": slots,
        "source": str(source),
        "output": str(output / "spark-out"),
        "rounds": rounds,
        "ways": ways,
        "jars": "",
        "brokers": [],
    }
    if broker is not None:
        how["jars"] = ",".join(map(str, spark_kafka_jars()))
        how |= {"bootstrap": broker.bootstrap, "brokers": [broker.pid]}
    printed = output / "rounds.json"
    run_once(program("Spark", "spark_rounds", json.dumps(how)), printed)
    runs = json.loads(printed.read_text().splitlines()[-1])["runs"]
    return {way: _medians(runs[way]) for way in ways}


def _medians(runs: list[dict[str, float]]) -> Taken:
    return Taken(
        statistics.median(run["wall_s"] for run in runs),
        statistics.median(run["cpu_s"] for run in runs),
        int(max(run["task_peak_bytes"] for run in runs)),
    )


@contextmanager
def _kafka_on(source: Path, work: Path) -> Iterator[RunningBroker]:
    """Kafka on links to the segments. It recovers the logs and writes its own indexes."""
    from kazoo.client import KazooClient  # noqa: PLC0415

    shutil.rmtree(work, ignore_errors=True)
    partitions = sorted(source.glob("records-*"))
    for partition in partitions:
        (work / "logs" / partition.name).mkdir(parents=True)
        for log in partition.glob("*.log"):
            os.link(log, work / "logs" / partition.name / log.name)
    numbers = {partition.name.rpartition("-")[2]: [0] for partition in partitions}
    state = {"version": 3, "partitions": numbers, "adding_replicas": {}, "removing_replicas": {}}
    with ZooKeeperServer(work / "zookeeper") as zookeeper:
        client = KazooClient(zookeeper.hosts)
        client.start()
        client.create("/brokers/topics/records", json.dumps(state).encode(), makepath=True)
        client.stop()
        client.close()
        broker = start_kafka(work, zookeeper.hosts, {"log.retention.ms": -1, "log.cleaner.enable": "false"})
        try:
            yield broker
        finally:
            broker.stop()
    shutil.rmtree(work, ignore_errors=True)
