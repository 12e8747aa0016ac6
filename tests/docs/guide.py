"""Guides whose commands and programs run in order, and print what the page shows."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

from tests.docs.console import run_console

_BLOCK = re.compile(r"```(console|python)\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)
_RATE = re.compile(r" in [\d.]+ s, [\d.]+ [KMG]?i?B/s")
_FILE_SIZE = re.compile(r"( in \d+ files?), [\d.]+ [KMG]?i?B")  # pyarrow writes its version into each file
_HERE = "/srv/guide"

Example = tuple[str, str, str]


def examples(page: str) -> list[Example]:
    """Each example: its kind, the text to run, and its output. Commands of a console block are separate."""
    found: list[Example] = []
    for kind, text, shown in _BLOCK.findall(page):
        if kind == "python":
            found.append((kind, text, shown))
            continue
        for example in text.split("$ ")[1:]:
            command, _, output = example.partition("\n")
            found.append((kind, command, output))
    return found


def comparable(text: str, directory: Path) -> list[str]:
    """The lines of the text without what depends on the machine: the directory and the speed."""
    text = _RATE.sub(" in a moment", text.replace(str(directory), _HERE))
    text = _FILE_SIZE.sub(r"\1", text)
    return [line.rstrip() for line in text.strip().splitlines()]


def run(example: Example, directory: Path, names: dict[str, object]) -> None:
    """Run an example, whose program shares `names` with others, and compare what it prints."""
    kind, text, shown = example
    if kind == "console":
        printed = run_console(text, directory)
    else:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(text, "guide.md", "exec"), names)
        printed = out.getvalue()
    assert comparable(printed, directory) == comparable(shown, directory), text
