"""Worker processes end with their parent at Ctrl-C: at once, tidily and without a word of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

SCRIPT = """
import os, sys, time
from klog.storage.files import write_atomically
from klog.storage.processes import worker_processes

def slow_parts():
    yield b"half"
    os.mkdir(sys.argv[1] + ".started")
    for _ in range(6000):  # a signal that comes just before one long sleep would be seen at its end
        time.sleep(0.01)

def write(path):
    write_atomically(path, slow_parts())

try:
    with worker_processes(2) as pool:
        list(pool.map(write, [sys.argv[1]]))
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_an_interrupt_ends_workers_quietly_and_leaves_no_half_written_file(tmp_path: Path) -> None:
    target = tmp_path / "x.index"
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(target)], stderr=subprocess.PIPE, start_new_session=True
    )
    started = tmp_path / "x.index.started"
    until_s = time.monotonic() + 60
    while not started.exists():
        assert process.poll() is None
        assert time.monotonic() < until_s
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, b"")
    assert list(tmp_path.iterdir()) == [started]
