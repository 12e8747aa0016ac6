"""Runs the `$ command` lines of a page's console blocks, each in its own shell, and gives their output."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

_CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)


def console_examples(page: str) -> list[tuple[str, str]]:
    """Every `$ command` of a page's console blocks, with the output shown below it."""
    found: list[tuple[str, str]] = []
    for block in _CONSOLE.findall(page):
        for example in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = example.partition("\n")
            found.append((command, output))
    return found


def run_console(command: str, directory: Path) -> str:
    """What a command writes to stdout and stderr, on a terminal of 116 columns."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        ["/bin/bash", "-c", f"{{ {command}\n}} 2>&1"],
        cwd=directory,
        env={**os.environ, "PATH": path, "COLUMNS": "116", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        check=False,
        text=True,
        encoding="utf-8",
    )
    return done.stdout
