"""The commands of the page on backups run as written, and its shell lines are commands of klog."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.corpora import REPOSITORY
from tests.docs.console import console_examples, run_console

PAGE = (REPOSITORY / "docs" / "backup.md").read_text(encoding="utf-8")
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
