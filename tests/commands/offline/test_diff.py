"""`klog diff` as it is run: exit codes, rows for programs, text for people, every kind of path, bad input."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from klog.formats.names import FileKind
from klog.kernel.batch_builder import RecordData, build_batch
from tests import corpora
from tests.commands.running import Run, runner
from tests.commands.screens import on_screen
from tests.convert.logs import converted
from tests.export.logs import batch, replica, write_checkpoint
from tests.export.object_store import ROOT, counted_store

EPOCHS = corpora.Corpus("k39-epochs")
LOGS = [EPOCHS.log_dir(f"logs_{number}").path for number in range(3)]
DIVERGED = EPOCHS.log_dir("logs_div0").path


@pytest.fixture
def klog(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capfd, monkeypatch)


@pytest.fixture
def small(tmp_path: Path) -> tuple[Path, Path]:
    """Two log directories with a partition that differs at offset 20 and goes on in A."""
    batches = [batch(first, 5, leader_epoch=0) for first in range(0, 40, 5)]
    other = [*batches[:4], batch(20, 5, size=70, leader_epoch=0), *batches[5:7]]
    replica(tmp_path / "a" / "t-0", batches, (0, 0))
    replica(tmp_path / "b" / "t-0", other, (0, 0))
    return tmp_path / "a", tmp_path / "b"


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_replicas_that_are_the_same(klog: Run) -> None:
    done = klog("diff", LOGS[0], LOGS[1])
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "ep-0: the same batches",
        "ep-1: both are empty",
        "epz-0: both are empty",
        "3 partitions: 3 with the same records, 0 not",
    ]


def test_a_broken_link_is_an_unreadable_segment(klog: Run, tmp_path: Path) -> None:
    shutil.copytree(LOGS[0] / "ep-0", tmp_path / "ep-0")
    log = tmp_path / "ep-0" / "00000000000000000076.log"
    log.unlink()
    log.symlink_to("/nowhere")
    done = klog("diff", LOGS[0] / "ep-0", tmp_path / "ep-0")
    assert done.code == 1
    assert f"B is damaged: {log} (from offset 76 on): cannot be opened: No such file or directory" in done.err
    exported = klog("export", "-f", "jsonl", "-o", tmp_path / "out", tmp_path / "ep-0")
    assert exported.code == 1
    assert f"{log}: cannot be opened: No such file or directory" in exported.err


def test_two_topics_are_said_to_be_two(klog: Run) -> None:
    """Two partitions that are named are compared whatever their names are."""
    done = klog("diff", LOGS[0] / "ep-0", LOGS[0] / "epz-0")
    assert done.code == 1
    assert done.out.startswith("ep-0 and epz-0: the first difference is at offset 0\n")
    assert "Neither is preferred: they are two topics (ep and epz), with the topic ids " in done.out
    assert "same name" not in done.out


def test_replicas_that_have_diverged(klog: Run) -> None:
    done = klog("diff", LOGS[1] / "ep-0", DIVERGED / "ep-0")
    assert done.code == 1
    assert "ep-0: the first difference is at offset 95" in done.out
    assert "Kafka keeps A: leader epoch 8 is above 4; the last common leader epoch is 2." in done.out
    assert "As a follower B truncates its log to offset 95, from 113." in done.out


def test_rows_have_the_same_fields_in_every_form(klog: Run) -> None:
    arguments = ("diff", LOGS[1], DIVERGED, "--records")
    lines = rows(klog(*arguments, "--json").out)
    assert [line["result"] for line in lines] == ["different", "same", "same"]
    ep = lines[0]
    assert (ep["topic"], ep["partition"], ep["firstDifference"], ep["kept"]) == ("ep", 0, 95, "A")
    assert (ep["truncationOffset"], ep["lastCommonEpoch"]) == (95, 2)
    assert (ep["a"]["logEndOffset"], ep["b"]["logEndOffset"], ep["b"]["highWatermark"]) == (147, 113, 95)
    assert ep["a"]["leaderEpochs"][-1]["epoch"] == 8
    assert [each["state"] for each in ep["ranges"]] == ["same", "different records", "only in A"]
    assert ep["recordCount"] == len(ep["records"]) == 147 - 95
    assert ep["records"][0]["a"]["key"] == "k0"
    assert ep["records"][-1]["b"] is None
    assert json.loads(klog(*arguments, "-o", "json").out) == lines
    table = list(csv.DictReader(io.StringIO(klog(*arguments, "-o", "csv").out)))
    assert [line["result"] for line in table] == ["different", "same", "same"]
    assert json.loads(table[0]["ranges"]) == ep["ranges"]


def test_a_converted_backup_has_the_same_records(klog: Run, tmp_path: Path) -> None:
    source = corpora.Corpus("k39-codecs").log_dir().partitions()[0]
    copy = tmp_path / "backup" / source.name
    shutil.copytree(source.path, copy)
    converted(copy)
    done = klog("diff", source.path, copy)
    assert done.code == 0
    assert "the same records in other batches" in done.out


def test_records_are_shown_side_by_side(klog: Run, small: tuple[Path, Path]) -> None:
    done = klog("diff", *small, "--records", "--limit", "2")
    assert done.code == 1
    shown = [line.split() for line in done.out.splitlines() if line.lstrip().startswith(("20  v", "21  v"))]
    assert [(offset, field) for offset, field, _, _ in shown] == [("20", "value"), ("21", "value")]
    assert [(len(a), len(b)) for _, _, a, b in shown] == [(len('"10 letters"'), 60)] * 2
    assert "and 8 more records (--limit)" in done.out
    assert "and 2 more ranges (--limit)" in done.out


def test_long_values_are_shown_from_where_they_differ(klog: Run, tmp_path: Path) -> None:
    for name, end in (("a", b"one"), ("b", b"two")):
        records = [RecordData(0, 0, None, b"x" * 500 + end)]
        replica(tmp_path / name / "t-0", [bytes(build_batch(records))])
    done = klog("diff", tmp_path / "a", tmp_path / "b", "--records")
    (shown,) = [line.split() for line in done.out.splitlines() if line.lstrip().startswith("0  value")]
    assert shown[2:] == [f'\u2026{"x" * 15}{end}"' for end in ("one", "two")]


def test_replicas_of_one_epoch_and_length_may_differ_unnoticed(klog: Run, tmp_path: Path) -> None:
    for name, size in (("a", 10), ("b", 11)):
        replica(tmp_path / name / "t-0", [batch(0, 5, size=size, leader_epoch=0)], (0, 0))
    done = klog("diff", tmp_path / "a", tmp_path / "b")
    assert done.code == 1
    assert "Neither is preferred: leader epoch and log end are the same" in done.out
    assert "The records differ from offset 0 on: a follower does not notice that" in done.out


def test_only_what_a_follower_does_not_notice_is_told(klog: Run, small: tuple[Path, Path]) -> None:
    done = klog("diff", *small)
    assert "As a follower B truncates nothing." in done.out
    assert "The records differ from offset 20 on: a follower does not notice that" in done.out


@pytest.mark.parametrize(
    ("offsets", "code"), [("..19", 0), ("0..19", 0), ("25..34", 0), ("19..20", 1), ("30..", 1), ("24", 1)]
)
def test_offsets_include_both_ends(klog: Run, small: tuple[Path, Path], offsets: str, code: int) -> None:
    assert klog("diff", *small, "--offsets", offsets).code == code


def test_topics_and_partitions_are_selected(klog: Run) -> None:
    lines = rows(klog("diff", LOGS[0], LOGS[1], "--json", "--topic", "ep", "--partitions", "1,7").out)
    assert [(line["topic"], line["partition"]) for line in lines] == [("ep", 1)]
    lines = rows(klog("diff", LOGS[0], LOGS[1], "--json", "--topic", "ep", "--topic", "epz").out)
    assert [(line["topic"], line["partition"]) for line in lines] == [("ep", 0), ("ep", 1), ("epz", 0)]


def test_a_partition_in_one_only_is_a_difference(klog: Run, tmp_path: Path) -> None:
    shutil.copytree(LOGS[0], tmp_path / "backup")
    shutil.rmtree(tmp_path / "backup" / "ep-1")
    done = klog("diff", LOGS[0], tmp_path / "backup")
    assert done.code == 1
    assert "ep-1: only in A" in done.out
    line = rows(klog("diff", tmp_path / "backup", LOGS[0], "--json", "--topic", "ep").out)[1]
    assert (line["result"], line["a"], line["ranges"]) == ("only in B", None, [])


def test_gzipped_copies_and_other_names(klog: Run, tmp_path: Path) -> None:
    """A backup with another name of the directory, whose segments are gzipped."""
    backup = tmp_path / "copy-of-ep"
    backup.mkdir()
    for path in (LOGS[1] / "ep-0").glob("*.log"):
        (backup / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    done = klog("diff", LOGS[1] / "ep-0", backup)
    assert (done.code, done.err) == (0, "")


def test_segments(klog: Run) -> None:
    ours, theirs = (sorted((logs / "ep-0").glob("*.log"))[0] for logs in LOGS[:2])
    done = klog("diff", ours, theirs)
    assert done.code == 0
    assert "single segments do not say it" in done.out


def test_object_stores(klog: Run) -> None:
    with counted_store() as store:
        for path in (DIVERGED / "ep-0").iterdir():
            store.pipe(f"/logs/ep-0/{path.name}", path.read_bytes())
        done = klog("diff", LOGS[1], ROOT, "--topic", "ep", "--partitions", "0", "--json")
        assert store.requests
    assert (done.code, done.err) == (1, "")
    (line,) = rows(done.out)
    assert (line["firstDifference"], line["truncationOffset"]) == (95, 95)
    assert line["b"]["partitionDirectory"].startswith("counted://")


def test_nothing_changes(klog: Run, tmp_path: Path) -> None:
    for name in ("a", "b"):
        shutil.copytree(LOGS[0], tmp_path / name)
    before = {path: path.stat() for path in tmp_path.rglob("*")}
    assert klog("diff", tmp_path / "a", tmp_path / "b").code == 0
    after = {path: path.stat() for path in tmp_path.rglob("*")}
    assert before.keys() == after.keys()
    changing = ("st_mode", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns")
    for path, old in before.items():
        assert [getattr(old, name) for name in changing] == [getattr(after[path], name) for name in changing]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("{a}",), 2, "missing b"),
        (("{a}", "{a}/absent"), 1, "does not exist"),
        (("{a}", "{empty}"), 1, "no partition is found in"),
        (("{a}", "{b}", "--topic", "nope"), 1, "no partition of"),
        (("{a}", "{b}", "--partitions", "x"), 2, "--partitions 'x' are no numbers"),
        (("{a}", "{b}", "--offsets", "9..5"), 2, "ends before it starts"),
        (("{a}", "{b}", "--limit", "0"), 2, "--limit"),
    ],
)
def test_bad_input_is_one_line(
    klog: Run, small: tuple[Path, Path], tmp_path: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    (tmp_path / "empty").mkdir()
    places = {"a": small[0], "b": small[1], "empty": tmp_path / "empty"}
    done = klog("diff", *(each.format(**places) for each in arguments))
    assert (done.code, done.out) == (code, "")
    assert message in done.err.lower()
    assert len(done.err.splitlines()) == 1


def test_a_damaged_checkpoint_is_told_and_the_rest_compared(klog: Run, small: tuple[Path, Path]) -> None:
    (small[0] / "t-0" / FileKind.LEADER_EPOCH_CHECKPOINT).write_bytes(b"x")
    done = klog("diff", *small, "--json")
    assert done.code == 1
    assert "leader-epoch-checkpoint" in done.err
    assert rows(done.out)[0]["firstDifference"] == 20


def test_garbage_is_told(klog: Run, tmp_path: Path) -> None:
    for name, data in (("a", random.Random(1).randbytes(5000)), ("b", b"")):
        directory = tmp_path / name / "t-0"
        directory.mkdir(parents=True)
        (directory / "00000000000000000000.log").write_bytes(data)
    done = klog("diff", tmp_path / "a", tmp_path / "b")
    assert done.code == 1
    assert done.err.startswith("klog: A is damaged: ")
    assert "00000000000000000000.log at byte 0" in done.err
    assert "t-0: the same as far as they can be read" in done.out


def test_a_torn_end_is_told_and_is_no_difference(klog: Run, small: tuple[Path, Path]) -> None:
    for path in (small[0] / "t-0").glob("00000000000000000020.*"):
        shutil.copy(path, small[1] / "t-0")
    last = small[1] / "t-0" / "00000000000000000020.log"
    last.write_bytes(last.read_bytes() + batch(40, 5)[:50])
    done = klog("diff", *small)
    assert done.code == 0
    assert done.err.startswith("klog: B ends at offset 40: ")
    assert "cut short" in done.err


def test_a_future_replica_beside_the_current_one_is_not_compared(klog: Run, small: tuple[Path, Path]) -> None:
    batches = [batch(0, 3)]
    replica(small[1] / f"t-0.{'0' * 32}-future", batches)
    write_checkpoint(small[1], FileKind.LOG_START_CHECKPOINT, t_0=0)
    done = klog("diff", *small, "--json")
    assert "is not compared: a copy that a move between log directories has not finished" in done.err
    assert len(rows(done.out)) == 1


@pytest.mark.parametrize("columns", [80, 140])
def test_a_terminal_shows_nothing_beyond_its_width(columns: int) -> None:
    screen = on_screen(
        "diff", LOGS[1] / "ep-0", DIVERGED / "ep-0", "--records", "--limit", 3, columns=columns
    )
    assert screen.code == 1
    assert all(len(line) <= columns for line in screen.lines), screen.text
    assert "truncates its log to offset 95" in " ".join(screen.text.split())
