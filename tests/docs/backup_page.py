"""The page on backups, and its shell blocks run as written at the places of a test."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.corpora import REPOSITORY

PAGE = (REPOSITORY / "docs" / "backup.md").read_text(encoding="utf-8")


def section(heading: str) -> str:
    """The text below a heading, up to the next one."""
    return re.split(r"^#{2,3} ", PAGE.partition(f"# {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def blocks(heading: str, kind: str = "sh") -> list[str]:
    """The blocks of a section that have a kind."""
    return re.findall(rf"```{kind}\n(.*?)```", section(heading), re.DOTALL)


def placed(text: str, places: Mapping[str, object]) -> str:
    """A text of the page with the places of a test for those of the page."""
    for written, place in places.items():
        text = text.replace(written, str(place))
    return text


def environment() -> dict[str, str]:
    """One in which `klog` is this one."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    return {**os.environ, "PATH": path, "LC_ALL": "C.UTF-8"}


def run(
    block: str, places: Mapping[str, object], directory: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a shell block at other places. It ends at the first command that fails."""
    return subprocess.run(
        ["/bin/bash", "-ec", placed(block, places)],
        cwd=directory,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
