"""The commands of the pages on repairing and cleaning run as written, in order, and print what is shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.corpora import FIXTURES, REPOSITORY
from tests.docs.console import console_examples, run_console

_SHELL_BLOCK = re.compile(r"```sh\n")
_TIME_OF_RECOVERY = re.compile(r"\d{8}T\d{6}Z")


def comparable(text: str, directory: Path) -> list[str]:
    """The lines of the text without what depends on the machine: the directory and the time."""
    text = _TIME_OF_RECOVERY.sub("20261122T120000Z", text.replace(str(directory), "/data"))
    return [line.rstrip() for line in text.splitlines()]


@pytest.mark.parametrize("name", ["mending.md", "cleaning.md", "converting.md"])
def test_commands_print_what_the_page_shows(name: str, tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / name).read_text(encoding="utf-8")
    assert not _SHELL_BLOCK.search(page), "a command without its output is not checked"
    (tmp_path / "fixtures").symlink_to(FIXTURES)
    examples = console_examples(page)
    assert len(examples) > 7
    for command, shown in examples:
        printed = run_console(command, tmp_path)
        assert comparable(printed, tmp_path) == comparable(shown, tmp_path), command
