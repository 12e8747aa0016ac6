"""`klog dump-segment` and `klog diff` read a backup repository as it was at a moment."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from tests.backup.repositories import Backups
from tests.commands.running import Run, runner
from tests.export.logs import Log, batch

FIRST_MS = 1_700_000_000_000
HALF_MS = FIRST_MS + 9_000
"""After the first 10 records."""


@pytest.fixture
def klog(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """The command line, whose temporary files are below the directory of the test."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return runner(capfd, monkeypatch)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """20 records of two partitions of orders, and of clicks: a batch each five seconds."""
    directory = tmp_path / "logs"
    for name in ("orders-0", "orders-1", "clicks-0"):
        log = Log(directory / name)
        for first in range(0, 20, 5):
            log.append(batch(first, 5, at=FIRST_MS + 1000 * first))
            if first == 10:
                log.roll()
        log.write()
    return directory


@pytest.fixture
def repository(logs: Path, tmp_path: Path) -> Path:
    Backups(tmp_path / "repository").run(logs)
    return tmp_path / "repository"


def without_places(text: str, path: Path) -> str:
    """A text without the directory of the logs."""
    scratch = next((word for word in text.split('"') if "klog-moment-" in word), "")
    copy = scratch.partition("/logs")[0] + "/logs" if scratch else ""
    for place in filter(None, (copy, str(path))):
        text = text.replace(place, "LOGS")
    return text


@pytest.mark.parametrize(
    "words",
    [
        ("-f", "jsonl"),
        ("-f", "jsonl", "--batches", "--verify"),
        ("-f", "jsonl", "--summary"),
        ("-f", "jsonl", "--offsets", "3..7", "--grep", "k4"),
        ("-f", "jsonl", "--all-files"),
    ],
)
def test_a_moment_is_shown_as_the_directory_that_a_restore_makes(
    klog: Run, repository: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    moment = ("--at", HALF_MS, "--topic", "orders")
    assert klog("restore", repository, *moment, "--to", tmp_path / "restored", "--quiet").code == 0

    done = klog("dump-segment", repository, *moment, *words)

    expected = klog("dump-segment", tmp_path / "restored", *words)
    found = [without_places(text, tmp_path / "restored") for text in (done.out, expected.out)]
    lines = [[line for line in text.splitlines() if "/orders-" in line] for text in found]
    assert done.code == expected.code == 0, done.err
    assert lines[0] == lines[1] != []
    assert list((tmp_path / "tmp").iterdir()) == []


def test_kafkas_own_options_apply_to_a_moment(klog: Run, repository: Path) -> None:
    words = ("--print-data-log", "--at", HALF_MS, "--topic", "orders", "--partitions", 1)
    done = klog("dump-segment", repository, *words)
    assert done.code == 0, done.err
    assert done.out.count("| offset: ") == 10
    assert "orders-1/" in done.out
    assert "orders-0/" not in done.out


def test_only_what_is_selected_is_shown(klog: Run, repository: Path) -> None:
    def shown(*words: object) -> set[tuple[object, object]]:
        done = klog("dump-segment", repository, "-f", "jsonl", *words)
        assert done.code == 0, done.err
        return {(row["topic"], row["partition"]) for row in map(json.loads, done.out.splitlines())}

    assert shown() == {("orders", 0), ("orders", 1), ("clicks", 0)}
    assert shown("--topic", "ord.*", "--partitions", "0") == {("orders", 0)}
    assert shown("--topic", "clicks") == {("clicks", 0)}


def test_a_moment_is_compared_with_a_directory_and_with_another_moment(
    klog: Run, repository: Path, logs: Path
) -> None:
    def results(*words: object) -> set[tuple[object, ...]]:
        done = klog("diff", *words, "-o", "jsonl")
        rows = [json.loads(line) for line in done.out.splitlines()]
        assert done.code == (0 if all(row["result"] == "same" for row in rows) else 1), done.err
        return {(row["topic"], row["result"], row["firstDifference"]) for row in rows}

    same = {("orders", "same", None), ("clicks", "same", None)}
    assert results(repository, logs) == same
    assert results(repository, logs, "--at", HALF_MS) == {
        ("orders", "different", 10),
        ("clicks", "different", 10),
    }
    assert results(repository, repository, "--at", HALF_MS, "--topic", "orders") == {
        ("orders", "different", 10)
    }
    assert results(repository, repository, "--at", HALF_MS, "--at", HALF_MS + 500) == same
    later = results(repository, repository, "--at", HALF_MS + 5_000, "--at", HALF_MS, "--partitions", 1)
    assert later == {("orders", "different", 10)}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("dump-segment", "logs", "--at", "1h"), "a moment is for a backup repository, and no path is one"),
        (("diff", "repository", "logs", "--at", "2h", "--at", "1h"), "and there is one"),
        (("dump-segment", "repository", "--at", "1h", "--backup", "x"), "give one of both"),
        (("dump-segment", "repository", "--partitions", "x"), "are no numbers"),
    ],
)
def test_wrong_words(
    klog: Run,
    repository: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = klog(*words)
    assert (done.code, said in done.err) == (2, True), done.err
