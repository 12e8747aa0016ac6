"""Every command that changes something keeps to one rule (docs/commands.md).

What deletes or overwrites asks, and off a terminal it changes nothing without `--yes`. All of them can be
tried with `--dry-run` and tell programs as JSON what they did. The command lines of Kafka's tools never ask.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from klog.commands import main
from tests.commands.asking import keeps_to_the_rule
from tests.commands.running import Run
from tests.corpora import Corpus
from tests.storage.partition_copies import contents

ASKS = {
    "acls remove",
    "adopt",
    "backup prune",
    "clean",
    "cluster unregister",
    "convert",
    "delete-records",
    "elect-leader",
    "groups delete",
    "groups delete-offsets",
    "metadata convert",
    "profile remove",
    "reassign cancel",
    "reassign execute",
    "recover",
    "tokens expire",
    "topics delete",
    "transactions abort",
    "users delete",
}
"""They delete or overwrite what no other command brings back, or move data."""

ASKS_NOTHING = {
    "acls add",
    "configs alter",
    "groups reset-offsets",  # shows the offsets; --execute sets them
    "profile add",
    "profile use",
    "quotas alter",
    "rebuild-index",
    "restore",
    "tokens create",
    "tokens renew",
    "topics add-partitions",
    "topics alter",
    "topics create",
    "users set-password",
}
"""They make something, or set what can be set again."""

RUNS = {"consume", "export", "produce", "serve", "users alter", "zookeeper"}
"""They write what they are given to write, or are only Kafka's own command lines."""


def leaves() -> Iterator[tuple[str, object]]:
    """Every command with its name."""
    for name in main.COMMANDS:
        command = main.load(name)
        subcommands = getattr(command, "commands", None)
        if subcommands is None:
            yield name, command
            continue
        for subname, subcommand in subcommands.items():
            yield f"{name} {subname}", subcommand


OPTIONS = {name: {option for one in command.params for option in one.opts} for name, command in leaves()}


def test_every_command_is_known_to_change_something_or_nothing() -> None:
    changing = {name for name, options in OPTIONS.items() if options & {"--yes", "--dry-run"}}
    assert changing - RUNS == ASKS | ASKS_NOTHING
    assert not (ASKS | ASKS_NOTHING | RUNS) - OPTIONS.keys()


@pytest.mark.parametrize("name", sorted(ASKS | ASKS_NOTHING))
def test_a_command_that_changes_something_can_be_tried_and_says_what_it_did(name: str) -> None:
    assert "--dry-run" in OPTIONS[name]
    assert "--json" in OPTIONS[name]


@pytest.mark.parametrize("name", sorted(ASKS | ASKS_NOTHING))
def test_only_a_command_that_asks_has_yes(name: str) -> None:
    assert ("--yes" in OPTIONS[name]) == (name in ASKS)


def rows(klog: Run, *words: object) -> list[dict[str, object]]:
    done = klog(*words, "-o", "json")
    assert done.code == 0, done.err
    found: list[dict[str, object]] = json.loads(done.out)
    return found


# What is there before, the command, and a look that says whether it is there still.
ON_A_CLUSTER = {
    "topics delete": ([], ["{topic}"], ["topics", "describe", "{topic}"]),
    "groups delete": (["{commit}"], ["{topic}-group"], ["groups", "describe", "{topic}-group"]),
    "groups delete-offsets": (
        ["{commit}"],
        ["{topic}-group", "--topic", "{topic}"],
        ["groups", "describe", "{topic}-group"],
    ),
    "users delete": (
        ["users set-password {topic} --password-file {password}"],
        ["{topic}"],
        ["users", "list", "{topic}"],
    ),
    "delete-records": (
        ["produce {topic} one"],
        ["{topic}:0:-1"],
        ["offsets", "{topic}"],
    ),
}


@pytest.mark.parametrize("name", sorted(ON_A_CLUSTER))
def test_off_a_terminal_nothing_in_a_cluster_is_deleted_without_yes(
    klog: Run, topic: str, tmp_path: Path, name: str
) -> None:
    password = tmp_path / "password"
    password.write_text("secret\n")
    password.chmod(0o600)
    if name.startswith("groups"):
        klog("produce", topic, "one")
    names = {
        "topic": topic,
        "password": password,
        "commit": f"consume {topic} --group {topic}-group --limit 1",
    }
    before, target, look = ON_A_CLUSTER[name]
    for line in before:
        done = klog(*line.format(**names).format(**names).split())
        assert done.code == 0, done.err
    look = [word.format(**names) for word in look]

    def shown() -> object:
        found = klog(*look, "-o", "json")
        return found.code, found.out

    assert shown()[0] == 0
    keeps_to_the_rule(klog, name, [word.format(**names) for word in target], shown)


def test_off_a_terminal_no_profile_is_removed_without_yes(run: Run, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert run("profile", "add", "p", "--bootstrap-server", "127.0.0.1:9092").code == 0
    keeps_to_the_rule(run, "profile remove", ["p"], lambda: run("profile", "list", "-o", "json").out)


def test_off_a_terminal_no_backup_is_removed_without_yes(run: Run, tmp_path: Path) -> None:
    place = tmp_path / "backups"
    for _ in range(2):
        assert run("backup", "run", Corpus("k39-edge").log_dir().path, "--to", place).code == 0
    rule = [place, "--keep-last", "1", "--grace", "0s", "--no-runs"]
    keeps_to_the_rule(run, "backup prune", rule, lambda: run("backup", "list", place, "-o", "json").out)


def test_every_command_that_asks_has_a_test_of_the_rule() -> None:
    calls = re.compile(r'keeps_to_the_rule\(\s*\w+, "([a-z -]+)"')
    elsewhere = {
        name for path in Path(__file__).parent.rglob("test_*.py") for name in calls.findall(path.read_text())
    }
    assert elsewhere | ON_A_CLUSTER.keys() | ON_DISK.keys() == ASKS


def damaged(directory: Path) -> list[object]:
    shutil.copytree(Corpus("corrupt-k39").log_dir().partition("c-b.flip-first-0").path, directory / "a-0")
    return []


def dirty(directory: Path) -> list[object]:
    shutil.copytree(Corpus("k39-compact").log_dir().partition("c-txn-0").path, directory / "a-0")
    return ["--policy", "compact", "--config", "min.cleanable.dirty.ratio=0"]


def old(directory: Path) -> list[object]:
    shutil.copytree(Corpus("k010-codecs").log_dir().partition("t-gzip-0").path, directory / "a-0")
    return []


def lost(directory: Path) -> list[object]:
    shutil.copytree(Corpus("k39-edge").log_dir().partition("e-one-0").path, directory / "a-0")
    return ["-o", "broker.id=7"]


ON_DISK: dict[str, Callable[[Path], list[object]]] = {
    "recover": damaged,
    "clean": dirty,
    "convert": old,
    "adopt": lost,
}


@pytest.mark.parametrize("name", sorted(ON_DISK))
@pytest.mark.parametrize("words", [[], ["--dry-run"]], ids=["without yes", "dry run"])
def test_off_a_terminal_nothing_on_disk_is_changed_without_yes(
    run: Run, tmp_path: Path, name: str, words: list[str]
) -> None:
    directory = tmp_path / "logs"
    options = ON_DISK[name](directory)
    before = contents(directory / "a-0")
    done = run(name, directory, *options, *words)
    assert (done.code, "--yes" in done.err) == ((0, False) if words else (1, True)), done
    assert contents(directory / "a-0") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["logs"]
    changed = run(name, directory, *options, "--yes")
    assert changed.code == 0, changed.err
    after = {path.name for path in directory.iterdir()}
    assert contents(directory / "a-0") != before or "klog-metadata.sqlite" in after


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    from tests.commands.running import runner

    return runner(capfd, monkeypatch)


@pytest.mark.parametrize(
    "line",
    [
        "topics --delete --topic {topic}",
        "groups --delete --group {topic}-group",
        "groups --delete-offsets --group {topic}-group --topic {topic}",
    ],
)
def test_command_lines_of_kafkas_tools_never_ask(klog: Run, topic: str, line: str) -> None:
    klog("produce", topic, "one")
    klog("consume", topic, "--group", f"{topic}-group", "--limit", "1")
    done = klog(*line.format(topic=topic).split())
    assert (done.code, "--yes" in done.err) == (0, False), done.err


def test_making_and_setting_need_no_yes_and_say_what_they_did(klog: Run, topic: str) -> None:
    assert rows(klog, "topics", "create", f"{topic}-new", "--dry-run") == [
        {"topic": f"{topic}-new", "result": "could be created", "error": None}
    ]
    assert rows(klog, "topics", "create", f"{topic}-new")[0]["result"] == "created"
    assert rows(klog, "configs", "alter", topic, "--set", "retention.ms=1") == [
        {"entityType": "topics", "entityName": topic, "result": "changed", "error": None}
    ]
    assert rows(klog, "topics", "alter", topic, "--set", "retention.ms=2") == [
        {"topic": topic, "result": "changed", "error": None}
    ]
    taken = klog("topics", "create", topic, "-o", "json")
    assert taken.code == 1
    assert json.loads(taken.out)[0]["result"] == "failed"
    assert "TOPIC_ALREADY_EXISTS" in json.loads(taken.out)[0]["error"]
