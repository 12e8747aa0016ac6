"""Outputs: no command writes over an input, into Kafka's directories, or over what is there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests import corpora
from tests.commands.running import Run, runner

RUN = "from klog.commands.main import main; main()"


@pytest.fixture
def klog(capfd, monkeypatch) -> Run:
    return runner(capfd, monkeypatch)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A log directory of Kafka with a partition, beside which there is room for outputs."""
    copy = tmp_path / "kafka"
    shutil.copytree(corpora.Corpus("k39-codecs").path / "logs", copy)
    return copy


@pytest.fixture
def segment(logs: Path) -> Path:
    return logs / "t-gzip-0" / "00000000000000000000.log"


def content(tree: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in tree.rglob("*") if path.is_file()}


DUMPS = [
    ["-f", "jsonl"],
    ["-f", "kafka"],
    ["-f", "table"],
    ["-f", "parquet"],
    ["-f", "parquet", "--batches"],
    ["--summary"],
    ["--summary", "-f", "jsonl"],
]


def outputs(segment: Path, target: Path) -> list[list[object]]:
    """A command line for each option that writes a file."""
    return [
        *(["dump-segment", *how, segment, "-o", target] for how in DUMPS),
        ["export", segment.parent, "-o", segment.parents[2] / "tables", "--report", target],
    ]


NAMES = [*("dump-" + "".join(how) for how in DUMPS), "export-report"]
each_output = pytest.mark.parametrize("number", range(len(NAMES)), ids=NAMES)


@each_output
@pytest.mark.parametrize("link", ["itself", "symbolic", "hard", "symbolic-force", "hard-force"])
def test_no_output_overwrites_its_input(
    klog: Run, logs: Path, segment: Path, tmp_path: Path, number: int, link: str
) -> None:
    target = segment if link == "itself" else tmp_path / "linked"
    if link.startswith("symbolic"):
        target.symlink_to(segment)
    elif link.startswith("hard"):
        target.hardlink_to(segment)
    before = content(logs)
    options = ["--force"] if link.endswith("force") else []
    done = klog(*outputs(segment, target)[number], *options)
    assert done.code == 2
    assert str(target) in done.err
    assert content(logs) == before
    assert not (tmp_path / "tables").exists()


@each_output
def test_no_output_goes_into_a_directory_of_kafka(klog: Run, logs: Path, segment: Path, number: int) -> None:
    before = content(logs)
    for target in (
        segment.parent / "new",
        logs / "recovery-point-offset-checkpoint",
        logs / "meta.properties",
    ):
        done = klog(*outputs(segment, target)[number], "--force")
        assert done.code == 2
        assert "Kafka's" in done.err
    assert content(logs) == before


@pytest.mark.parametrize("target", ["", "t-gzip-0", "t-gzip-0/below", "new", "../kafka/new"])
def test_no_output_directory_is_kafkas(klog: Run, logs: Path, segment: Path, target: str) -> None:
    before, names = content(logs), sorted(logs.rglob("*"))
    where = logs / target
    for arguments in (
        ["export", logs, "-o", where],
        ["dump-segment", "-f", "parquet", segment, "-o", f"{where}/"],
        ["recover", "--yes", "--quarantine", where, segment.parent],
    ):
        done = klog(*arguments)
        assert done.code == 2, (arguments, done)
    assert content(logs) == before
    assert sorted(logs.rglob("*")) == names


@each_output
def test_an_existing_file_is_replaced_with_force_only(
    klog: Run, segment: Path, tmp_path: Path, number: int
) -> None:
    target = tmp_path / "out"
    target.write_text("precious")
    refused = klog(*outputs(segment, target)[number])
    assert refused.code == 2
    assert "--force" in refused.err
    assert target.read_text() == "precious"
    done = klog(*outputs(segment, target)[number], "--force")
    assert done.code == 0, done.err
    assert target.read_bytes() != b"precious"
    assert not list(tmp_path.glob("out.*"))


@each_output
def test_an_empty_file_and_a_file_behind_a_link_are_written(
    klog: Run, segment: Path, tmp_path: Path, number: int
) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.touch()
    link.symlink_to(real)
    assert klog(*outputs(segment, link)[number]).code == 0
    assert link.is_symlink()
    assert real.stat().st_size > 0


@each_output
def test_a_missing_directory_is_told_before_the_work(
    klog: Run, segment: Path, tmp_path: Path, number: int
) -> None:
    done = klog(*outputs(segment, tmp_path / "missing" / "out")[number])
    assert done.code == 1
    assert "no such directory" in done.err
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize("output", ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
@pytest.mark.parametrize("number", [0, 5, 7], ids=["dump", "summary", "report"])
def test_stdout_can_be_named_as_output(segment: Path, tmp_path: Path, output: str, number: int) -> None:
    arguments = [str(one) for one in outputs(segment, tmp_path / "x")[number]]
    arguments[arguments.index(str(tmp_path / "x"))] = output
    command = [sys.executable, "-c", RUN, *arguments]
    through_pipe = subprocess.run(command, capture_output=True, check=True, cwd=tmp_path).stdout
    shutil.rmtree(tmp_path / "tables", ignore_errors=True)
    with (tmp_path / "file").open("wb") as file:
        subprocess.run(command, stdout=file, stderr=subprocess.DEVNULL, check=True, cwd=tmp_path)
    assert through_pipe
    if number != 7:  # a report has the time in it
        assert (tmp_path / "file").read_bytes() == through_pipe
    else:
        assert json.loads((tmp_path / "file").read_bytes())["records"] == 420
    assert not (tmp_path / "-").exists()


def test_a_fifo_gets_the_output_and_stays_one(klog: Run, segment: Path, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(fifo.read_bytes()))
    reader.start()
    assert klog("dump-segment", segment, "-o", fifo).code == 0
    reader.join()
    assert found[0].count(b"\n") == 140
    assert fifo.is_fifo()


def test_a_full_device_as_output_is_an_error(klog: Run, segment: Path) -> None:
    done = klog("dump-segment", segment, "-o", "/dev/full")
    assert done.code == 1
    assert "/dev/full: cannot be written: No space left on device" in done.err


def test_stdout_that_is_an_input_is_refused(segment: Path) -> None:
    before = segment.read_bytes()
    with segment.open("ab") as appended:
        done = subprocess.run(
            [sys.executable, "-c", RUN, "dump-segment", segment],
            stdout=appended,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 2
    assert segment.read_bytes() == before


def test_two_inputs_never_share_an_output(klog: Run, segment: Path, tmp_path: Path) -> None:
    other = tmp_path / "disk2" / segment.parent.name
    shutil.copytree(segment.parent, other)
    done = klog("dump-segment", "-f", "parquet", segment.parent, other, "-o", f"{tmp_path}/out/")
    assert done.code == 2
    assert str(other) in done.err
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_report_of_an_earlier_export_is_replaced(klog: Run, segment: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    for name in ("one", "two"):
        done = klog("export", segment.parent, "-o", tmp_path / name, "--report", report)
        assert done.code == 0, done.err
    assert json.loads(report.read_text())["records"] == 420
