"""The CPU time of a benchmark counts processes that end meanwhile; impossible figures are refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.measure import BenchmarkError
from benchmarks.processes import require_possible
from tests.corpora import REPOSITORY

SPENT_S = 0.4
MEASURE = f"""
import os, sys
from benchmarks.processes import adopt_orphans, tree_cpu_s

def spend():
    while sum(os.times()[:2]) < {SPENT_S}:
        pass

def orphan(done):
    # A grandchild whose parent ends at once, without waiting for it: as workers of PySpark's daemon.
    if os.fork() == 0:
        if os.fork() == 0:
            spend()
            os.write(done, b"x")
            os._exit(0)
        os._exit(0)

def waited_for():
    child = os.fork()
    if child == 0:
        spend()
        os._exit(0)
    os.waitpid(child, 0)

adopt_orphans()
before = tree_cpu_s(os.getpid())
if sys.argv[1] == "orphan":
    reader, writer = os.pipe()
    orphan(writer)
    os.close(writer)
    while os.read(reader, 1):
        pass
else:
    waited_for()
print(tree_cpu_s(os.getpid()) - before)
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux")
@pytest.mark.parametrize("how", ["orphan", "waited for"])
def test_a_process_that_has_ended_counts(how: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, how],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert float(done.stdout) >= SPENT_S * 0.9


@pytest.mark.parametrize("cpu_s", [-8.0, -0.01, 1e6])
def test_only_impossible_cpu_times_are_refused(cpu_s: float) -> None:
    for possible_s in (0.0, 9.9):
        require_possible("klog export", possible_s, 10.0)
    with pytest.raises(BenchmarkError, match=r"klog source, a query: .* is impossible"):
        require_possible("klog source, a query", cpu_s, 10.0)
