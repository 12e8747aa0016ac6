"""The help of every command: on 80 columns, with whole names, and examples that can be pasted."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from klog.commands import main
from tests.commands.running import Run, runner


def paths() -> Iterator[list[str]]:
    yield []
    for name in main.COMMANDS:
        yield [name]
        yield from ([name, subcommand] for subcommand in getattr(main.load(name), "commands", {}))


PATHS = list(paths())
# These wait, or repeat by themselves.
UNWATCHED = {
    ("backup", "run"),
    ("reassign", "verify"),
    ("reassign", "watch"),
    ("top",),
}
each = pytest.mark.parametrize("path", PATHS, ids=lambda path: " ".join(path) or "klog")


@pytest.fixture
def klog(capfd, monkeypatch) -> Run:
    monkeypatch.setenv("COLUMNS", "80")
    return runner(capfd, monkeypatch)


def commands_of(path: list[str]) -> list[object]:
    command = None if not path else main.load(path[0])
    return [] if command is None else [command.commands[path[1]] if path[1:] else command]


@each
def test_help_keeps_to_80_columns_and_shows_every_option_whole(klog: Run, path: list[str]) -> None:
    done = klog(*path, "--help")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"Usage: {' '.join(['klog', *path])} [OPTIONS]")
    assert max(map(len, done.out.splitlines())) <= 80
    assert "…" not in done.out
    for command in commands_of(path):
        visible = [one for one in command.params if not getattr(one, "hidden", False)]
        options = [name for one in visible for name in one.opts if name.startswith("-")]
        assert all(re.search(rf"^  .*{re.escape(name)}\b", done.out, re.MULTILINE) for name in options)


@each
def test_help_has_no_markup(klog: Run, path: list[str]) -> None:
    shown = klog(*path, "--help").out
    assert not re.search(r"\[/?(?:bold|dim|italic|red|green|cyan|yellow)|`|\*\*", shown)


@each
def test_what_shows_the_state_of_a_cluster_can_be_watched(path: list[str]) -> None:
    for command in commands_of(path):
        options = {name for one in command.params for name in one.opts}
        changes = "--dry-run" in options
        if {"--bootstrap-server", "--output"} <= options and not changes and tuple(path) not in UNWATCHED:
            assert "--watch" in options


@each
def test_every_command_has_examples_that_a_shell_takes_as_they_are(klog: Run, path: list[str]) -> None:
    shown = klog(*path, "--help").out
    if not path:
        return  # the list of commands
    assert "Examples:\n\n  klog " in shown
    examples = shown.partition("Examples:")[2].partition("\n\n")[2].partition("\n\n")[0]
    joined = examples.replace(" \\\n", " ").split("\n")
    assert all(f"klog {path[0]}" in line for line in joined)


def test_a_name_that_is_long_has_its_text_below(klog: Run) -> None:
    shown = klog("export", "--help").out
    assert "  --starting-offsets-by-timestamp-strategy error|latest\n      " in shown
