"""Records that were compacted away between two runs: a restore says for which partitions it matters."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.backup.repositories import Backups
from tests.commands.running import Run, runner
from tests.export.logs import Log, batch

FIRST_MS = 1_700_000_000_000
SECOND_MS = 1000


@pytest.fixture
def klog(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capfd, monkeypatch)


def write(logs: Path, topic: str, *segments: Iterable[int]) -> None:
    """Segments with these offsets, one record a second."""
    log = Log(logs / f"{topic}-0")
    for offsets in segments:
        log.append(*(batch(each, at=FIRST_MS + SECOND_MS * each) for each in offsets)).roll()
    log.write()


@pytest.fixture(params=["orders", "__consumer_offsets"])
def topic(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def two(backups: Backups, logs: Path, topic: str) -> Backups:
    """Two runs. The offsets 12 and 13 came between them, and were compacted away before the second; the
    active segment begins at the offset 16.
    """
    backups.now_ms = FIRST_MS + 9 * SECOND_MS
    write(logs, topic, range(10))
    backups.run(logs)
    backups.now_ms = FIRST_MS + 60 * SECOND_MS
    write(logs, topic, range(10), (10, 11, 14, 15), range(16, 20))
    backups.run(logs)
    return backups


def said(klog: Run, backups: Backups, *words: object) -> str:
    done = klog("restore", backups.place, "--dry-run", "-q", *words)
    assert done.code == 0, done.err
    return done.err


def test_a_moment_between_a_record_and_the_one_that_replaced_it(klog: Run, two: Backups, topic: str) -> None:
    what = "the last records of keys" if topic == "orders" else "commits of groups"
    assert said(klog, two, "--at", FIRST_MS + 14 * SECOND_MS) == (
        f"klog: {topic}-0: 2 records with offsets from 10 to 14 were compacted away before a run read them, "
        f"perhaps because of records after the moment: {what} may be missing, or older than they were\n"
    )


def test_it_is_said_by_the_restore_too(klog: Run, two: Backups, topic: str, tmp_path: Path) -> None:
    done = klog("restore", two.place, "--at", FIRST_MS + 14 * SECOND_MS, "--to", tmp_path / "new", "-q")
    assert done.code == 0, done.err
    assert f"{topic}-0: 2 records" in done.err


def test_before_the_first_record_that_is_missing_nothing_is(klog: Run, two: Backups) -> None:
    assert said(klog, two, "--at", FIRST_MS + 10 * SECOND_MS) == ""


def test_what_is_missing_after_the_end_may_have_been_there(klog: Run, two: Backups, topic: str) -> None:
    assert f"{topic}-0: 2 records with offsets from 10 to 13" in said(
        klog, two, "--at", FIRST_MS + 11 * SECOND_MS
    )


def test_a_record_of_the_active_segment_replaces_none(klog: Run, two: Backups) -> None:
    """So what replaced the missing ones came before the moment."""
    assert said(klog, two, "--at", FIRST_MS + 17 * SECOND_MS) == ""


def test_at_a_run_the_last_record_of_each_key_is_there(klog: Run, two: Backups) -> None:
    assert said(klog, two) == ""
    assert said(klog, two, "--backup", two.repository.ids()[0]) == ""


def test_an_end_that_is_given_below_what_was_compacted(
    klog: Run, two: Backups, topic: str, tmp_path: Path
) -> None:
    ends = tmp_path / "ends"
    ends.write_text(f"{topic}:0:14\n")
    assert f"{topic}-0: 2 records with offsets from 0 to 13" in said(klog, two, "--offsets", ends)
