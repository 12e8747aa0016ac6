"""Figures of benchmarks are kept in files, and two of these are compared."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import compare
from benchmarks.rows import Row, Rows, as_json, read


def kept(path: Path, *figures: tuple[str, float, float]) -> Path:
    rows = Rows("text")
    for figure in figures:
        rows.add(*figure)
    path.write_text(as_json("2 CPUs", {"rounds": 5}, rows.taken))
    return path


def test_a_file_has_each_figure_with_its_ratio_the_machine_and_the_version(tmp_path: Path) -> None:
    path = kept(tmp_path / "a.json", ("all records, wall s", 0.5, 2.0))
    head, rows = read(path)
    assert rows == [Row("text", "all records, wall s", klog=0.5, peer=2.0, ratio=0.25)]
    assert head.keys() == {"version", "machine", "python", "rounds"}
    assert head["machine"] == "2 CPUs"
    assert json.loads(path.read_text())["rows"][0]["ratio"] == 0.25


def test_figures_have_four_digits() -> None:
    rows = Rows("text")
    rows.add("requests/s", 123_456.7, 3.0)
    assert rows.taken == [Row("text", "requests/s", 123_500, 3, 41_150)]


def test_without_a_figure_of_the_peer_nothing_is_kept() -> None:
    rows = Rows("text")
    rows.add("cores while idle", 0.1, 0.0)
    assert rows.taken == []


def test_the_change_of_each_ratio_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    old = kept(tmp_path / "old.json", ("same", 1, 2), ("slower", 1, 2), ("gone", 1, 4))
    new = kept(tmp_path / "new.json", ("same", 2, 4), ("slower", 3, 4), ("added", 3, 1))
    monkeypatch.setattr(sys, "argv", ["compare", str(old), str(new)])
    assert compare.main() == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()[2:]] == [
        ["0.5", "0.5", "+0%", "text:", "same"],
        ["0.5", "0.75", "+50%", "text:", "slower"],
        ["0.25", "-", "text:", "gone"],
        ["-", "3", "text:", "added"],
    ]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rows": [{"name": "text"}]}', '{"rows": 1}'])
def test_another_file_is_named(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other.json"
    other.write_text(text)
    monkeypatch.setattr(sys, "argv", ["compare", str(other), str(other)])
    assert compare.main() == 1
    assert f"{other} is no file of `benchmarks.run --json`" in capsys.readouterr().err
