"""A directory for temporary files goes with its process, or at the latest with the next one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from klog.storage.files.scratch_directory import scratch_directory

HOLD = """
import sys
from klog.storage.files.scratch_directory import scratch_directory
with scratch_directory("klog-x-") as path:
    open(path + "/data", "w").close()
    print(path, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_it_is_removed_at_the_end(temporary: Path) -> None:
    with scratch_directory("klog-x-") as path:
        assert Path(path).parent == temporary
        assert os.stat(path).st_mode & 0o777 == 0o700
    assert list(temporary.iterdir()) == []


def test_what_a_killed_process_left_is_removed_by_the_next_and_what_a_running_one_uses_is_not(
    temporary: Path,
) -> None:
    (temporary / "klog-x-of-somebody").mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        held = Path(process.stdout.readline().strip())
        with scratch_directory("klog-x-"):
            assert (held / "data").exists()
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert held.exists()
    with scratch_directory("klog-y-"):
        assert held.exists()
    with scratch_directory("klog-x-"):
        assert not held.exists()
    assert [path.name for path in temporary.iterdir()] == ["klog-x-of-somebody"]
