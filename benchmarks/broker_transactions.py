"""Transactions per second on klog and Kafka: librdkafka's producers write 100 records and commit, in turns.

The load runs as `python -m benchmarks.broker_transactions PORT PRODUCERS SECONDS` and prints a line of JSON.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import Thread

from benchmarks.broker import Figures, in_turns
from benchmarks.brokers import RunningBroker, both, klog_alone
from benchmarks.measure import BenchmarkError, judge
from benchmarks.replicated import ReplicatedBroker, replicated
from benchmarks.request_frames import Admin
from benchmarks.rows import Rows

RECORDS = 100
RECORD_BYTES = 100
PRODUCERS = (1, 8)
SECONDS = 4
TOPIC = "transactions"
PARTITIONS = 8
CONFIG = {"transaction.state.log.replication.factor": 1, "transaction.state.log.min.isr": 1}


def transactions(
    scratch: Path, rounds: int, rows: Rows, *, klog_only: bool = False, checkout: bool = False
) -> str:
    """Committed transactions of 100 records a second, their latency, and the broker's CPU for each."""
    with klog_alone(scratch, CONFIG, checkout=checkout) if klog_only else both(scratch, CONFIG) as brokers:
        return _compared(brokers, rounds, rows, rate_aim=1)


def replicated_transactions(
    scratch: Path, rounds: int, rows: Rows, *, klog_only: bool = False, checkout: bool = False
) -> str:
    """The same on three brokers with three replicas; the CPU is that of all three."""
    with replicated(scratch, alone=klog_only, checkout=checkout) as clusters:
        return _compared(clusters, rounds, rows, rate_aim=1.2)


def _compared(
    brokers: Sequence[RunningBroker | ReplicatedBroker], rounds: int, rows: Rows, rate_aim: float
) -> str:
    lines = [f"transactions of {RECORDS} records of {RECORD_BYTES} bytes (medians of {rounds})"]
    for broker in brokers:
        with closing(Admin(broker.port)) as admin:
            admin.create(TOPIC, {}, PARTITIONS, broker.replicas)
    for producers in PRODUCERS:
        found = in_turns(brokers, rounds, partial(run, producers=producers))
        lines.append(f"  {producers} producer{'s' if producers > 1 else ''}")
        lines += [_line(broker.name, figures) for broker, figures in zip(brokers, found, strict=True)]
        if len(found) > 1:
            ours, peer = found
            rate, cpu = ours["per_s"] / peer["per_s"], ours["cpu_us"] / peer["cpu_us"]
            for key, title in (
                ("per_s", "transactions/s"),
                ("p50_ms", "median ms"),
                ("cpu_us", "CPU us each"),
            ):
                rows.add(f"producers {producers}, {title}", ours[key], peer[key])
            verdict = judge(rate, rate_aim, at_most=False)
            lines.append(f"    transactions/s: {rate:.2f} of Kafka's {verdict}; CPU each: {cpu:.2f}")
    return "\n".join(lines)


def _line(name: str, figures: Figures) -> str:
    return (
        f"    {name}: {figures['per_s']:,.0f} transactions/s, median {figures['p50_ms']:.2f} ms, "
        f"CPU us each {figures['cpu_us']:.0f}"
    )


def run(broker: RunningBroker | ReplicatedBroker, _: int, *, producers: int) -> Figures:
    before_s = broker.cpu_s()
    command = [sys.executable, "-m", "benchmarks.broker_transactions"]
    command += [str(broker.port), str(producers), str(SECONDS)]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE)
    found: Figures = json.loads(done.stdout) if done.returncode == 0 else {}
    if not found.get("transactions"):
        raise BenchmarkError(f"{broker.name} committed no transaction")
    return {**found, "cpu_us": (broker.cpu_s() - before_s) / found["transactions"] * 1e6}


# The functions below run in the load's process.


def _load(port: int, producers: int, seconds: float) -> dict[str, float]:
    took_ms: list[float] = []
    workers = [Thread(target=_produce, args=(port, number, seconds, took_ms)) for number in range(producers)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return {
        "transactions": len(took_ms),
        "per_s": len(took_ms) / seconds,
        "p50_ms": statistics.median(took_ms) if took_ms else 0.0,
    }


def _produce(port: int, number: int, seconds: float, took_ms: list[float]) -> None:
    from confluent_kafka import Producer  # noqa: PLC0415

    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "transactional.id": f"producer-{number}",
            "linger.ms": 0,
        }
    )
    producer.init_transactions()
    value = bytes(RECORD_BYTES)
    end_s = time.monotonic() + seconds
    while (begin_s := time.monotonic()) < end_s:
        producer.begin_transaction()
        for _ in range(RECORDS):
            producer.produce(TOPIC, value, partition=number % PARTITIONS)
        producer.commit_transaction()
        took_ms.append((time.monotonic() - begin_s) * 1000)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_load(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))) + "\n")
