"""Compares `klog export` to Parquet on one machine with pyarrow, which writes the same table from memory.

klog finds, reads, checks, decodes and writes; pyarrow only writes, with the same encodings. CPU seconds are
the sum of all processes, and the peak of memory is that of the largest process.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from benchmarks.contestants import klog, program
from benchmarks.measure import (
    MIB,
    BenchmarkError,
    Contestant,
    Medians,
    add_wall,
    in_turns,
    limit_note,
    run_once,
    table,
)
from benchmarks.rows import Rows

LIMIT = 1.3
PEAK_LIMIT_BYTES = 500 * MIB


def topics(scratch: Path, size_bytes: int, codec: str) -> Path:
    """The log directory with so many bytes of records. It is generated once."""
    place = scratch / f"records-{codec}-{size_bytes // MIB}"
    if not place.exists():
        unfinished = place.with_name(f"{place.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        run_once(program("generator", "generate_records", str(unfinished), str(size_bytes // MIB), codec))
        unfinished.rename(place)
    return place


def against_pyarrow(scratch: Path, output: Path, rounds: int, size_bytes: int, codec: str, rows: Rows) -> str:
    """klog in one process, klog in one process per core, and pyarrow."""
    source = topics(scratch, size_bytes, codec)
    ready = output / "export.arrow"
    exported, written = output / "export", output / "limit.parquet"
    one, all_cores = (_export(source, exported, jobs) for jobs in (1, None))
    run_once(one)
    run_once(program("the table for pyarrow", "parquet_limit", "load", str(exported), str(ready)))
    limit = program(
        "pyarrow, the table in memory", "parquet_limit", "write-as-export", str(ready), str(written)
    )
    run_once(limit)
    ours, ours_all, theirs = in_turns([one, all_cores, limit], rounds)
    add_wall(rows, "one process", ours, theirs)
    add_wall(rows, "one process per core", ours_all, theirs)
    notes = {
        "klog, one process": limit_note(ours, theirs, LIMIT),
        "klog, one process per core": limit_note(ours_all, theirs, LIMIT),
        "CPU": f"{ours.cpu_s / theirs.cpu_s:.2f} times as much in one process, "
        f"{ours_all.cpu_s / theirs.cpu_s:.2f} in several",
        "scaling": f"{ours.ratio_to(ours_all) ** -1:.2f} times as fast in several",
        "rows": _same_rows(exported, ready),
        "sizes": f"{_size(exported) / MIB:.1f} and {written.stat().st_size / MIB:.1f} MiB",
        "largest": _peak_note(ours, ours_all),
    }
    return table(f"export of {size_bytes // MIB} MiB of records, {codec}", [ours, ours_all, theirs], notes)


def _export(source: Path, output: Path, jobs: int | None) -> Contestant:
    """An export into an output directory that a shell empties first, so that klog does not have to."""
    how = () if jobs is None else ("--jobs", str(jobs))
    command = klog("export", str(source), "--output", str(output), "--quiet", *how).command
    script = 'rm -rf "$0" && exec "$@"'
    label = "klog export, one process" if jobs == 1 else "klog export"
    return Contestant(label, ("/bin/sh", "-c", script, str(output), *command))


def _same_rows(exported: Path, ready: Path) -> str:
    done = exported.parent / "rows.txt"
    run_once(program("counter", "parquet_limit", "count", str(exported), str(ready)), done)
    ours, theirs = done.read_text().split()
    if ours != theirs:
        raise BenchmarkError(f"klog wrote {ours} rows, pyarrow {theirs}")
    return f"{int(ours):,}, the same"


def _size(exported: Path) -> int:
    return sum(path.stat().st_size for path in exported.rglob("*.parquet"))


def _peak_note(*results: Medians) -> str:
    peak_bytes = max(result.peak_rss_bytes for result in results)
    verdict = "met" if peak_bytes < PEAK_LIMIT_BYTES else "MISSED"
    return f"{peak_bytes / MIB:.0f} MiB (limit: {PEAK_LIMIT_BYTES // MIB}, {verdict})"
