"""Compares `klog backup run` and `klog restore` with `cp`, and with restic if it is installed.

All sides write to the same disk, and have it synced when they end.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from benchmarks.contestants import klog
from benchmarks.measure import Contestant, Medians, Run, add_wall, judge, medians, run_once
from benchmarks.rows import Rows

WANTED_BACKUP = 0.8
WANTED_RESTORE = 0.5
WANTED_UNCHANGED_S = 2.0
MEMORY_LIMIT_MIB = 150
UNCHANGED_PARTITIONS = 2000
MIB = 1 << 20


def compare(source: Path, work: Path, rounds: int, rows: Rows) -> str:
    """Backs up and restores `source`, a partition's directory, in turns with the peers."""
    work.mkdir(parents=True, exist_ok=True)
    logs, copy, repository, restored = (work / each for each in ("logs", "copy", "repository", "restored"))
    shutil.rmtree(logs, ignore_errors=True)
    shutil.copytree(source, logs / source.name)
    backup = ("backup", "run", str(logs), "--quiet", "-j", "1", "--to")
    restore = ("restore", "--quiet", "--to", str(restored))
    contestants = {
        "cp, sha256sum": (_shell("cp -r {0} {1} && sha256sum {1}/*/*", logs, copy), copy),
        "klog backup run": (klog(*backup, str(repository), "--compression", "none"), repository),
        "klog backup run, zstd": (klog(*backup, str(work / "zstd")), work / "zstd"),
        "cp": (_shell("cp -r {0} {1}", logs, copy), copy),
        "klog restore": (klog(*restore, str(repository)), restored),
        "klog restore, zstd": (klog(*restore, str(work / "zstd")), restored),
    }
    if shutil.which("restic") is not None:
        contestants |= _restic(logs, work)
    runs: dict[str, list[Run]] = {name: [] for name in contestants}
    for _ in range(rounds + 1):
        for name, (contestant, made) in contestants.items():
            shutil.rmtree(made, ignore_errors=True)
            runs[name].append(run_once(contestant))
    found = {name: medians(name, taken[1:]) for name, taken in runs.items()}  # the first round warms up
    lines = [_figures(each) for each in found.values()]
    for ours, peer, wanted in (
        ("klog backup run", "cp, sha256sum", WANTED_BACKUP),
        ("klog backup run, zstd", "cp, sha256sum", WANTED_BACKUP),
        ("klog restore", "cp", WANTED_RESTORE),
        ("klog restore, zstd", "cp", WANTED_RESTORE),
    ):
        add_wall(rows, ours, found[ours], found[peer])
        ratio = found[ours].ratio_to(found[peer])
        lines.append(f"  {ours}: {ratio:.2f} times the speed of {peer} {judge(ratio, wanted, at_most=False)}")
    peak_mib = max(each.peak_rss_bytes for name, each in found.items() if name.startswith("klog")) / MIB
    lines.append(f"  largest process of klog: {peak_mib:.0f} MiB {judge(peak_mib, MEMORY_LIMIT_MIB)}")
    lines.append(_unchanged(work / "unchanged", rounds))
    return "\n".join(lines)


def _unchanged(work: Path, rounds: int) -> str:
    """How long a run takes in which nothing has changed."""
    shutil.rmtree(work, ignore_errors=True)
    for number in range(UNCHANGED_PARTITIONS):
        partition = work / "logs" / f"bench-{number}"
        partition.mkdir(parents=True)
        (partition / f"{0:020d}.log").touch()
    run = klog("backup", "run", str(work / "logs"), "--to", str(work / "repository"), "--quiet")
    for _ in range(2):  # files that were written just now are looked at once more
        run_once(run)
    taken = medians("unchanged", [run_once(run) for _ in range(rounds)])
    verdict = judge(taken.wall_s, WANTED_UNCHANGED_S)
    return f"  {UNCHANGED_PARTITIONS} unchanged partitions: {taken.wall_s:.2f} s {verdict}"


def _restic(logs: Path, work: Path) -> dict[str, tuple[Contestant, Path]]:
    place = work / "restic"
    init = f"RESTIC_PASSWORD=x restic -q -r {shlex.quote(str(place))}"
    command = f"{init} init && {init} backup {{0}}"
    return {"restic backup": (_shell(command, logs, place), place)}


def _shell(command: str, source: Path, target: Path) -> Contestant:
    """A command line with the paths, and a sync of the file system after it."""
    paths = [shlex.quote(str(each)) for each in (source, target)]
    words: Sequence[str] = ("sh", "-c", f"{command.format(*paths)} && sync -f {paths[1]}")
    return Contestant(command.split(maxsplit=1)[0], words)


def _figures(each: Medians) -> str:
    peak_mib = each.peak_rss_bytes / MIB
    return f"  {each.label:22} {each.wall_s:6.2f} s, {each.cpu_s:6.2f} s of CPU, {peak_mib:4.0f} MiB"
