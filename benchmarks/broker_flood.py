"""Whether replication keeps up while clients flood their listener.

Three brokers with two listeners each, one for clients and one between brokers. Some 2,000 connections to the
leader's listener for clients have a small request each in flight all the time. Meanwhile 100 records a second
are written to a partition with three replicas, over the listener between brokers, so that only their
replication meets the flood. Measured is how long after the leader's log file the files of the followers have
grown as far. So no broker is asked for what is measured.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.broker_failover import KINDS, Cluster, cluster
from benchmarks.broker_requests import in_memory
from benchmarks.measure import BenchmarkError
from benchmarks.request_frames import Admin, batch_of, produce_answer, produce_frame
from benchmarks.request_loads import Load, Programs, prepared
from benchmarks.rows import Rows

CONNECTIONS: Final = 2_000
_SECONDS: Final = 10.0
_RECORDS_PER_S: Final = 100
_RECORD_BYTES: Final = 1_000
_SAMPLES_PER_S: Final = 1_000
_CONFIG: Final[dict[str, str | int]] = {
    "listeners": "CLIENTS://127.0.0.1:{port},BROKERS://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
    "num.replica.fetchers": 1,
}
_FLOODS: Final = (
    Load("flood-api", "ApiVersions 100 B", "api", 100, CONNECTIONS, 1),
    Load("flood-produce", "Produce 200 B", "produce", 200, CONNECTIONS, 1),
)


class Sizes(NamedTuple):
    """The sizes of the leader's and the followers' log files at one moment."""

    at_s: float
    leader: int
    followers: tuple[int, ...]


@dataclass(frozen=True)
class Taken:
    """The lags of one run in ms, how often the ISR changed, and the requests a second of the flood."""

    lags_ms: Sequence[float]
    isr_changes: int
    flood_per_s: float = 0.0

    def lag_ms(self, share: float) -> float:
        ordered = sorted(self.lags_ms)
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def lags_ms(samples: Sequence[Sizes]) -> list[float]:
    """For each growth of the leader's file, how long the slowest follower took to grow as far."""
    found = []
    columns = [[sample.followers[each] for sample in samples] for each in range(len(samples[0].followers))]
    for before, now in pairwise(samples):
        if now.leader == before.leader:
            continue
        caught_up = max(bisect_left(column, now.leader) for column in columns)
        if caught_up == len(samples):
            break  # the run has ended before
        found.append(max(0.0, samples[caught_up].at_s - now.at_s) * 1000)
    if not found:
        raise BenchmarkError("no record was replicated")
    return found


class _Victim:
    """A partition that the controller leads and the others follow, with a writer and a look at its files."""

    def __init__(self, found: Cluster, topic: str) -> None:
        self._found = found
        self._topic = topic
        self.leader = found.controller()
        followers = [number for number in range(len(found.brokers)) if number != self.leader]
        replicas = (self.leader, *followers)
        found.create(topic, [replicas])
        self._files = [found.brokers[each].logs / f"{topic}-0" / f"{0:020d}.log" for each in replicas]
        endpoints = json.loads(found.tree.get(f"/brokers/ids/{self.leader}")[0])["endpoints"]
        (self._port,) = (int(each.rpartition(":")[2]) for each in endpoints if each.startswith("BROKERS:"))

    def isr_version(self) -> int:
        """How often the partition's state was written."""
        return int(self._found.tree.get(f"/brokers/topics/{self._topic}/partitions/0/state")[1].version)

    def _write(self, stop: threading.Event, failures: list[Exception]) -> None:
        frame, expected = produce_frame(self._topic, batch_of(_RECORD_BYTES), 1), produce_answer(self._topic)
        try:
            with closing(Admin(self._port)) as writer:
                next_s = time.perf_counter()
                while not stop.is_set():
                    writer.send(frame, expected)
                    next_s = max(next_s + 1 / _RECORDS_PER_S, time.perf_counter() - 1)
                    stop.wait(max(0.0, next_s - time.perf_counter()))
        except Exception as failure:
            failures.append(failure)

    def sample(self, is_over: Callable[[], bool]) -> list[Sizes]:
        """The sizes of the files while records are written, until it is over."""
        stop, failures = threading.Event(), list[Exception]()
        writer = threading.Thread(target=self._write, args=(stop, failures))
        writer.start()
        samples = []
        while not (is_over() or failures):
            leader, *followers = (file.stat().st_size for file in self._files)
            samples.append(Sizes(time.perf_counter(), leader, tuple(followers)))
            time.sleep(1 / _SAMPLES_PER_S)
        stop.set()
        writer.join()
        if failures:
            raise failures[0]
        return samples


def _after(seconds: float) -> Callable[[], bool]:
    until_s = time.perf_counter() + seconds
    return lambda: time.perf_counter() > until_s


def _alone(victim: _Victim, seconds: float) -> Taken:
    version = victim.isr_version()
    lags = lags_ms(victim.sample(_after(seconds)))
    return Taken(lags, victim.isr_version() - version)


def _flooded(found: Cluster, victim: _Victim, load: Load, programs: Programs, seconds: float) -> Taken:
    version = victim.isr_version()
    port = found.brokers[victim.leader].port
    with prepared(port, load, load.name, programs.scratch, (victim.leader,)) as ready:
        command = programs.client_command(load, ready, seconds=seconds + 1, requests_most=1 << 40)
        client = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            time.sleep(1)  # all connections are open then
            samples = victim.sample(lambda: client.poll() is not None)
            output, errors = client.communicate()
        finally:
            client.kill()
            client.wait()
    if client.returncode != 0:
        raise BenchmarkError(f"the flood ended: {errors.decode().strip()}")
    figures = json.loads(output)
    return Taken(lags_ms(samples), victim.isr_version() - version, figures["requests"] / figures["seconds"])


def one_round(kind: str, work: Path, programs: Programs, seconds: float, checkout: bool) -> dict[str, Taken]:
    """What one kind of broker does alone and beside each flood, on a new cluster."""
    with cluster(kind, work / f"flood-{kind}", _CONFIG, checkout=checkout) as found:
        victim = _Victim(found, "replicated")
        _alone(victim, 2.0)  # warms up
        taken = {"alone": _alone(victim, seconds / 2)}
        for load in _FLOODS:
            taken[load.title] = _flooded(found, victim, load, programs, seconds)
    return taken


def flood(scratch: Path, rounds: int, rows: Rows, *, klog_only: bool = False, checkout: bool = False) -> str:
    """The lags of followers alone and beside floods, of klog and of Kafka."""
    kinds = KINDS[:1] if klog_only else KINDS
    with in_memory(scratch) as work:
        programs = Programs(work)
        runs = [
            {kind: one_round(kind, work, programs, _SECONDS, checkout) for kind in kinds}
            for _ in range(rounds)
        ]
    lines = [f"replication beside {CONNECTIONS:,} clients that flood another listener (medians of {rounds})"]
    for title in runs[0][kinds[0]]:
        lines.append(f"  {title}")
        lines += [f"    {kind}: {_described([run[kind][title] for run in runs])}" for kind in kinds]
        if len(kinds) == 2:
            ours, peer = (_median([run[kind][title] for run in runs], 0.99) for kind in kinds)
            rows.add(f"lag p99, {title}, ms", ours, peer)
    return "\n".join(lines)


def _median(taken: Sequence[Taken], share: float) -> float:
    return statistics.median(each.lag_ms(share) for each in taken)


def _described(taken: Sequence[Taken]) -> str:
    p50, p99, most = (_median(taken, share) for share in (0.5, 0.99, 1.0))
    changes = sum(each.isr_changes for each in taken)
    text = f"lag p50 {p50:.1f}, p99 {p99:.1f}, longest {most:.1f} ms; {changes} changes of the ISR"
    per_s = statistics.median(each.flood_per_s for each in taken)
    return f"{text}; {per_s:,.0f} requests/s of the flood" if per_s else text
