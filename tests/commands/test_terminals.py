"""What people see: terminals of 80 columns, colours, and text that must not command the terminal."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from klog.commands.shared.messages import hanging
from klog.commands.shared.table_layout import Cell, Column, fit, natural_widths
from klog.formats.visible import visible
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from tests import corpora
from tests.commands.screens import RUN, on_screen

CODECS = corpora.Corpus("k39-codecs").path / "logs"
TXN = corpora.Corpus("k39-txn").path / "logs"
DAMAGED = corpora.Corpus("corrupt-k39").path / "logs"


@pytest.fixture
def near(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Short paths: directories of Kafka in the working directory."""
    monkeypatch.chdir(tmp_path)
    for name, source in (("codecs", CODECS), ("txn", TXN), ("damaged", DAMAGED)):
        shutil.copytree(source, tmp_path / name)
    return tmp_path


EVERYWHERE = [
    ["dump-segment", "codecs/t-gzip-0"],
    ["dump-segment", "--batches", "codecs/t-multi-0"],
    ["dump-segment", "txn/t-txn-0"],
    ["dump-segment", "--batches", "txn/t-txn-0"],
    ["dump-segment", "--all-files", "txn"],
    ["dump-segment", "--summary", "codecs"],
    ["dump-segment", "--summary", "txn/t-txn-0"],
    ["verify", "damaged"],
    ["rebuild-index", "--check", "damaged"],
    ["recover", "--dry-run", "damaged"],
    ["clean", "--status", "codecs"],
    ["clean", "--policy", "delete", "--retention-ms", "1", "--dry-run", "codecs"],
    ["export", "--dry-run", "-o", "tables", "codecs"],
    ["formats"],
    ["formats", "record-batch"],
    ["formats", "producer-snapshot"],
    ["verify"],
    ["topics", "list", "-b", "127.0.0.1:1", "--timeout-ms", "1"],
    ["serve", "-o", "log.retention.ms=soon"],
]


@pytest.mark.parametrize("arguments", EVERYWHERE, ids=" ".join)
@pytest.mark.parametrize("columns", [80, 60])
def test_no_line_is_longer_than_the_screen_unless_one_word_is(
    near: Path, arguments: list[str], columns: int
) -> None:
    seen = on_screen(*arguments, columns=columns)
    assert "Traceback" not in seen.text
    for line in seen.lines:
        if len(line) > columns:
            assert max(map(len, line.split())) > columns // 2, line


def test_tables_never_cut_numbers_and_names(near: Path) -> None:
    records = on_screen("dump-segment", "txn/t-txn-0").text
    assert "…" not in "".join(word for word in records.split() if not word.startswith("0x"))
    for offset in range(0, 526, 25):
        assert f"\n{offset:>6}  " in records or f"\n{offset:>3}  " in records or f" {offset}  " in records
    summary = on_screen("dump-segment", "--summary", "codecs", columns=40).text
    for name in ("t-gzip-0", "t-snappy-0", "t-multi-2"):
        assert f"codecs/{name} " in summary
    assert "no room for" in summary
    formats = on_screen("formats").text
    assert "recovery-point-checkpoint " in formats


def test_damage_in_a_late_row_is_shown(tmp_path: Path) -> None:
    source = corpora.Corpus("k39-codecs").path / "logs" / "t-none-0" / "00000000000000000000.log"
    copy = tmp_path / source.name
    data = source.read_bytes() * 5
    (tmp_path / source.name).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert "checksum fails" in on_screen("dump-segment", copy, columns=120).text
    # Elsewhere, too: the table has columns that were empty in its first rows.
    assert "checksum fails" in on_screen("dump-segment", copy, columns=80).text


def test_problems_hang_and_have_colours(near: Path) -> None:
    seen = on_screen("verify", "damaged/c-b.flip-first-0")
    assert "\x1b[1;31merror\x1b[0m" in seen.raw
    problem = seen.lines.index(next(line for line in seen.lines if line.startswith("error")))
    assert seen.lines[problem + 1].startswith("    ")
    plain = on_screen("verify", "damaged/c-b.flip-first-0", NO_COLOR="1")
    assert "\x1b" not in plain.raw
    assert plain.text == seen.text
    dumb = on_screen("verify", "damaged/c-b.flip-first-0", TERM="dumb")
    assert "\x1b" not in dumb.raw


def test_errors_have_a_colour_on_a_terminal() -> None:
    assert "\x1b[1;31mklog:\x1b[0m " in on_screen("verify", "nowhere").raw
    assert "\x1b" not in on_screen("verify", "nowhere", NO_COLOR="1").raw


HOSTILE = "\x1b]0;owned\x07\x9b31m\r\u202eevil"


@pytest.mark.parametrize(
    "arguments",
    [
        ["dump-segment", "{}"],
        ["dump-segment", "-f", "jsonl", "{}"],
        ["dump-segment", "-f", "kafka", "--print-data-log", "--files", "{}/00000000000000000000.log"],
        ["dump-segment", "--summary", "{}"],
        ["dump-segment", "--summary", "-f", "jsonl", "-o", "-", "{}"],
        ["verify", "{}"],
        ["rebuild-index", "--check", "{}"],
        ["rebuild-index", "{}"],
        ["recover", "--dry-run", "{}"],
        ["clean", "--status", "{}"],
        ["export", "--dry-run", "-o", "tables", "{}"],
        ["dump-segment", "{}/nothing"],
        ["dump-segment", "-f", "{}", "x"],
        ["{}"],
        ["formats", "{}"],
        ["verify", "--{}"],
    ],
    ids=" ".join,
)
def test_no_name_commands_the_terminal(tmp_path: Path, arguments: list[str]) -> None:
    directory = tmp_path / HOSTILE / "t-0"
    shutil.copytree(DAMAGED / "c-b.flip-first-0", directory)
    filled = [argument.replace("{}", str(directory)) for argument in arguments]
    seen = on_screen(*filled)
    rest = seen.text.replace("\n", "")
    assert visible(rest) == rest


@pytest.mark.parametrize("how", [["-f", "table"], ["-f", "jsonl"], ["-f", "kafka", "--print-data-log"]])
def test_no_record_commands_the_terminal(tmp_path: Path, how: list[str]) -> None:
    partition = tmp_path / "t-0"
    partition.mkdir()
    text = HOSTILE.encode()
    hostile = RecordData(0, 0, text, text, ((text, text),))
    segment = partition / "00000000000000000000.log"
    segment.write_bytes(build_batch([hostile], BatchFields()))
    seen = on_screen("dump-segment", *how, segment)
    assert seen.code == 0
    rest = seen.text.replace("\n", "")
    assert "]0;ow" in rest
    assert visible(rest) == rest
    # Elsewhere the bytes stay as they are.
    command = [sys.executable, "-c", RUN, "dump-segment", *how, segment]
    piped = subprocess.run(command, capture_output=True, check=True).stdout
    assert (text in piped) == ("kafka" in how)


def test_visible_shows_what_a_terminal_would_obey() -> None:
    assert visible("plain text, Ω and 日本") == "plain text, Ω and 日本"
    assert visible(HOSTILE) == r"\x1b]0;owned\x07\x9b31m\r\u202eevil"
    assert visible(os.fsdecode(b"gr\xfcn")) == r"gr\xfcn"


def test_columns_are_dropped_by_rank_before_anything_else_is_cut() -> None:
    columns = [
        Column("name"),
        Column("size", right=True, rank=2),
        Column("value", preview=True),
        Column("count", right=True, rank=1),
    ]
    rows = [[Cell("a-long-name-to-type"), Cell("12345"), Cell("x" * 50), Cell("77")]]
    natural = natural_widths(columns, rows)
    assert fit(columns, rows, natural, 100).places == (0, 1, 2, 3)
    assert fit(columns, rows, natural, 45).places == (0, 2, 3)
    assert fit(columns, rows, natural, 35).places == (0, 2)
    assert fit(columns, rows, natural, 10) == ((0, 2), (19, 12))


def test_a_number_stays_with_its_unit() -> None:
    assert hanging("about 44.2 KiB in 3 segments", 12) == "about\n    44.2 KiB\n    in 3\n    segments"
    assert hanging("took 12 s and more", 8).split("\n")[1] == "    12 s"


def test_the_answer_no_and_the_end_of_input_change_nothing() -> None:
    for keys in (b"n\n", b"\x04"):
        seen = on_screen("topics", "delete", "orders", keys=keys)
        assert seen.code == 1
        assert "klog: nothing was changed" in seen.text
        if keys == b"\x04":  # nobody has ended the line of the question
            assert seen.lines[-2].startswith("klog: ")
