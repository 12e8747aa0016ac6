"""The commands of the page on formats print what it shows."""

from __future__ import annotations

import pytest

from tests.corpora import REPOSITORY
from tests.docs.console import console_examples, run_console

EXAMPLES = console_examples((REPOSITORY / "docs/formats.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("command", "shown"), EXAMPLES, ids=[command for command, _ in EXAMPLES])
def test_a_command_prints_what_the_page_shows(command: str, shown: str) -> None:
    assert run_console(command, REPOSITORY).rstrip() == shown.rstrip()
