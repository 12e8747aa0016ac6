"""The commands of the page on metadata print what it shows."""

from __future__ import annotations

from tests.corpora import REPOSITORY
from tests.docs.console import console_examples, run_console

EXAMPLES = console_examples((REPOSITORY / "docs/metadata.md").read_text(encoding="utf-8"))


def test_the_commands_print_what_the_page_shows() -> None:
    assert len(EXAMPLES) == 8
    for command, shown in EXAMPLES:
        assert run_console(command, REPOSITORY).rstrip() == shown.rstrip(), command
