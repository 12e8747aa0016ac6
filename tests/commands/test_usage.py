"""Wrong command lines: one line on stderr with the usage, exit code 2, and the nearest name that exists."""

from __future__ import annotations

import pytest

from klog.commands import main
from klog.commands.shared import other_names
from tests.commands.running import Run, runner


@pytest.fixture
def klog(capfd, monkeypatch) -> Run:
    return runner(capfd, monkeypatch)


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        (["dump-segment"], "dump-segment: no file named"),
        (["verify"], "verify: missing PATH..."),
        (["rebuild-index"], "rebuild-index: missing PATH..."),
        (["recover"], "recover: missing PATH..."),
        (["clean"], "clean: missing PATH..."),
        (["export"], "export: missing PATH... and --output"),
        (["export", "here"], "export: missing --output"),
        (["produce"], "produce: missing TOPIC"),
        (["consume"], "consume: missing TOPIC"),
        (["topics"], "topics: missing COMMAND"),
        (["topics", "create"], "topics create: missing TOPIC"),
        (["topics", "add-partitions", "x"], "topics add-partitions: missing --partitions"),
        (["topics", "delete"], "topics delete: missing TOPIC"),
        (["configs"], "configs: missing COMMAND"),
        (["configs", "alter", "--topic", "x"], "configs alter: missing --set, --delete"),
        (["export", "here", "-o"], "export: -o needs a value (usage: klog export [OPTIONS] --output DIR"),
        (["produce", "t", "--key"], "produce: --key needs a value"),
    ],
)
def test_a_command_without_required_arguments_says_in_one_line_what_is_missing(
    klog: Run, arguments: list[str], missing: str
) -> None:
    done = klog(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"klog: {missing}")
    assert f"usage: klog {arguments[0]}" in done.err
    assert done.err.count("\n") == 1


def test_klog_alone_shows_the_commands_and_says_that_one_is_missing(klog: Run) -> None:
    done = klog()
    assert done.code == 2
    assert all(name in done.out for name in main.COMMANDS)
    assert done.err.startswith("klog: missing COMMAND")


@pytest.mark.parametrize(
    ("arguments", "here"),
    [
        (["topic", "list"], "topics"),
        (["consumer-groups", "--list"], "groups"),
        (["kafka-topics.sh", "--list"], "topics"),
        (["kafka-dump-log", "x"], "dump-segment"),
        (["cluster", "info"], "cluster describe"),
        (["reassign", "status"], "reassign list"),
        (["topics", "ls"], "topics list"),
        (["topics", "rm", "x"], "topics delete"),
        (["acls", "create"], "acls add"),
    ],
)
def test_a_name_from_another_tool_is_said_as_it_is_here(klog: Run, arguments: list[str], here: str) -> None:
    done = klog(*arguments)
    assert (done.code, done.out) == (2, "")
    assert f"(it is called klog {here} here; usage: " in done.err


def test_names_from_other_tools_are_none_of_klog_and_stand_for_one_of_klog() -> None:
    def exists(path: str) -> bool:
        name, _, rest = path.partition(" ")
        subcommands = getattr(main.load(name), "commands", {})
        return name in main.COMMANDS and (not rest or rest.split()[0] in subcommands)

    for given, path in other_names.COMMANDS.items():
        assert given not in main.COMMANDS
        assert exists(path)
    for (group, given), path in other_names.SUBCOMMANDS.items():
        assert given not in main.load(group).commands
        assert all(map(exists, path.split(", or ")))


@pytest.mark.parametrize(
    ("arguments", "nearest"),
    [
        (["configs", "alter", "t", "a=1"], "unexpected argument a=1 (did you mean --set a=1?"),
        (["verfy", "x"], "there is no command verfy (did you mean verify?"),
        (["dump", "x"], "there is no command dump (did you mean dump-segment?"),
        (["topics", "lst"], "topics: there is no command lst (did you mean list?"),
        (["verify", "--jsn", "x"], "verify: there is no option --jsn (did you mean --json?"),
        (["verify", "--shal", "x"], "verify: there is no option --shal (did you mean --shallow?"),
        (
            ["dump-segment", "-f", "tabel", "x"],
            "Invalid value for '--format' / '-f': 'tabel' is not one of",
        ),
        (["dump-segment", "-f", "tabel", "x"], "did you mean table?"),
        (["topics", "--creat", "x"], "topics: there is no option --creat (did you mean --create?"),
        (["acls", "add", "--allow", "User:a"], "(did you mean --allow-principal or --allow-host?"),
        (["serve", "extra"], "serve: unexpected argument extra (usage: klog serve [OPTIONS]"),
        (["formats", "recordbatch"], "did you mean record-batch?"),
    ],
)
def test_unknown_names_suggest_the_nearest(klog: Run, arguments: list[str], nearest: str) -> None:
    done = klog(*arguments)
    assert (done.code, done.out) == (2, "")
    assert nearest in done.err
    assert done.err.count("\n") == 1
    assert "╭" not in done.err


def test_a_name_like_no_other_lists_what_there_is(klog: Run) -> None:
    assert "known are list, describe, create, add-partitions, alter, delete" in klog("topics", "xyz").err
