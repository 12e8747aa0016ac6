"""Runs programs in turns (A B A B) and measures each: wall time, CPU time, peak resident memory.

On Linux the peak of a child process is at least the memory of its parent at the start. So the process that
measures stays small: it imports neither pyarrow nor klog. Other processes generate and convert the data.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.rows import Rows

MIB = 1024 * 1024


@dataclass(frozen=True)
class Run:
    """One process from start to end."""

    wall_s: float
    cpu_s: float
    peak_rss_bytes: int


@dataclass(frozen=True)
class Contestant:
    """A program under measurement. It must end with status 0."""

    label: str
    command: Sequence[str]


@dataclass(frozen=True)
class Medians:
    """The median of each figure over several runs of one contestant."""

    label: str
    wall_s: float
    cpu_s: float
    peak_rss_bytes: int
    runs: int

    def ratio_to(self, other: Medians) -> float:
        """How many times as long `other` took."""
        return other.wall_s / self.wall_s


class BenchmarkError(Exception):
    """A contestant failed, or two contestants that must agree did not. Their times would mean nothing."""


def run_once(contestant: Contestant, stdout: Path | None = None) -> Run:
    """Runs it to its end. Its output goes to `stdout` or nowhere. Raises BenchmarkError if it fails."""
    target = os.open(stdout or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        start_s = time.perf_counter()
        process = subprocess.Popen(
            contestant.command,
            stdin=subprocess.DEVNULL,
            stdout=target,
            stderr=subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )
        assert process.stderr is not None
        error_text = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - start_s
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stderr.close()
    finally:
        os.close(target)
    if process.returncode != 0:
        error_end = error_text.decode("utf-8", "replace")[-2000:]
        raise BenchmarkError(f"{contestant.label} ended with status {process.returncode}: {error_end}")
    # ru_maxrss is in KiB on Linux.
    return Run(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def in_turns(contestants: Sequence[Contestant], rounds: int) -> list[Medians]:
    """Runs the contestants in turns (A B A B), so that other work of the machine affects all of them.

    Returns their medians in the same order.
    """
    runs: list[list[Run]] = [[] for _ in contestants]
    for _ in range(rounds):
        for index, contestant in enumerate(contestants):
            runs[index].append(run_once(contestant))
    return [medians(contestant.label, taken) for contestant, taken in zip(contestants, runs, strict=True)]


def medians(label: str, runs: Sequence[Run]) -> Medians:
    """The medians of wall and CPU time, and the largest peak of memory of all runs."""
    return Medians(
        label,
        statistics.median(run.wall_s for run in runs),
        statistics.median(run.cpu_s for run in runs),
        max(run.peak_rss_bytes for run in runs),
        len(runs),
    )


def require_same_output(contestants: Sequence[Contestant], scratch: Path) -> int:
    """Runs each contestant once and compares their outputs byte for byte. Returns the size of the output.

    This also warms up the contestants. Raises BenchmarkError if the outputs differ.
    """
    first: Path | None = None
    size_bytes = 0
    for index, contestant in enumerate(contestants):
        output = scratch / f"output-{index}"
        run_once(contestant, output)
        if first is None:
            first, size_bytes = output, output.stat().st_size
            continue
        position_bytes = first_difference(first, output)
        output.unlink()
        if position_bytes is not None:
            raise BenchmarkError(
                f"{contestant.label} differs from {contestants[0].label} at byte {position_bytes}"
            )
    if first is not None:
        first.unlink()
    return size_bytes


def first_difference(left: Path, right: Path) -> int | None:
    """The position of the first byte in which two files differ, or None if they are equal."""
    position_bytes = 0
    with left.open("rb") as left_file, right.open("rb") as right_file:
        while True:
            left_chunk, right_chunk = left_file.read(MIB), right_file.read(MIB)
            if left_chunk != right_chunk:
                pairs = zip(left_chunk, right_chunk, strict=False)
                unequal = (index for index, (one, other) in enumerate(pairs) if one != other)
                return position_bytes + next(unequal, min(len(left_chunk), len(right_chunk)))
            if not left_chunk:
                return None
            position_bytes += len(left_chunk)


def table(title: str, results: Sequence[Medians], notes: Mapping[str, str]) -> str:
    """Text for people: the medians of each contestant, then notes with their names (ratios, sizes, rates)."""
    width = max(len(result.label) for result in results)
    lines = [f"{title} (medians of {results[0].runs})"]
    lines.append(f"  {'':{width}}  {'wall s':>8}  {'CPU s':>8}  {'peak MiB':>8}")
    for result in results:
        figures = f"{result.wall_s:8.3f}  {result.cpu_s:8.3f}  {result.peak_rss_bytes / MIB:8.0f}"
        lines.append(f"  {result.label:{width}}  {figures}")
    lines += [f"  {name}: {text}" for name, text in notes.items()]
    return "\n".join(lines)


def add_wall(rows: Rows, load: str, klog: Medians, peer: Medians) -> None:
    """Keep the wall time of both."""
    rows.add(f"{load}, wall s", klog.wall_s, peer.wall_s)


def judge(value: float, aim: float, *, at_most: bool = True) -> str:
    """`(aim: at most 0.5, met)`."""
    met = value <= aim if at_most else value >= aim
    return f"(aim: {'at most' if at_most else 'at least'} {aim:g}, {'met' if met else 'MISSED'})"


def ratio_note(klog: Medians, peer: Medians, wanted: float) -> str:
    """`12.3 times faster (aim: 10, met)`."""
    ratio = klog.ratio_to(peer)
    return f"{ratio:.1f} times faster (aim: {wanted:g}, {'met' if ratio >= wanted else 'MISSED'})"


def limit_note(klog: Medians, limit: Medians, allowed: float) -> str:
    """`1.2 times as long (limit: 1.5, met)`."""
    ratio = klog.wall_s / limit.wall_s
    return f"{ratio:.2f} times as long (limit: {allowed:g}, {'met' if ratio <= allowed else 'MISSED'})"
