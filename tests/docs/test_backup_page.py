"""The commands of the page on backups run as written, and its shell lines are commands of klog."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.backup.repositories import log_files
from tests.corpora import REPOSITORY
from tests.docs.backup_page import PAGE, blocks, run
from tests.docs.console import console_examples, run_console
from tests.export.logs import batch, replica, write_segment

LINES = re.findall(r"^(?:ExecStart=\S*/)?(klog (?:backup|restore) .+)$", PAGE, re.MULTILINE)


def test_the_examples_run_as_written(tmp_path: Path) -> None:
    (tmp_path / "fixtures").symlink_to(REPOSITORY / "fixtures")
    examples = console_examples(PAGE)
    assert examples
    for command, shown in examples:
        assert run_console(command, tmp_path).splitlines() == shown.splitlines()


@pytest.mark.parametrize("line", LINES)
def test_the_other_lines_have_options_that_exist(line: str) -> None:
    words = shlex.split(line)
    command = words[1:3] if words[1] == "backup" else words[1:2]
    shown = subprocess.run(
        [sys.executable, "-m", "klog", *command, "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert {word for word in words if word.startswith("--")} <= set(re.findall(r"--[a-z-]+", shown))


def test_garbage_is_left_behind_and_a_drill_is_clean_as_the_page_says(tmp_path: Path) -> None:
    """The blocks run as written, at other places and at a moment after which garbage came."""
    logs = replica(tmp_path / "kafka" / "orders-0", [batch(0, 5, at=1000)]).parent
    places = {
        "s3://backups/cluster": tmp_path / "repository",
        "/var/lib/kafka-restored": tmp_path / "restored",
        "/var/lib/kafka": logs,
        "/mnt/": f"{tmp_path}/mnt-",
        "2026-11-24T10:00:00Z": "1970-01-01T00:00:05Z",
    }

    write_segment(logs / "orders-0", [batch(5, 5, at=9000)])
    back, beside = blocks("A bad deployment has written garbage since 10:00")
    (drill,) = blocks("A restore drill")

    drill = drill.replace("--at 1h", "")
    for block in (back, beside.replace("--at 1h", "--at 1970-01-01T00:00:05Z"), drill, drill):
        done = run(block, places)
        assert done.returncode == 0, f"{block}{done.stdout}{done.stderr}"

    for directory in (tmp_path / "restored" / "orders-0", tmp_path / "mnt-orders" / "orders-before-0"):
        assert log_files(directory) == {f"{0:020d}.log": batch(0, 5, at=1000)}
    assert b"".join(log_files(tmp_path / "mnt-drill" / "orders-0").values()) == batch(0, 5, at=1000) + batch(
        5, 5, at=9000
    )
