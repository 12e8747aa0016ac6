"""`klog dump-segment`: how options become a dump. Each output format has its own tests."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.commands.shared.arguments import epoch_ms, parse_offsets, parse_time
from klog.formats.errors import UsageError
from tests import corpora
from tests.commands.running import Run, runner
from tests.processes import child

GROUPS = corpora.Corpus("k39-groups").path / "logs"
SEGMENT = GROUPS / "g-a-0" / f"{0:020d}.log"
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@pytest.fixture
def klog(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capfd, monkeypatch)


def offsets_of(out: str) -> list[int]:
    return [json.loads(line)["offset"] for line in out.splitlines()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("5..9", (5, 9)), ("5..", (5, None)), ("..9", (None, 9)), ("5", (5, 5)), (None, (None, None))],
)
def test_offsets_are_a_range_with_both_ends_or_open(
    text: str | None, expected: tuple[int | None, int | None]
) -> None:
    assert parse_offsets(text) == expected


@pytest.mark.parametrize("text", ["", "..", "a..b", "9..5", "-3", "5...9", "5..9..12"])
def test_other_offsets_are_wrong_usage(text: str) -> None:
    with pytest.raises(UsageError):
        parse_offsets(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1600000000123", 1600000000123),
        ("2020-09-13T12:26:40Z", 1600000000000),
        ("2020-09-13T14:26:40.5+02:00", 1600000000500),
        ("2h", epoch_ms(NOW) - 7_200_000),
        ("1d12h", epoch_ms(NOW) - 129_600_000),
        ("250ms", epoch_ms(NOW) - 250),
    ],
)
def test_a_time_is_iso_or_epoch_ms_or_a_span_back(text: str, expected: int) -> None:
    assert parse_time("--since", text, NOW) == expected


@given(st.integers(-2_000_000_000_000, 7_000_000_000_000), st.integers(0, 999))
def test_epoch_ms_loses_nothing_but_microseconds(milliseconds: int, microseconds: int) -> None:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(
        milliseconds=milliseconds, microseconds=microseconds
    )
    assert epoch_ms(moment) == milliseconds


@pytest.mark.parametrize("text", ["yesterday", "2h30", "2020-13-01", ""])
def test_other_times_are_wrong_usage(text: str) -> None:
    with pytest.raises(UsageError, match="is not a time"):
        parse_time("--since", text, NOW)


def test_without_a_terminal_the_default_is_json_lines_of_records(klog: Run) -> None:
    done = klog("dump-segment", SEGMENT)
    assert (done.code, done.err) == (0, "")
    assert offsets_of(done.out) == list(range(40))


def test_offsets_limit_and_key_select(klog: Run) -> None:
    assert offsets_of(klog("dump-segment", "--offsets", "13..15", SEGMENT).out) == [13, 14, 15]
    assert offsets_of(klog("dump-segment", "--offsets", "30..", "--limit", 4, SEGMENT).out) == [
        30,
        31,
        32,
        33,
    ]
    assert offsets_of(klog("dump-segment", "--key", "key-676", SEGMENT).out) == [1]
    assert offsets_of(klog("dump-segment", "--grep", "^key-6[79]6$", SEGMENT).out) == [0, 1]


def test_a_partition_directory_means_its_live_segments(klog: Run) -> None:
    directory = corpora.Corpus("k39-codecs").path / "logs" / "t-gzip-0"
    assert offsets_of(klog("dump-segment", directory).out) == list(range(420))


def test_a_glob_that_the_shell_did_not_expand_is_expanded(klog: Run) -> None:
    done = klog("dump-segment", "--batches", GROUPS / "g-a-*")
    assert {json.loads(line)["file"] for line in done.out.splitlines()} == {
        str(GROUPS / f"g-a-{number}" / f"{0:020d}.log") for number in (0, 1)
    }


def test_a_gzipped_copy_is_dumped_like_the_segment(klog: Run, tmp_path: Path) -> None:
    copy = tmp_path / "g-a-0" / f"{SEGMENT.name}.gz"
    copy.parent.mkdir()
    copy.write_bytes(gzip.compress(SEGMENT.read_bytes()))
    plain = klog("dump-segment", SEGMENT).out.replace(str(SEGMENT), "F")
    assert klog("dump-segment", copy).out.replace(str(copy), "F") == plain


def test_a_command_line_of_kafkas_tool_works_as_it_is(klog: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(GROUPS)
    done = klog("dump-segment", "--files", f"g-a-0/{SEGMENT.name}", "--print-data-log", "--deep-iteration")
    expected = corpora.Corpus("k39-groups").log_dir().partition("g-a-0").dump("log.deep")
    assert expected is not None
    assert done.code == 0
    assert done.out.encode("utf-8", "surrogateescape") == expected


def test_output_appears_whole_in_a_file(klog: Run, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    done = klog("dump-segment", "-o", target, SEGMENT)
    assert (done.code, done.out) == (0, "")
    assert offsets_of(target.read_text("utf-8")) == list(range(40))
    assert os.listdir(tmp_path) == ["out.jsonl"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--offsets", "x", SEGMENT], "is not a range"),
        (["--grep", "(", SEGMENT], "is not a regular expression"),
        (["--format", "parquet", SEGMENT], "cannot go to stdout"),
        (["--summary", "--format", "kafka", SEGMENT], "has no kafka form"),
        (["--summary", "--limit", "1", SEGMENT], "do not apply"),
        (["--batches"], "no file named"),
    ],
)
def test_wrong_usage_ends_with_2_and_says_why(klog: Run, arguments: list[object], complaint: str) -> None:
    done = klog("dump-segment", *arguments)
    assert (done.code, done.out) == (2, "")
    assert complaint in done.err


@pytest.mark.parametrize("name", ["no-such-file.log", "nothing-*.log", "letter.txt"])
def test_a_path_without_content_is_named_and_exits_with_1(klog: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / "letter.txt").write_text("Dear broker")
    done = klog("dump-segment", tmp_path / name)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"klog: {tmp_path / name}: ")


def test_strict_stops_at_the_first_problem(klog: Run) -> None:
    damaged = corpora.Corpus("corrupt-k39").path / "logs" / "c-b.flip-first-0"
    lenient = klog("dump-segment", "--verify", damaged)
    strict = klog("dump-segment", "--verify", "--strict", damaged)
    assert (lenient.code, strict.code) == (1, 1)
    assert "fails its checksum" in lenient.err
    assert "fails its checksum" in strict.err
    assert len(lenient.out.splitlines()) > len(strict.out.splitlines())


@pytest.mark.parametrize("name", ["c-b.idx-garbage-0", "c-b.idx-odd-0"])
def test_only_verify_reports_a_broken_index(klog: Run, name: str) -> None:
    damaged = corpora.Corpus("corrupt-k39").path / "logs" / name
    plain, verified = klog("dump-segment", damaged), klog("dump-segment", "--verify", damaged)
    assert (plain.code, plain.err) == (0, "")
    assert verified.code == 1
    assert ".index at byte" in verified.err
    assert "`klog rebuild-index`" in verified.err
    assert verified.out == plain.out


def test_verify_reports_nothing_for_a_valid_partition(klog: Run) -> None:
    done = klog("dump-segment", "--verify", corpora.Corpus("k39-codecs").path / "logs" / "t-gzip-0")
    assert (done.code, done.err) == (0, "")


def test_the_examples_of_the_help_run_as_they_are_written(
    klog: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(corpora.Corpus("k39-codecs").path / "logs" / "t-none-0", tmp_path / "orders-0")
    shutil.copytree(tmp_path / "orders-0", tmp_path / "logs" / "orders-0")
    shutil.copy(tmp_path / "orders-0" / f"{0:020d}.log", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    examples = re.findall(r"^ *(klog dump-segment .*?) *$", klog("dump-segment", "--help").out, re.MULTILINE)
    assert len(examples) == 7
    assert klog("backup", "run", "logs", "--to", "backups/cluster").code == 0
    for example in examples:
        arguments = shlex.split(example.partition(" | ")[0])[1:]
        done = klog(*arguments)
        notes = [
            line for line in done.err.splitlines() if "the moment is before the first backup" not in line
        ]
        assert (done.code, notes) == (0, []), example
    assert (tmp_path / "orders.parquet").exists()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("klog du", "dump-segment"),
        ("klog dump-segment --form", "--format"),
        ("klog dump-segment --format pa", "parquet"),
    ],
)
def test_the_shell_completes_commands_options_and_formats(line: str, expected: str) -> None:
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1), "_KLOG_COMPLETE": "complete_bash"}
    program = "import sys; sys.argv = ['klog']; from klog.commands.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **words},
        capture_output=True,
        text=True,
        check=False,
    )
    assert expected in done.stdout.split()


def test_a_closed_pipe_is_no_error() -> None:
    directory = corpora.Corpus("k39-codecs").path / "logs"
    program = "import sys; sys.argv = ['klog', *sys.argv[1:]]; from klog.commands.main import main; main()"
    with child(
        [sys.executable, "-c", program, "dump-segment", str(directory)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0
