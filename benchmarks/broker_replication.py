"""What replication costs, and how fast: three brokers of klog, three of Kafka, in turn.

- copying: a partition has one replica and many MiB of records. It is given a second replica, on a broker that
  has copied as much before. Measured are the time until that is in sync, and the CPU of leader and follower.
- acks=all: one producer sends 5,000 records a second to three partitions with three replicas each. Measured
  is the time from when a record was due to its acknowledgement.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaError, Producer

from benchmarks.broker_failover import KINDS, Cluster, cluster
from benchmarks.measure import MIB, BenchmarkError, judge
from benchmarks.rows import Rows
from klog.protocol.apis import ApiKey
from klog.protocol.messages import build, request_class

_GIB = 1 << 30
_VALUE_BYTES = 1000
_RECORDS_PER_S = 5000
_WARM_S = 3.0


class Copied(NamedTuple):
    """Seconds for a GiB: until the replica was in sync, and of CPU on the leader and on the follower."""

    took_s: float
    leader_s: float
    follower_s: float


class Taken(NamedTuple):
    """The figures of one round of one kind; latencies are in ms."""

    copied: Copied
    p50_ms: float
    p99_ms: float


def fill(bootstrap: str, topic: str, size_bytes: int) -> None:
    """Writes records that do not repeat until there are so many bytes of values."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "acks": 1})
    values = [os.urandom(_VALUE_BYTES) for _ in range(256)]
    for number in range(size_bytes // _VALUE_BYTES):
        while True:
            try:
                producer.produce(topic, values[number % len(values)], partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(300):
        raise BenchmarkError("not all records were written")


def copy(found: Cluster, topic: str, size_bytes: int) -> Copied:
    """Gives a partition on the first broker a second replica, on the second broker."""
    found.create(topic, [(0,)])
    leader, follower = found.brokers[0], found.brokers[1]
    fill(leader.bootstrap, topic, size_bytes)
    before = leader.cpu_s(), follower.cpu_s()
    began_s = time.perf_counter()
    _reassign(found, topic, (0, 1))
    found.until(partial(_is_done, found, topic))
    gibs = size_bytes / _GIB
    return Copied(
        (time.perf_counter() - began_s) / gibs,
        (leader.cpu_s() - before[0]) / gibs,
        (follower.cpu_s() - before[1]) / gibs,
    )


def _reassign(found: Cluster, topic: str, replicas: tuple[int, ...]) -> None:
    api, version = ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0
    wanted = {"name": topic, "partitions": [{"partition_index": 0, "replicas": replicas}]}
    request = build(request_class(api, version), timeout=timedelta(seconds=60), topics=[wanted])
    answer = found.ask(found.controller(), request)
    if answer.error_code or answer.responses[0].partitions[0].error_code:
        raise BenchmarkError(f"the reassignment was answered {answer}")


def _is_done(found: Cluster, topic: str) -> bool:
    in_sync = found.in_sync(found.brokers[2], topic)
    return in_sync == [{0, 1}]


def acknowledged(found: Cluster, topic: str, seconds: float) -> list[float]:
    """The latencies in ms of records with acks=all, after some time to warm up."""
    producer = Producer({"bootstrap.servers": found.brokers[0].bootstrap, "acks": "all", "linger.ms": 5})
    taken_ms: list[float] = []
    value = os.urandom(100)

    def delivered(due_s: float, error: KafkaError | None, _: object) -> None:
        if error is not None:
            raise BenchmarkError(f"a record was not acknowledged: {error}")
        taken_ms.append((time.perf_counter() - due_s) * 1000)

    start_s = time.perf_counter()
    count = int(_RECORDS_PER_S * (_WARM_S + seconds))
    for number in range(count):
        due_s = start_s + number / _RECORDS_PER_S
        while (left_s := due_s - time.perf_counter()) > 0:
            producer.poll(min(left_s, 0.001))
        producer.produce(topic, value, partition=number % 3, on_delivery=partial(delivered, due_s))
    if producer.flush(60):
        raise BenchmarkError("not all records were acknowledged")
    return sorted(taken_ms[int(_RECORDS_PER_S * _WARM_S) :])


def one_round(kind: str, work: Path, size_bytes: int, seconds: float, *, checkout: bool) -> Taken:
    """The figures of one kind, on a new cluster."""
    with cluster(kind, work, checkout=checkout) as found:
        copy(found, "warm", size_bytes)
        copied = copy(found, "measured", size_bytes)
        found.create("acknowledged", [(0, 1, 2), (1, 2, 0), (2, 0, 1)])
        latencies = acknowledged(found, "acknowledged", seconds)
        p50_ms, p99_ms = (latencies[int(len(latencies) * share)] for share in (0.5, 0.99))
        return Taken(copied, p50_ms, p99_ms)


def replication(
    scratch: Path,
    rounds: int,
    rows: Rows,
    size_bytes: int = 256 * MIB,
    seconds: float = 10.0,
    *,
    checkout: bool = False,
) -> str:
    """Both kinds in turn; `checkout` runs klog's modules, not compiled."""
    taken: dict[str, list[Taken]] = {kind: [] for kind in KINDS}
    for _ in range(rounds):
        for kind in KINDS:
            work = scratch / "clusters"
            taken[kind].append(one_round(kind, work, size_bytes, seconds, checkout=checkout))
    figures: list[tuple[str, str, Callable[[Taken], float], float]] = [
        ("a follower catches up", "s/GiB", lambda each: each.copied.took_s, 1.0),
        ("CPU of the leader", "s/GiB", lambda each: each.copied.leader_s, 0.5),
        ("CPU of the follower", "s/GiB", lambda each: each.copied.follower_s, 0.5),
        ("acks=all, median", "ms", lambda each: each.p50_ms, 1.0),
        ("acks=all, p99", "ms", lambda each: each.p99_ms, 1.0),
    ]
    lines = [f"copies of {size_bytes // MIB} MiB, and {_RECORDS_PER_S} records/s (medians of {rounds})"]
    for name, unit, of, aim in figures:
        ours, theirs = (statistics.median(of(each) for each in taken[kind]) for kind in KINDS)
        rows.add(f"{name}, {unit}", ours, theirs)
        ratio = judge(ours / theirs, aim)
        lines.append(
            f"  {name:22} klog {ours:7.2f} {unit:5} Kafka {theirs:7.2f} {unit:5} {ours / theirs:5.2f} {ratio}"
        )
    return "\n".join(lines)
