"""`klog export` as people run it: options, output, exit codes, and what it says."""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks.generate import segment
from klog.commands import segment_export
from tests import corpora
from tests.commands.running import Run, runner
from tests.corpora import REPOSITORY
from tests.export.export_support import data_files, in_order, table_rows, tree
from tests.waiting import eventually

LOGS = corpora.corpora("k39-txn")[0].log_dir().path
GZIP = corpora.corpora("k39-codecs")[0].log_dir().partition("t-gzip-0").path
DAMAGED = corpora.corpora("corrupt-k39")[0].log_dir().partition("c-b.flip-last-0").path


@pytest.fixture
def klog(capfd, monkeypatch) -> Run:
    return runner(capfd, monkeypatch)


def test_a_log_directory_becomes_a_table_a_reader_finds_whole(klog, tmp_path) -> None:
    done = klog("export", GZIP, "--output", tmp_path / "out")
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith("420 records of 1 partition in 4 files, ")
    table = pq.read_table(tmp_path / "out")
    assert table.num_rows == 420
    assert table.column_names == [
        "key",
        "value",
        "offset",
        "timestamp",
        "timestampType",
        "topic",
        "partition",
    ]


def test_damage_is_told_and_makes_the_exit_code_1(klog, tmp_path) -> None:
    done = klog("export", DAMAGED, "-o", tmp_path / "out", "--report", tmp_path / "report.json")
    assert done.code == 1
    assert f"lost: {DAMAGED}/00000000000000000025.log at byte 621, offsets 35 to 39: " in done.err
    report = json.loads((tmp_path / "report.json").read_text())
    assert not report["clean"]
    assert report["records"] == len(table_rows(tmp_path / "out"))
    assert report["lost"][0]["firstOffset"] == 35


def test_fail_on_data_loss_stops_with_one_line(klog, tmp_path) -> None:
    done = klog("export", DAMAGED, "-o", tmp_path / "out", "--fail-on-data-loss")
    assert done.code == 1
    assert done.err.startswith(f"klog: {DAMAGED}/00000000000000000025.log at byte 621: ")
    assert done.err.count("\n") == 1


def test_committed_reads_leave_aborted_records_out(klog, tmp_path) -> None:
    klog("export", LOGS, "-o", tmp_path / "all", "--subscribe", "t-txn")
    klog(
        "export", LOGS, "-o", tmp_path / "committed", "--subscribe", "t-txn", "--isolation", "read_committed"
    )
    expected = (
        corpora.corpora("k39-txn")[0].log_dir().partition("t-txn-0").expected_consumer("read_committed")
    )
    offsets = [row["offset"] for row in in_order(table_rows(tmp_path / "committed")) if row["partition"] == 0]
    assert offsets == [record["offset"] for record in expected if "offset" in record]
    assert len(offsets) < len(table_rows(tmp_path / "all"))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--compression", "lzma"], "parquet has no compression 'lzma' (one of zstd, "),
        (["--partition-by", "hour"], "cannot partition by 'hour'"),
        (["--columns", "colour"], "no column 'colour'"),
        (["--starting-offsets", "yesterday"], "option startingOffsets is 'yesterday'"),
        (["--isolation", "serializable"], "option isolation is 'serializable'"),
        (["--metadata-columns", "mood"], "option metadataColumns is 'mood'"),
        (["--format", "avro"], "Invalid value for '--format'"),
        (["--jobs", "0"], "Invalid value for '--jobs'"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_leaves_no_output(arguments, complaint, klog, tmp_path) -> None:
    done = klog("export", LOGS, "-o", tmp_path / "out", *arguments)
    assert done.code == 2
    assert complaint in " ".join(done.err.replace("│", " ").split())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--subscribe", "nothing"], "no partition that was found is selected"),
        (
            ["--starting-offsets", '{"nothing": {"0": 1}}'],
            "option startingOffsets names nothing-0, which is not",
        ),
        (["--starting-offsets", '{"t-txn": {"9": 1}}'], "option startingOffsets names t-txn-9, which is not"),
        (["--ending-offsets", '{"nothing": {"0": 1}}'], "option endingOffsets names nothing-0, which is not"),
        (
            ["--starting-offsets-by-timestamp", '{"nothing": {"0": 1}}'],
            "option startingOffsetsByTimestamp names nothing-0, which is not",
        ),
    ],
)
def test_names_that_are_not_there_are_exit_code_1_and_leave_no_output(
    arguments, complaint, klog, tmp_path
) -> None:
    done = klog("export", LOGS, "-o", tmp_path / "out", *arguments)
    assert done.code == 1
    assert complaint in done.err
    assert not (tmp_path / "out").exists()


def test_a_dry_run_prints_the_plan_and_writes_nothing(klog, tmp_path) -> None:
    done = klog("export", GZIP, "-o", tmp_path / "out", "--dry-run")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].startswith("t-gzip-0: offsets 0 to 420 (log 0 to 420, high watermark 420), 4 splits, ")
    assert lines[0].endswith(f", from {GZIP}")
    assert lines[1].startswith("1 partition, 4 splits, ")
    assert not (tmp_path / "out").exists()


def test_a_second_run_needs_resume_and_then_has_nothing_to_do(klog, tmp_path) -> None:
    klog("export", GZIP, "-o", tmp_path / "out")
    again = klog("export", GZIP, "-o", tmp_path / "out")
    assert (again.code, again.err.count("\n")) == (2, 1)
    assert "holds a complete export" in again.err
    resumed = klog("export", GZIP, "-o", tmp_path / "out", "--resume")
    assert resumed.code == 0
    assert "4 of 4 splits were done before" in resumed.err


def test_a_job_is_resumed_from_any_directory(klog, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(GZIP.parent)
    klog("export", GZIP.name, "-o", tmp_path / "out")
    monkeypatch.chdir(tmp_path)
    assert klog("export", GZIP, "-o", "out", "--resume", "--verify").code == 0


def test_verify_says_what_it_found(klog, tmp_path) -> None:
    done = klog("export", GZIP, "-o", tmp_path / "out", "--verify")
    assert done.err.endswith("verified: all is there\n")
    path = data_files(tmp_path / "out")[0]
    data = bytearray(path.read_bytes())
    data[10] ^= 1
    path.write_bytes(data)
    wrong = klog("export", GZIP, "-o", tmp_path / "out", "--verify", "--resume")
    assert wrong.code == 1
    assert f"WRONG: {path.relative_to(tmp_path / 'out')}: its checksum" in wrong.err


def test_quiet_says_nothing(klog, tmp_path) -> None:
    assert klog("export", GZIP, "-o", tmp_path / "out", "-q") == (0, "", "")


def test_the_report_goes_where_it_can_be_found(klog, tmp_path) -> None:
    klog("export", GZIP, "-o", tmp_path / "out", "--report", tmp_path / "report.json", "--verify")
    report = json.loads((tmp_path / "report.json").read_text())
    assert {name: report[name] for name in ("records", "files", "splits", "clean", "verified", "lost")} == {
        "records": 420,
        "files": 4,
        "splits": 4,
        "clean": True,
        "verified": True,
        "lost": [],
    }
    assert report["bytesWritten"] == sum(path.stat().st_size for path in data_files(tmp_path / "out"))


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> Path:
    """Enough for processes of its own and for a progress bar."""
    return segment(tmp_path_factory.mktemp("large"), 68 << 20).parent


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "klog", *map(str, arguments)]


def test_a_pool_of_processes_writes_the_same_files_as_one(large, tmp_path) -> None:
    for jobs in ("1", "3"):
        subprocess.run(
            command("export", large, "-o", tmp_path / jobs, "-j", jobs, "--target-split-bytes", "8m"),
            cwd=REPOSITORY,
            check=True,
            capture_output=True,
        )
    assert len(data_files(tmp_path / "1")) > 8
    assert tree(tmp_path / "1") == tree(tmp_path / "3")


def test_a_terminal_shows_how_far_it_is(large, tmp_path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command("export", large, "-o", tmp_path / "out", "-j", "2", "--target-split-bytes", "8m"),
        cwd=REPOSITORY,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 4096):
            shown += piece
    except OSError:  # the terminal's other end is closed
        pass
    os.close(ours)
    assert process.wait() == 0
    assert "exporting 1 partition" in shown.decode()
    assert "MiB/s" in shown.decode() or "?" in shown.decode()


def test_ctrl_c_ends_at_once_says_nothing_and_leaves_what_is_done(large, tmp_path) -> None:
    how = ("-j", "2", "--target-split-bytes", "8m")
    process = subprocess.Popen(
        command("export", large, "-o", tmp_path / "out", *how),
        cwd=REPOSITORY,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    splits = tmp_path / "out" / "_klog" / "splits"
    eventually(lambda: list(splits.glob("*.json")) or process.poll() is not None)
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    _, complaint = process.communicate(timeout=30)
    assert (process.returncode, complaint) == (130, b"")
    assert not list((tmp_path / "out").rglob("*.tmp"))
    assert data_files(tmp_path / "out")
    done = subprocess.run(
        command("export", large, "-o", tmp_path / "out", *how, "--resume", "--verify"),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "splits were done before" in done.stderr
    assert done.stderr.endswith("verified: all is there\n")


def test_the_command_starts_without_the_libraries_that_the_work_takes() -> None:
    """`--help`, wrong usage and a plan of local files must feel instant."""
    text = f"""
import sys
sys.argv = ["klog", "export", {str(GZIP)!r}, "-o", "nowhere", "--dry-run"]
from klog.commands.main import main
try:
    main()
except SystemExit:
    heavy = {{"pyarrow", "pyspark", "rich.progress", "construct"}}
    print(sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_command_for_spark_names_everything_that_it_runs(klog, tmp_path) -> None:
    out = tmp_path / "a table"
    options = ("--format", "jsonl", "--subscribe", "t-txn", "--include-headers", "--verify")
    done = klog("export", LOGS, GZIP, "-o", out, *options, "--jobs", 2, "--print-spark-submit")
    assert (done.code, done.err) == (0, "")
    python, launcher, *words = shlex.split(done.out)
    assert python == f"PYSPARK_PYTHON={sys.executable}"
    assert launcher == str(Path(sys.executable).with_name("spark-submit"))
    script = words.index(str(Path(segment_export.__file__)))
    assert words[:script] == ["--master", "local[*]"]
    assert words[script + 1 : script + 7] == [
        *("--input", str(LOGS)),
        *("--input", str(GZIP)),
        "--output",
        str(out),
    ]
    assert sorted(words[script + 7 :]) == sorted(options)
    assert not out.exists()


def test_without_pyspark_the_command_for_spark_is_replaced_by_the_one_that_installs_it(
    klog, tmp_path, monkeypatch
) -> None:
    python = str(tmp_path / "environment" / "python")
    monkeypatch.setattr("sys.executable", python)
    monkeypatch.setenv("PATH", str(tmp_path))
    done = klog("export", LOGS, "-o", tmp_path / "out", "--print-spark-submit")
    assert done.code == 2
    assert f"{python} -m pip install 'klog[spark]'" in done.err
