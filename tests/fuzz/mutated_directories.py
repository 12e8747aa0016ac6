"""Checks verify, recover and rebuild-index against each other on damaged partition directories.

    python -m tests.fuzz.mutated_directories 0 10000

checks the seeds 0 to 9999 and prints those that fail. A seed names a partition of the fixtures and its
damage (`tests.fuzz.mutations`). The test suite checks a few hundred seeds.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path

from klog.formats.names import FileKind
from klog.storage.repair.index_rebuild import rebuild, tasks_of
from klog.storage.repair.index_reports import RebuildOptions
from klog.storage.repair.problem import REBUILD, RECOVER, Problem
from klog.storage.repair.producer_rebuild import rebuild_snapshots
from klog.storage.repair.recovery import plan_recovery
from klog.storage.repair.recovery_plan import Cut, RecoveryPlan, RecoverySettings, SetAside, SplitOff
from klog.storage.repair.recovery_run import run_recovery
from klog.storage.repair.segment_scan import IndexSettings
from klog.storage.repair.verify import scope_of, verify
from tests.corpora import PartitionDirectory, corpora, partitions
from tests.fuzz.mutations import damage

INDEXES = IndexSettings(interval_bytes=1024, max_bytes=16384)
NOW_MS = 1_795_253_400_000
SETTINGS = RecoverySettings(NOW_MS, INDEXES, keeps_valid=True)
LARGEST_SOURCE_BYTES = 400_000
MAX_DECOMPRESSED_BYTES = 16 << 20


@cache
def sources() -> tuple[PartitionDirectory, ...]:
    """Small undamaged partitions of all Kafka versions."""
    return tuple(
        partition
        for partition in partitions([corpus for corpus in corpora() if not corpus.is_corrupt])
        if partition.files(".log")
        and "." not in partition.name
        and sum(file.stat().st_size for file in partition.files()) < LARGEST_SOURCE_BYTES
    )


def damaged_copy(seed: int, root: Path) -> tuple[Path, str]:
    """A damaged copy of a partition below `root`, and what was done to it."""
    chance = random.Random(seed)
    source = chance.choice(sources())
    directory = root / "logs" / source.name
    shutil.copytree(source.path, directory)
    done = damage(directory, chance)
    return directory, f"seed {seed}, {source}: {'; '.join(done)}"


def verified(directory: Path) -> list[Problem]:
    """What verify says of a partition directory."""
    options = RebuildOptions(NOW_MS, INDEXES, check=True)
    limit = MAX_DECOMPRESSED_BYTES
    scope = scope_of([str(directory)])
    return list(verify(scope, options, on_bytes=lambda _: None, max_decompressed_bytes=limit))


def recovered(directory: Path, root: Path) -> RecoveryPlan:
    """Recover a partition directory; returns the plan."""
    plan = plan_recovery(str(directory), SETTINGS)
    run_recovery(plan, SETTINGS, str(root / "quarantine"))
    return plan


def repaired_by(cure: str, directory: Path, root: Path) -> None:
    """Do what a problem names as its repair."""
    if cure.startswith("delete the file"):
        (directory / FileKind.LEADER_EPOCH_CHECKPOINT).unlink(missing_ok=True)
        recovered(directory, root)
    elif cure.startswith(REBUILD):
        options = RebuildOptions(NOW_MS, INDEXES, force=True, snapshots=True)
        list(rebuild(tasks_of(str(directory)), options, processes=1))
        rebuild_snapshots(str(directory), options)


Identity = tuple[int, int, bytes]


def identities(directory: Path) -> dict[str, Identity]:
    """The inode, the time of the last change (ns) and the content of each file by name."""
    files = (path for path in directory.iterdir() if path.is_file())
    return {path.name: (*_inode_and_time(path), path.read_bytes()) for path in files}


def _inode_and_time(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_ino, found.st_mtime_ns


def touched(before: dict[str, Identity], directory: Path, said: set[str]) -> list[str]:
    """Files that are not as `before`, though verify said nothing of them nor of the segment of their name."""
    after = identities(directory)
    changed = (name for name in sorted(before) if after.get(name) != before[name])
    return [name for name in changed if said.isdisjoint({name, f"{name.partition('.')[0]}.log"})]


def disagreements(directory: Path, root: Path) -> list[str]:
    """Recover a damaged directory; returns what verify and recover disagree about."""
    before = verified(directory)
    files = identities(directory)
    plan = recovered(directory, root)
    said = {Path(problem.file).name for problem in before}
    found = [
        f"verify names recover, which changes nothing: {problem.what}"
        for problem in before
        if problem.cure == RECOVER and not plan.steps
    ]
    made = {step.name for step in plan.steps if isinstance(step, SplitOff)}
    taken = {step.name for step in plan.steps if isinstance(step, Cut | SetAside)} - made
    found += [
        f"verify does not say that {name} is cut or removed"
        for name in sorted(taken)
        if name not in said and f"{name.partition('.')[0]}.log" not in said
    ]
    found += [
        f"recover touched {name}, of which verify says nothing" for name in touched(files, directory, said)
    ]
    again = recovered(directory, root)
    if again.takes_away:
        found.append(f"a second recovery removes more: {again.steps}")
    found += [
        f"recover did not repair {Path(problem.file).name}: {problem.what}"
        for problem in verified(directory)
        if problem.cure == RECOVER
    ]
    for cure in sorted({problem.cure for problem in verified(directory)}):
        repaired_by(cure, directory, root)
    found += [
        f"{problem.cure} did not repair {Path(problem.file).name}: {problem.what}"
        for problem in verified(directory)
        if REBUILD in problem.cure or RECOVER in problem.cure
    ]
    return found


def checked(seed: int, root: Path) -> str | None:
    """What is wrong about one seed; None if nothing is."""
    directory, done = damaged_copy(seed, root)
    found = disagreements(directory, root) if any(directory.glob("*.log")) else []
    return f"{done}\n  " + "\n  ".join(found) if found else None


def main(first: int, end: int) -> int:
    """Check seeds and print what is wrong; returns how many failed."""
    failed = 0
    for seed in range(first, end):
        with tempfile.TemporaryDirectory() as root:
            found = checked(seed, Path(root))
        if found is not None:
            failed += 1
            print(found)  # noqa: T201
    print(f"{failed} of {end - first} failed")  # noqa: T201
    return failed


if __name__ == "__main__":
    sys.exit(1 if main(*map(int, sys.argv[1:3])) else 0)
