"""What a single request costs: ready-made requests on klog and on Kafka, both with their logs in memory.

A small C client sends the requests (`ready_frames.c`), so that the client takes little of the CPU. Both
brokers run, warmed, and get each load in turns. The same requests also go to a C program that receives,
writes or sends the same bytes and does nothing else (`no_broker.c`). No broker can cost less. The code calls
its runs `bare`.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.brokers import both, klog_alone
from benchmarks.measure import BenchmarkError, judge
from benchmarks.processes import tree_cpu_s
from benchmarks.replicated import replicated
from benchmarks.request_loads import (
    LOADS,
    REPLICATED_LOADS,
    SECONDS,
    WARM_UP_LOADS,
    Load,
    Measured,
    Programs,
    prepared,
)
from benchmarks.rows import Rows

_IN_MEMORY = Path("/dev/shm")
# The memory of a deleted topic is free again soon; by default a minute passes.
_CONFIG: dict[str, str | int] = {"log.segment.delete.delay.ms": 100}
# Java compiles the code that it runs often while it runs: the first figures of a load would not be its last.
_WARM_UP_TIMES = 2
RATE_AIM = 1.2


class Target(Protocol):
    """A broker that is measured."""

    @property
    def name(self) -> str: ...

    @property
    def port(self) -> int: ...

    @property
    def replicas(self) -> Sequence[int]: ...

    def cpu_s(self) -> float: ...


@dataclass(frozen=True)
class RunningProcess:
    """A broker that somebody else started."""

    name: str
    port: int
    pid: int
    replicas: Sequence[int] = ()

    def cpu_s(self) -> float:
        return tree_cpu_s(self.pid)


@dataclass(frozen=True)
class Options:
    """Which loads (all if empty; a name may be shortened), and which brokers.

    `running` is a port and a process id. `checkout` is klog alone, on the modules of this checkout as they
    stand. `replicated` is three brokers of each kind, and all that is written has three replicas.
    """

    loads: Sequence[str] = ()
    klog_only: bool = False
    checkout: bool = False
    running: tuple[int, int] | None = None
    seconds: float = SECONDS
    replicated: bool = False

    @property
    def alone(self) -> bool:
        return self.klog_only or self.checkout or self.running is not None

    def chosen_loads(self) -> list[Load]:
        loads = REPLICATED_LOADS if self.replicated else LOADS
        chosen = [load for load in loads if not self.loads or load.name.startswith(tuple(self.loads))]
        if not chosen:
            names = ", ".join(load.name for load in loads)
            raise BenchmarkError(f"no load has such a name; there are {names}")
        return chosen


Runs = list[Measured]


def compare(scratch: Path, rounds: int, figures: Rows, options: Options) -> str:
    """The figures of each load, and a table of them all (Markdown) at the end."""
    loads = options.chosen_loads()
    with in_memory(scratch) as work:
        programs = Programs(work)
        lines = [f"ready-made requests, logs in {work.parent} (medians of {rounds})"]
        rows = []
        with _brokers(work, options) as brokers:
            if len(brokers) == 2:
                for load in WARM_UP_LOADS:
                    _measure(load, brokers, programs, 0, options.seconds)
            for load in loads:
                try:
                    *taken, bare = _measure(load, brokers, programs, rounds, options.seconds)
                except BenchmarkError as error:
                    lines.append(f"  {load.title}: NOT MEASURED: {error}")
                    continue
                lines.append(f"  {load.title}")
                lines += _described(load, brokers, taken, bare)
                if len(taken) == 2:
                    rows.append(_row(load, taken[0], taken[1], bare))
                    figures.add(f"{load.name}, requests/s", *map(_per_s, taken))
                    figures.add(f"{load.name}, broker CPU us", *map(_cpu_us, taken))
                print(f"  {load.title}: done", file=sys.stderr, flush=True)
    return "\n".join([*lines, *_table(rows)])


@contextmanager
def in_memory(scratch: Path) -> Iterator[Path]:
    """A directory in memory; below `scratch` if this machine has none."""
    parent = _IN_MEMORY if _IN_MEMORY.is_dir() else scratch
    with tempfile.TemporaryDirectory(prefix="klog-bench-", dir=parent) as work:
        yield Path(work)


@contextmanager
def _brokers(work: Path, options: Options) -> Iterator[Sequence[Target]]:
    if options.running is not None:
        port, pid = options.running
        yield [RunningProcess(f"process {pid}", port, pid)]
    elif options.replicated:
        with replicated(work, _CONFIG, alone=options.alone, checkout=options.checkout) as clusters:
            yield clusters
    elif options.alone:
        with klog_alone(work, _CONFIG, checkout=options.checkout) as brokers:
            yield brokers
    else:
        with both(work, _CONFIG) as brokers:
            yield brokers


def _measure(
    load: Load, brokers: Sequence[Target], programs: Programs, rounds: int, seconds: float
) -> list[Runs]:
    """The runs of each broker, then those without a broker (`bare`), in turns. Round 0 warms up."""
    taken: list[Runs] = [[] for _ in (*brokers, None)]
    for number in range(rounds + 1):
        run_s = seconds if number else _WARM_UP_TIMES * seconds
        for index, broker in enumerate(brokers):
            topic = f"bench-{load.name}-{number}"
            with prepared(broker.port, load, topic, programs.scratch, broker.replicas) as ready:
                found = programs.run_client(load, ready, seconds=run_s, cpu_s=broker.cpu_s)
                bare = programs.run_bare(load, ready, seconds=min(1.0, seconds)) if index == 0 else None
            if number:
                taken[index].append(found)
                if bare is not None:
                    taken[-1].append(bare)
    return taken


def _median(runs: Runs, figure: Callable[[Measured], float]) -> float:
    return statistics.median(map(figure, runs))


def _per_s(runs: Runs) -> float:
    return _median(runs, lambda run: run.per_s)


def _cpu_us(runs: Runs) -> float:
    return _median(runs, lambda run: run.cpu_us)


def _client_us(runs: Runs) -> float:
    return _median(runs, lambda run: run.client_cpu_s / run.requests * 1e6)


def _described(load: Load, brokers: Sequence[Target], taken: Sequence[Runs], bare: Runs) -> list[str]:
    ours = taken[0]
    rates = ", ".join(
        f"{broker.name} {_per_s(runs):,.0f}" for broker, runs in zip(brokers, taken, strict=True)
    )
    cpu = ", ".join(f"{broker.name} {_cpu_us(runs):.1f}" for broker, runs in zip(brokers, taken, strict=True))
    bare_ratio = _cpu_us(ours) / _cpu_us(bare)
    bare_line = f"no broker, the same bytes: {_cpu_us(bare):.1f} us; {brokers[0].name} {bare_ratio:.2f} times"
    if len(taken) == 2:
        peer = taken[1]
        rate_ratio, cpu_ratio = _per_s(ours) / _per_s(peer), _cpu_us(ours) / _cpu_us(peer)
        rates += f": {rate_ratio:.2f} {judge(rate_ratio, RATE_AIM, at_most=False)}"
        cpu += f": {cpu_ratio:.2f}"
        cpu += f" {_cpu_verdict(load, cpu_ratio, bare_ratio)}" if load.cpu_ratio_aim else ""
    return [
        f"    requests/s: {rates}",
        f"    broker CPU us a request: {cpu}",
        f"    {bare_line}; the client itself {_client_us(ours):.1f} us",
    ]


def _cpu_verdict(load: Load, cpu_ratio: float, bare_ratio: float) -> str:
    assert load.cpu_ratio_aim is not None
    met = cpu_ratio <= load.cpu_ratio_aim
    aim = f"aim: at most {load.cpu_ratio_aim:g}"
    if load.bare_ratio_aim is not None:
        met = met or bare_ratio <= load.bare_ratio_aim
        aim += f", or at most {load.bare_ratio_aim:g} times no broker"
    return f"({aim}, {'met' if met else 'MISSED'})"


def _row(load: Load, ours: Runs, peer: Runs, bare: Runs) -> str:
    rate = f"{_per_s(ours):,.0f} / {_per_s(peer):,.0f} = {_per_s(ours) / _per_s(peer):.2f}"
    cpu = f"{_cpu_us(ours):.1f} / {_cpu_us(peer):.1f} = {_cpu_us(ours) / _cpu_us(peer):.2f}"
    return f"| {load.title} | {rate} | {cpu} | {_cpu_us(bare):.1f} |"


def _table(rows: Sequence[str]) -> list[str]:
    if not rows:
        return []
    head = "| load | requests/s, klog / Kafka | broker CPU us a request, klog / Kafka | no broker |"
    return ["", head, "| --- | --- | --- | --- |", *rows]
