"""Loading of committed offsets on klog and Kafka: how long it takes, and what producers notice."""

from __future__ import annotations

import shutil
import socket
import statistics
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.brokers import RunningBroker, mib, start_kafka, start_klog
from benchmarks.group_client import NOT_YET, offset_fetch_frame
from benchmarks.measure import BenchmarkError, judge
from benchmarks.request_frames import (
    FIND_COORDINATOR_ANSWER,
    Admin,
    batch_of,
    commit_answer,
    commit_frame,
    find_coordinator_frame,
    produce_answer,
    produce_frame,
)
from benchmarks.rows import Rows
from benchmarks.steady_producer import (
    SMALL_BATCH_BYTES,
    SMALL_PER_S,
    SMALL_TOPIC,
    Latencies,
    latencies,
    small_requests,
)
from tests.peers.zookeeper import ZooKeeperServer

_TOPIC = "committed"
_PARTITIONS = 50
_ALONE_S = 3.0
_TIMEOUT_S = 600
# All groups in one partition, so that one load has all offsets.
_CONFIG = {"offsets.topic.num.partitions": 1}
P99_AIM = 2.0
_LEAST_REQUESTS = 1000


@dataclass(frozen=True)
class _Side:
    name: str
    start: Callable[[], RunningBroker]


@dataclass(frozen=True)
class _Loaded:
    """`seconds` is from the broker's first answer to the first with offsets; `cpu_s` from its start."""

    seconds: float
    cpu_s: float
    rss_bytes: int
    beside: Latencies
    alone: Latencies


_FIGURES: Mapping[str, Callable[[_Loaded], float]] = {
    "loaded after, s": lambda run: run.seconds,
    "CPU s": lambda run: run.cpu_s,
    "memory, bytes": lambda run: run.rss_bytes,
    "p99 beside the load to that alone": lambda run: run.beside.p99 / run.alone.p99,
}


def offsets(
    scratch: Path,
    rounds: int,
    rows: Rows,
    counts: Sequence[int] = (100_000, 1_000_000),
    *,
    klog_only: bool = False,
    checkout: bool = False,
) -> str:
    """Loading time, memory, and the latency of small Produce requests meanwhile."""
    lines = [f"loading of committed offsets after a restart (medians of {rounds})"]
    for count in counts:
        with _sides(scratch, klog_only=klog_only, checkout=checkout) as sides:
            taken: list[list[_Loaded]] = [[] for _ in sides]
            for side in sides:
                with _running(side) as broker:
                    _commit(broker, count)
            for _ in range(rounds):
                for side, runs in zip(sides, taken, strict=True):
                    with _running(side) as broker:
                        runs.append(_loaded(broker, count))
        if len(taken) == 2:
            for title, figure in _FIGURES.items():
                rows.add(
                    f"{count} offsets, {title}", *(statistics.median(map(figure, runs)) for runs in taken)
                )
        lines += _described(count, [side.name for side in sides], taken)
    return "\n".join(lines)


@contextmanager
def _sides(scratch: Path, *, klog_only: bool, checkout: bool) -> Iterator[list[_Side]]:
    """klog and Kafka, to be started on their directories as often as wanted."""
    work = scratch / "brokers"
    shutil.rmtree(work, ignore_errors=True)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, work, ignore_errors=True)
        sides = [_Side("klog", lambda: start_klog(work / "klog", _CONFIG, checkout=checkout))]
        if not klog_only:
            hosts = stack.enter_context(ZooKeeperServer(work / "zookeeper")).hosts
            sides.append(_Side("Kafka", lambda: start_kafka(work / "kafka", hosts, _CONFIG)))
        yield sides


@contextmanager
def _running(side: _Side) -> Iterator[RunningBroker]:
    broker = side.start()
    try:
        yield broker
    finally:
        broker.stop()


def _group(number: int) -> str:
    return f"group-{number}"


def _commit(broker: RunningBroker, count: int) -> None:
    """Commit so many offsets, of groups that have one for each partition."""
    with closing(Admin(broker.port)) as admin:
        admin.send(find_coordinator_frame(_group(0)), FIND_COORDINATOR_ANSWER)
        admin.create(SMALL_TOPIC, {})
        admin.create(_TOPIC, {}, partitions=_PARTITIONS)
        answer = commit_answer(_TOPIC)
        for number in range(-(-count // _PARTITIONS)):
            partitions = range(min(_PARTITIONS, count - number * _PARTITIONS))
            admin.send(commit_frame(_group(number), _TOPIC, partitions), answer)


def _loaded(broker: RunningBroker, count: int) -> _Loaded:
    """Produces from the broker's first moments until the last group has its offsets, and then alone."""
    start_s = time.perf_counter()
    last = offset_fetch_frame(_group((count - 1) // _PARTITIONS), _TOPIC)
    loaded_s = 0.0
    with closing(Admin(broker.port)) as admin, closing(_Asking(broker.port, last)) as asking:

        def is_loading() -> bool:
            nonlocal loaded_s
            if not loaded_s and asking.has_offsets():
                loaded_s = time.perf_counter() - start_s
            if not loaded_s and time.perf_counter() - start_s > _TIMEOUT_S:
                raise BenchmarkError(f"{broker.name} has not loaded its offsets in {_TIMEOUT_S} s")
            return not loaded_s

        admin.send(produce_frame(SMALL_TOPIC, batch_of(SMALL_BATCH_BYTES)), produce_answer(SMALL_TOPIC))
        asking.has_offsets()  # what the broker imports for it is no part of the load
        beside = small_requests(broker.port, is_loading)
        cpu_s, rss_bytes = broker.cpu_s(), broker.rss_bytes()
        until_s = time.perf_counter() + _ALONE_S

        def goes_on() -> bool:
            asking.has_offsets()  # it takes time of the measuring thread beside the load, too
            return time.perf_counter() < until_s

        alone = small_requests(broker.port, goes_on)
    return _Loaded(loaded_s, cpu_s, rss_bytes, latencies(beside), latencies(alone))


class _Asking:
    """Asks for one offset over a connection of its own."""

    def __init__(self, port: int, frame: bytes) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port), _TIMEOUT_S)
        self._frame = frame

    def has_offsets(self) -> bool:
        """Whether the group is loaded."""
        self._sock.sendall(self._frame)
        answer = self._receive(struct.unpack(">i", self._receive(4))[0])
        (error,) = struct.unpack_from(">h", answer, len(answer) - 2)
        if error and error not in NOT_YET:
            raise BenchmarkError(f"OffsetFetch is answered with error code {error}")
        if not error and struct.unpack_from(">q", answer, 4 + 4 + 4 + 2 + len(_TOPIC) + 4 + 4)[0] < 0:
            raise BenchmarkError("a committed offset is lost")
        return not error

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._sock.recv(size - len(data))
            if not more:
                raise BenchmarkError("the broker closed the connection")
            data += more
        return data

    def close(self) -> None:
        self._sock.close()


def _described(count: int, names: Sequence[str], taken: Sequence[Sequence[_Loaded]]) -> list[str]:
    def medians(figure: Callable[[_Loaded], float]) -> list[float]:
        return [statistics.median(map(figure, runs)) for runs in taken]

    def each(figure: Callable[[_Loaded], float], form: Callable[[float], str]) -> str:
        return ", ".join(f"{name} {form(value)}" for name, value in zip(names, medians(figure), strict=True))

    seconds = medians(lambda run: run.seconds)
    verdict = (
        f": {seconds[0] / seconds[1]:.2f} {judge(seconds[0] / seconds[1], 1)}" if len(seconds) == 2 else ""
    )
    ratios = medians(lambda run: run.beside.p99 / run.alone.p99)
    # Of fewer requests the 99th percentile says nothing.
    enough = min(medians(lambda run: run.beside.requests)) >= _LEAST_REQUESTS
    p99_verdict = judge(ratios[0], P99_AIM) if enough else "(too few requests for a verdict)"
    beside = ", ".join(f"{name} {ratio:.2f} times" for name, ratio in zip(names, ratios, strict=True))
    return [
        f"  {count:,} offsets",
        "    loaded after: " + each(lambda run: run.seconds, lambda value: f"{value:.2f} s") + verdict,
        "    CPU since the start: " + each(lambda run: run.cpu_s, lambda value: f"{value:.2f} s"),
        "    memory: " + each(lambda run: run.rss_bytes, mib),
        f"    p99 of Produce, {SMALL_PER_S} a second, alone: "
        + each(lambda run: run.alone.p99, lambda value: f"{value:.2f} ms"),
        "    p99 beside the load: "
        + each(lambda run: run.beside.p99, lambda value: f"{value:.2f} ms")
        + f"; {beside}; klog {p99_verdict}",
        "    requests beside the load: "
        + each(lambda run: run.beside.requests, lambda value: f"{value:,.0f}"),
        "    longest beside the load: " + each(lambda run: run.beside.most, lambda value: f"{value:.1f} ms"),
    ]
