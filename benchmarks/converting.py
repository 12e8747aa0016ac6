"""Compares `klog convert` from lz4 to zstd with what the codecs alone cost on the same blocks."""

from __future__ import annotations

import os
import shutil
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.contestants import klog, program
from benchmarks.measure import MIB, Medians, Run, medians, run_once
from benchmarks.rows import Rows

WANTED_RATIO = 1.3
WANTED_SCALING = 1.8
MEMORY_LIMIT_BYTES = 150 * MIB


def compare(source: Path, work: Path, rounds: int, rows: Rows) -> str:
    """Converts copies of `source` in turns: in one process with and without joining, and in two processes.

    So it does with a copy that is a single segment, which two processes share.
    """
    codecs: list[Run] = []
    beside: list[float] = []
    single = _in_one_segment(source, work / "single")
    options: dict[str, tuple[str, ...]] = {
        "joined": ("-j", "1"),
        "as they are": ("-j", "1", "--batch-bytes", "0"),
        "two processes": ("-j", "2"),
        "one segment": ("-j", "1", "--all"),
        "one segment, two processes": ("-j", "2", "--all"),
    }
    runs: dict[str, list[Run]] = {name: [] for name in options}
    for _ in range(rounds):
        codecs.append(run_once(program("codecs", "codec_pass", str(source))))
        beside.append(_two_at_once(source))
        for name, found in runs.items():
            copy = _copy(single if name.startswith("one segment") else source, work / "converted")
            arguments = ("--compression", "zstd", "--yes", "--quiet", *options[name])
            found.append(run_once(klog("convert", *arguments, str(copy))))
    peer = medians("codecs", codecs)
    ours = {name: medians(name, found) for name, found in runs.items()}
    for name, each in ours.items():
        rows.add(f"{name}, CPU s beside the codecs'", each.cpu_s, peer.cpu_s)
    lines = [f"  codecs alone  {peer.wall_s:.2f} s, {peer.cpu_s:.2f} s of CPU"]
    lines += [f"  batches {name:12} {_figures(ours[name], peer)}" for name in ("joined", "as they are")]
    for alone, shared in (("joined", "two processes"), ("one segment", "one segment, two processes")):
        scaling = ours[alone].wall_s / ours[shared].wall_s
        verdict = "met" if scaling >= WANTED_SCALING else "MISSED"
        lines.append(f"  {shared}: {scaling:.2f} times as fast (aim: {WANTED_SCALING:g}, {verdict})")
    # Cores that others use, or that are two threads of one, allow no more.
    machine = 2 * peer.wall_s / statistics.median(beside)
    lines.append(
        f"  two passes of the codecs side by side: {machine:.2f} times as fast as one after the other"
    )
    peak_bytes = max(one.peak_rss_bytes for one in ours.values())
    verdict = "met" if peak_bytes < MEMORY_LIMIT_BYTES else "MISSED"
    limit = MEMORY_LIMIT_BYTES // MIB
    return "\n".join([*lines, f"  largest process: {peak_bytes / MIB:.0f} MiB (limit: {limit}, {verdict})"])


def _two_at_once(source: Path) -> float:
    """Seconds that two passes of the codecs take side by side."""
    start_s = time.perf_counter()
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(run_once, [program("codecs", "codec_pass", str(source))] * 2))
    return time.perf_counter() - start_s


def _figures(ours: Medians, peer: Medians) -> str:
    ratio = ours.cpu_s / peer.cpu_s
    verdict = "met" if ratio <= WANTED_RATIO else "MISSED"
    return (
        f"{ours.wall_s:.2f} s, {ours.cpu_s:.2f} s of CPU, "
        f"{ratio:.2f} times the codecs' CPU (aim: {WANTED_RATIO:g}, {verdict})"
    )


def _in_one_segment(source: Path, target: Path) -> Path:
    """The partition with all batches in its first segment."""
    partition = target / "bench-0"
    if not partition.exists():
        partition.mkdir(parents=True)
        logs = sorted(source.glob("*.log"))
        with (partition / logs[0].name).open("wb") as joined:
            for log in logs:
                with log.open("rb") as file:
                    shutil.copyfileobj(file, joined, MIB)
        run_once(klog("rebuild-index", "--quiet", str(partition)))
    return partition


def _copy(source: Path, target: Path) -> Path:
    """A copy of the partition. Its files are linked, because no conversion writes to them."""
    partition = target / "bench-0"
    shutil.rmtree(target, ignore_errors=True)
    partition.mkdir(parents=True)
    for path in source.iterdir():
        os.link(path, partition / path.name)
    return partition
