"""How long small requests take beside a consumer that reads what is no longer in the page cache.

A log is written and its pages are dropped from the page cache (`posix_fadvise`). Then a consumer reads it
from its start, while other clients produce small records. A broker that reads from the disk in the thread
that serves the connections of others makes these wait.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.brokers import RunningBroker, both, klog_alone
from benchmarks.measure import MIB, BenchmarkError, judge
from benchmarks.request_frames import (
    Admin,
    batch_of,
    fetch_answer,
    fetch_frame,
    produce_answer,
    produce_frame,
)
from benchmarks.request_loads import Load, Prepared, Programs
from benchmarks.rows import Rows
from benchmarks.steady_producer import (
    SMALL_BATCH_BYTES,
    SMALL_PER_S,
    SMALL_TOPIC,
    Latencies,
    latencies,
    small_requests,
)

_TOPIC = "cold"
_ALONE_S = 2.0
_SEGMENT_BYTES = 256 * MIB
_BATCH_BYTES = 512 * 1024
_FETCH_BYTES = MIB
_CONSUMER = Load("cold", "a consumer that catches up", "fetch", _FETCH_BYTES, 1, 1)
_CONSUMER_S = 600
# How often the consumer reads the log in a round, so that there are thousands of small requests beside it.
_PASSES = 3
# A log counts as dropped from the page cache if the broker reads this share of it from the disk.
_LEAST_SHARE_FROM_DISK = 0.9

_CASES = {
    "alone": "alone",
    "cached": "beside a consumer of cached pages",
    "cold": "beside one of dropped pages",
}


def cold(scratch: Path, rounds: int, rows: Rows, log_bytes: int, *, klog_only: bool = False) -> str:
    """The latency of small requests alone, beside a consumer of cached and of dropped pages."""
    _require_disk(scratch)
    found: dict[str, list[list[Latencies]]] = {}
    with klog_alone(scratch) if klog_only else both(scratch) as brokers:
        programs = Programs(scratch)
        ready = [_filled(broker, log_bytes, scratch) for broker in brokers]
        for case in _CASES:
            found[case] = [[] for _ in brokers]
        for number in range(rounds + 1):
            for case, taken in found.items():
                for broker, fetches, runs in zip(brokers, ready, taken, strict=True):
                    latencies = _beside(case, broker, programs, fetches, log_bytes)
                    if number:
                        runs.append(latencies)
    lines = [f"small produce requests, {SMALL_PER_S} a second (medians of {rounds})"]
    for case, title in _CASES.items():
        lines.append(f"  {title}")
        values = list(map(_medians, found[case]))
        if len(values) == 2:
            rows.add(f"{title}, p99 ms", *(each.p99 for each in values))
        lines += _described(case, [broker.name for broker in brokers], values)
    return "\n".join(lines)


def _described(case: str, names: list[str], values: list[Latencies]) -> list[str]:
    def each(form: Callable[[Latencies], str]) -> str:
        return ", ".join(f"{name} {form(value)}" for name, value in zip(names, values, strict=True))

    ratio = values[0].p99 / values[-1].p99
    verdict = f": {ratio:.2f} {judge(ratio, 1)}" if len(values) == 2 else ""
    lines = [
        "    p99: " + each(lambda value: f"{value.p99:.2f} ms") + verdict,
        "    p50: " + each(lambda value: f"{value.p50:.2f} ms"),
        "    longest: " + each(lambda value: f"{value.most:.1f} ms"),
    ]
    if case != "alone":
        lines.append("    the consumer: " + each(lambda value: f"{value.consumed_mib_s:.0f} MiB/s"))
    return lines


def _medians(runs: list[Latencies]) -> Latencies:
    names = ("p50", "p99", "most", "consumed_mib_s")
    return Latencies(*(statistics.median(getattr(run, name) for run in runs) for name in names))


def _require_disk(scratch: Path) -> None:
    kind = subprocess.run(
        ["stat", "-f", "-c", "%T", str(scratch)], capture_output=True, text=True, check=True
    )
    if kind.stdout.strip() in ("tmpfs", "ramfs"):
        raise BenchmarkError(f"{scratch} is in memory; choose a directory on a disk with --scratch")


def _filled(broker: RunningBroker, log_bytes: int, scratch: Path) -> Prepared:
    """Writes the log; the requests that read all of it, in order."""
    batch = batch_of(_BATCH_BYTES)
    records = int.from_bytes(batch[57:61], "big")
    admin = Admin(broker.port)
    admin.create(_TOPIC, {"segment.bytes": str(_SEGMENT_BYTES)})
    admin.create(SMALL_TOPIC, {})
    fill = produce_frame(_TOPIC, batch)
    for _ in range(log_bytes // len(batch)):
        admin.send(fill, produce_answer(_TOPIC))
    admin.send(produce_frame(SMALL_TOPIC, batch_of(SMALL_BATCH_BYTES)), produce_answer(SMALL_TOPIC))
    admin.close()
    batches = _FETCH_BYTES // len(batch)
    firsts = range(0, log_bytes // len(batch), batches)
    frames = scratch / f"{broker.name}.frames"
    frames.write_bytes(b"".join(fetch_frame(_TOPIC, first * records, _FETCH_BYTES) for first in firsts))
    return Prepared(frames, fetch_answer(_TOPIC, 1), 0, broker.port)


def _beside(
    case: str, broker: RunningBroker, programs: Programs, ready: Prepared, log_bytes: int
) -> Latencies:
    if case == "alone":
        until_s = time.perf_counter() + _ALONE_S
        return latencies(small_requests(broker.port, lambda: time.perf_counter() < until_s))
    taken_ms: list[float] = []
    seconds = 0.0
    for _ in range(_PASSES):
        if case == "cold":
            _drop_pages(broker.logs / f"{_TOPIC}-0")
        before_bytes = _read_from_disk_bytes(broker.pid)
        requests_most = log_bytes // _FETCH_BYTES
        command = programs.client_command(_CONSUMER, ready, seconds=_CONSUMER_S, requests_most=requests_most)
        consumer = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        taken_ms += small_requests(broker.port, partial(_runs, consumer))
        output, error_text = consumer.communicate()
        if consumer.returncode != 0:
            raise BenchmarkError(f"the consumer of {broker.name}: {error_text.decode().strip()}")
        from_disk_bytes = _read_from_disk_bytes(broker.pid) - before_bytes
        if case == "cold" and from_disk_bytes < _LEAST_SHARE_FROM_DISK * log_bytes:
            raise BenchmarkError("the log was still in the page cache")
        seconds += json.loads(output)["seconds"]
    return latencies(taken_ms, _PASSES * log_bytes / MIB / seconds)


def _runs(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is None


def _drop_pages(partition: Path) -> None:
    for path in partition.glob("*.log"):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)  # Only pages that are on the disk can be dropped.
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def _read_from_disk_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        if line.startswith("read_bytes:"):
            return int(line.split()[1])
    raise BenchmarkError("this system does not say what a process reads from the disk")
