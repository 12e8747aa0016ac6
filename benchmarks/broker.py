"""Compares klog's broker with Kafka's: both run, are warmed up, and get the same load in turns.

CPU seconds are those of the broker's process and its worker processes, without the client. If broker and
client share few cores, CPU seconds are more reliable than wall time.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TypeVar

from benchmarks.broker_loads import (
    Load,
    consume,
    create_topic,
    produce,
    produce_paced,
    receive_and_write,
    run_load,
)
from benchmarks.brokers import RunningBroker, both, mib, start_kafka, start_klog
from benchmarks.measure import MIB, judge
from benchmarks.rows import Rows
from tests.peers.zookeeper import ZooKeeperServer

GIB = 1024 * MIB
BATCHES = tuple((record, batch) for batch in (16 * 1024, 256 * 1024) for record in (100, 1000))
READ_BYTES = 512 * MIB
WARM_UP_BYTES = 256 * MIB
SMALL_S = 4
PACED_S = 6
IDLE_CONNECTIONS = 1000

Figures = dict[str, float]
B = TypeVar("B")


def in_turns(brokers: Sequence[B], rounds: int, run: Callable[[B, int], Figures]) -> list[Figures]:
    """Runs a load on the brokers in turns (A B A B); per broker the median of each figure.

    The smallest value of each figure is there too, as `least NAME`. Round 0 warms up and does not count.
    """
    taken: list[list[Figures]] = [[] for _ in brokers]
    for number in range(rounds + 1):
        for broker, figures in zip(brokers, taken, strict=True):
            found = run(broker, number)
            if number:
                figures.append(found)
    return [
        {key: statistics.median(each[key] for each in figures) for key in figures[0]}
        | {f"least {key}": min(each[key] for each in figures) for key in figures[0]}
        for figures in taken
    ]


def start(scratch: Path, rounds: int, rows: Rows) -> str:
    """Time from the start of the process to the first ApiVersions answer; memory and CPU when idle.

    The log directory exists already, because round 0 created it.
    """
    times: dict[str, list[float]] = {"klog": [], "Kafka": []}
    cpu: dict[str, list[float]] = {"klog": [], "Kafka": []}
    memory: dict[str, list[float]] = {"klog": [], "Kafka": []}
    work = scratch / "start"
    with ZooKeeperServer(work / "zookeeper") as zookeeper:
        for number in range(rounds + 1):
            starters: tuple[Callable[[], RunningBroker], ...] = (
                lambda: start_klog(work / "klog"),
                lambda: start_kafka(work / "kafka", zookeeper.hosts),
            )
            for starter in starters:
                broker = starter()
                try:
                    time.sleep(2)
                    if number:
                        times[broker.name].append(broker.start_s)
                        cpu[broker.name].append(broker.cpu_s())
                        memory[broker.name].append(broker.rss_bytes())
                finally:
                    broker.stop()
    ours, peer = (statistics.median(times[name]) for name in ("klog", "Kafka"))
    mine, its = (statistics.median(memory[name]) for name in ("klog", "Kafka"))
    my_cpu, its_cpu = (statistics.median(cpu[name]) for name in ("klog", "Kafka"))
    rows.add("start, s", ours, peer)
    rows.add("CPU to be up, s", my_cpu, its_cpu)
    rows.add("idle memory, bytes", mine, its)
    return "\n".join(
        (
            f"start to the first ApiVersions answer (medians of {rounds})",
            f"  klog {ours * 1000:.0f} ms, Kafka {peer * 1000:.0f} ms: {peer / ours:.1f} times faster "
            + judge(peer / ours, 4, at_most=False),
            f"  CPU to be up: klog {my_cpu:.2f} s, Kafka {its_cpu:.2f} s",
            f"  idle memory: klog {mib(mine)}, Kafka {mib(its)}: {mine / its:.2f} of it "
            + judge(mine / its, 0.25),
        )
    )


def throughput(scratch: Path, rounds: int, rows: Rows, produced_bytes: int) -> str:
    """ProducerPerformance writes records, then a consumer with its partition assigned reads them."""
    lines = [f"producing, then consuming {mib(produced_bytes)} a time (medians of {rounds})"]
    with both(scratch) as brokers:
        for broker in brokers:
            for record_bytes, batch_bytes in BATCHES:
                records = WARM_UP_BYTES // len(BATCHES) // record_bytes
                produce(broker.bootstrap, "warm-up", records, record_bytes, batch_bytes)
        for record_bytes, batch_bytes in BATCHES:
            records = produced_bytes // record_bytes
            topic = f"t{record_bytes}-{batch_bytes}"
            for broker in brokers:
                create_topic(broker.bootstrap, topic)

            run = partial(
                _produce_and_consume,
                topic=topic,
                records=records,
                record_bytes=record_bytes,
                batch_bytes=batch_bytes,
            )
            ours, peer = in_turns(brokers, rounds, run)
            bare_s = statistics.median(
                receive_and_write(scratch / "no-broker", produced_bytes, batch_bytes) for _ in range(rounds)
            )
            lines.append(f"  records of {record_bytes} bytes, batch.size {batch_bytes // 1024} KiB")
            lines += _compared(ours, peer)
            load = f"{record_bytes} bytes in {batch_bytes // 1024} KiB"
            for key, title in _FIGURES.items():
                rows.add(f"{load}, {title}", ours[key], peer[key])
            lines.append(
                f"    no broker, only receiving and writing the same bytes: {bare_s:.2f} CPU s/GiB, "
                f"{bare_s / peer['produce']:.2f} of Kafka's"
            )
    return "\n".join(lines)


def _produce_and_consume(
    broker: RunningBroker, number: int, *, topic: str, records: int, record_bytes: int, batch_bytes: int
) -> Figures:
    before_s = broker.cpu_s()
    rate = produce(broker.bootstrap, topic, records, record_bytes, batch_bytes)
    produce_s = broker.cpu_s() - before_s
    figures = {"produce": produce_s / (records * record_bytes) * GIB, "records": rate}
    # The topic grows with each round, so later rounds read it fewer times. The first pass warms up.
    passes = max(2, READ_BYTES // ((number + 1) * records * record_bytes))
    before_s = broker.cpu_s()
    read_bytes, best = consume(broker.bootstrap, topic, passes)
    figures["consume"] = (broker.cpu_s() - before_s) / read_bytes * GIB
    figures["read"] = best / record_bytes
    return figures


def _paced(broker: RunningBroker, _: int, *, record_bytes: int) -> Figures:
    before_s = broker.cpu_s()
    topic = f"latency{record_bytes}"
    p50_ms, p99_ms = produce_paced(broker.bootstrap, topic, record_bytes, 10_000, PACED_S)
    return {"p50": p50_ms, "p99": p99_ms, "cpu": (broker.cpu_s() - before_s) / (2 * PACED_S)}


# The figures of a producer and a consumer.
_FIGURES = {
    "produce": "broker CPU s/GiB produced",
    "records": "records/s produced",
    "consume": "broker CPU s/GiB consumed",
    "read": "records/s consumed",
}


def _compared(ours: Figures, peer: Figures) -> list[str]:
    def line(key: str, form: str, aim: float, *, at_most: bool) -> str:
        ratio = ours[key] / peer[key] if peer[key] else 0.0
        values = f"klog {ours[key]:{form}}, Kafka {peer[key]:{form}}"
        return f"    {_FIGURES[key]}: {values}: {ratio:.2f} {judge(ratio, aim, at_most=at_most)}"

    least = ours["least produce"] / peer["least produce"]
    return [
        line("produce", ".2f", 0.5, at_most=True)
        + f"; least of the rounds {ours['least produce']:.2f} and {peer['least produce']:.2f}: {least:.2f}",
        line("records", ",.0f", 1, at_most=False),
        line("consume", ".2f", 1, at_most=True),
        line("read", ",.0f", 1, at_most=False),
    ]


def latency(scratch: Path, rounds: int, rows: Rows) -> str:
    """The latency of the Java producer at 10,000 records/s, without its warm-up."""
    lines = [f"latency of the Java producer at 10,000 records/s (medians of {rounds})"]
    with both(scratch) as brokers:
        for record_bytes in (100, 1000):
            run = partial(_paced, record_bytes=record_bytes)
            ours, peer = in_turns(brokers, rounds, run)
            ratio = ours["p99"] / peer["p99"]
            rows.add(f"{record_bytes} bytes, p99 ms", ours["p99"], peer["p99"])
            lines.append(
                f"  {record_bytes} bytes: p50 klog {ours['p50']:.2f} ms, Kafka {peer['p50']:.2f} ms; "
                f"p99 klog {ours['p99']:.2f} ms, Kafka {peer['p99']:.2f} ms: {ratio:.2f} {judge(ratio, 1)}; "
                f"CPU {ours['cpu']:.1%} and {peer['cpu']:.1%} of a core"
            )
    return "\n".join(lines)


def connections(scratch: Path, rounds: int, rows: Rows) -> str:  # noqa: ARG001 (one round is enough)
    """Memory and CPU of 1,000 connections that send one request and are then idle."""
    lines = [f"{IDLE_CONNECTIONS} idle connections"]
    with both(scratch) as brokers:
        for broker in brokers:
            before_bytes, idle_s = broker.rss_bytes(), _cpu_over(broker, SMALL_S)
            load = Load("idle", broker.port, "none", IDLE_CONNECTIONS, SMALL_S + 3)
            load.wait_until_ready()
            time.sleep(1)
            grown = broker.rss_bytes() - before_bytes
            busy_s = _cpu_over(broker, SMALL_S)
            load.result()
            verdict = judge(grown / MIB, 50) if broker.name == "klog" else ""
            lines.append(
                f"  {broker.name}: {grown / MIB:.1f} MiB {verdict}, CPU {busy_s / SMALL_S:.1%} of a core, "
                f"without them {idle_s / SMALL_S:.1%}"
            )
    return "\n".join(lines)


def _cpu_over(broker: RunningBroker, seconds: float) -> float:
    before_s = broker.cpu_s()
    time.sleep(seconds)
    return broker.cpu_s() - before_s


def small(scratch: Path, rounds: int, rows: Rows) -> str:
    """Small requests per second, and the latency of one, alone and beside other work."""
    lines = [f"small produce requests (medians of {rounds})"]
    with both(scratch, {"log.cleaner.backoff.ms": 100}) as brokers:
        for broker in brokers:
            create_topic(broker.bootstrap, "small")
            create_topic(broker.bootstrap, "stream", retention_bytes=256 * MIB)
            create_topic(
                broker.bootstrap,
                "compacted",
                cleanup_policy="compact",
                segment_bytes=16 * MIB,
                min_cleanable_dirty_ratio="0.01",
            )
        for beside in ("", "stream", "compacted"):
            run = partial(_small_beside, beside=beside)
            ours, peer = in_turns(brokers, rounds, run)
            title = {"": "alone", "stream": "beside 1 MB requests", "compacted": "while the cleaner works"}[
                beside
            ]
            rate, p99 = ours["per_s"] / peer["per_s"], ours["p99"] / peer["p99"]
            rows.add(f"{title}, requests/s", ours["per_s"], peer["per_s"])
            rows.add(f"{title}, p99 ms", ours["p99"], peer["p99"])
            lines += (
                f"  {title}",
                f"    requests/s: klog {ours['per_s']:,.0f}, Kafka {peer['per_s']:,.0f}: {rate:.2f} "
                + judge(rate, 1, at_most=False),
                f"    CPU us each: klog {ours['cpu']:.0f}, Kafka {peer['cpu']:.0f}",
                f"    p99: klog {ours['p99']:.2f} ms, Kafka {peer['p99']:.2f} ms: {p99:.2f} " + judge(p99, 1),
                f"    p50: klog {ours['p50']:.2f} ms, Kafka {peer['p50']:.2f} ms",
            )
        kept = [_size_of(broker.logs / "compacted-0") for broker in brokers]
        lines.append(f"  the compacted topic's logs at the end: {mib(kept[0])} and {mib(kept[1])}")
    return "\n".join(lines)


def _small_beside(broker: RunningBroker, _: int, *, beside: str) -> Figures:
    figures: Figures = {}
    for kind in ("small", "latency"):
        with ExitStack() as ending:
            if beside:
                load = Load("stream", broker.port, beside, SMALL_S + 1)
                ending.callback(load.result)
                time.sleep(1)
            before_s = broker.cpu_s()
            found = run_load(kind, broker.port, "small", SMALL_S)
            if kind == "small":
                figures["per_s"] = found["per_s"]
                figures["cpu"] = (broker.cpu_s() - before_s) / found["requests"] * 1e6
            else:
                figures |= {"p50": found["p50_ms"], "p99": found["p99_ms"]}
    return figures


def _spread_over(broker: RunningBroker, _: int, *, count: int) -> Figures:
    # The first request to a partition opens its files, which is not measured here.
    run_load("spread", broker.port, f"spread{count}", count, 0)
    before_s = broker.cpu_s()
    found = run_load("spread", broker.port, f"spread{count}", count, SMALL_S)
    produce_s = broker.cpu_s() - before_s
    fetched = run_load("fetch", broker.port, f"quiet{count}", count, SMALL_S)
    fetch_s = broker.cpu_s() - before_s - produce_s
    return {
        "produce": produce_s / (found["requests"] + count) * 1e6,
        "fetch": fetch_s / fetched["requests"] * 1e6,
    }


def _size_of(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.glob("*.log"))


def partitions(scratch: Path, rounds: int, rows: Rows) -> str:
    """CPU of a request by the number of partitions, of the broker and of a consumer's fetch session."""
    counts = (1, 10, 100, 1000)
    cost: dict[tuple[str, str], list[float]] = {}
    with both(scratch) as brokers:
        for count in counts:
            for broker in brokers:
                create_topic(broker.bootstrap, f"spread{count}", count)
                create_topic(broker.bootstrap, f"quiet{count}", count)
            run = partial(_spread_over, count=count)
            for broker, found in zip(brokers, in_turns(brokers, rounds, run), strict=True):
                for kind, cpu_us in found.items():
                    cost.setdefault((kind, broker.name), []).append(cpu_us)
    lines = [f"CPU us a request by the number of partitions (medians of {rounds})"]
    titles = {
        "produce": "small Produce requests to each partition in turn",
        "fetch": "Fetch in a session of so many partitions without new records",
    }
    for kind, title in titles.items():
        lines.append(f"  {title}")
        for name in ("klog", "Kafka"):
            values = zip(counts, cost[kind, name], strict=True)
            lines.append(f"    {name}: " + ", ".join(f"{count:,}: {value:.0f}" for count, value in values))
    growth = cost["produce", "klog"][-1] / cost["produce", "klog"][0]
    lines.append(f"  Produce of klog at 1,000 compared with 1: {growth:.2f} {judge(growth, 1.25)}")
    for kind in titles:
        rows.add(f"{kind} of 1,000 partitions, CPU us", cost[kind, "klog"][-1], cost[kind, "Kafka"][-1])
    ratio = cost["fetch", "klog"][-1] / cost["fetch", "Kafka"][-1]
    lines.append(f"  Fetch at 1,000 compared with Kafka: {ratio:.2f} {judge(ratio, 1)}")
    return "\n".join(lines)
