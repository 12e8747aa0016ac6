"""`klog convert`: output, questions, and the directories afterwards."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from klog.formats.compression import ZSTD
from klog.formats.constants import CODEC_MASK
from klog.formats.names import FileKind
from tests import corpora
from tests.commands.running import Run, runner
from tests.convert.logs import batches_of, contents, records_of
from tests.storage.cleaner.logs import LogWriter

ZSTD_ALL = ("--compression", "zstd", "--all", "--yes")


@pytest.fixture
def klog(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capfd, monkeypatch)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    copy = tmp_path / "kafka"
    shutil.copytree(corpora.Corpus("k39-codecs").log_dir().path, copy)
    return copy


def tree(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != FileKind.LOCK
    }


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_the_active_segment_stays_as_it_is(klog: Run, logs: Path) -> None:
    partition = logs / "t-lz4-0"
    active = max(partition.glob("*.log"))
    before, records = active.read_bytes(), records_of(partition)
    done = klog("convert", "-c", "zstd", "--yes", "--json", partition)
    assert done.code == 0
    (report,) = objects(done.out)
    assert report["outcome"] == "converted"
    assert report["keptSegments"] == [int(active.stem)]
    assert report["convertedBytes"] < report["convertibleBytes"]
    assert active.read_bytes() == before
    assert records_of(partition) == records


def test_what_is_above_the_high_watermark_stays(klog: Run, logs: Path) -> None:
    path = logs / FileKind.REPLICATION_CHECKPOINT
    lines = path.read_text().splitlines()
    path.write_text("\n".join("t-gzip 0 150" if line.startswith("t-gzip") else line for line in lines) + "\n")
    partition = logs / "t-gzip-0"
    bases = sorted(int(path.stem) for path in partition.glob("*.log"))
    done = klog("convert", "-c", "zstd", "--yes", "--json", partition)
    (report,) = objects(done.out)
    ends = bases[1:]
    assert report["replacedSegments"] == [base for base, end in zip(bases, ends, strict=False) if end <= 150]
    assert klog("convert", *ZSTD_ALL, "--json", partition).code == 0
    for _, table, row in batches_of(partition):
        assert table.attributes[row] & CODEC_MASK == ZSTD


def test_a_dry_run_samples_and_changes_nothing(klog: Run, logs: Path) -> None:
    before = tree(logs)
    done = klog("convert", "-c", "zstd", "--dry-run", "--json", logs)
    assert done.code == 0
    reports = {report["topic"]: report for report in objects(done.out)}
    assert reports["t-none"]["estimatedBytes"] < reports["t-none"]["convertibleBytes"]
    assert tree(logs) == before


def test_without_an_answer_nothing_is_changed(klog: Run, logs: Path) -> None:
    before = tree(logs)
    done = klog("convert", "-c", "zstd", logs)
    assert done.code == 1
    assert "nothing was changed" in done.err
    assert tree(logs) == before


def test_an_output_is_a_whole_log_directory(klog: Run, logs: Path, tmp_path: Path) -> None:
    before = tree(logs)
    output = tmp_path / "converted"
    assert klog("convert", "-c", "zstd", "--verify", "-o", output, logs).code == 0
    assert tree(logs) == before
    assert {path.name for path in output.iterdir()} == {
        path.name for path in logs.iterdir() if path.name != FileKind.LOCK
    }
    for partition in corpora.Corpus("k39-codecs").log_dir().partitions():
        assert records_of(output / partition.name) == records_of(logs / partition.name)
    assert klog("verify", output).code == 0
    again = klog("convert", "-c", "zstd", "-o", output, logs)
    assert again.code == 2
    assert "holds something else" in again.err


def test_a_second_conversion_says_that_nothing_changes(klog: Run, logs: Path) -> None:
    assert klog("convert", *ZSTD_ALL, logs).code == 0
    before = tree(logs)
    done = klog("convert", *ZSTD_ALL, "--json", logs)
    assert {report["outcome"] for report in objects(done.out)} == {"unchanged"}
    assert tree(logs) == before


def test_damage_is_named_and_the_others_are_converted(klog: Run, logs: Path) -> None:
    damaged = sorted((logs / "t-snappy-0").glob("*.log"))[1]
    data = bytearray(damaged.read_bytes())
    data[100] ^= 1
    damaged.write_bytes(data)
    before = contents(logs / "t-snappy-0")
    done = klog("convert", "-c", "zstd", "--yes", logs)
    assert done.code == 1
    assert f"{damaged} at byte 0: batch fails its checksum" in done.err
    assert contents(logs / "t-snappy-0") == before
    assert "t-lz4-0: 2 segments" in done.out


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("-c", "brotli"), "there is no codec brotli"),
        (("-c", "snappy", "--level", "3"), "a level needs a codec that has levels"),
        (("--level", "3"), "a level needs a codec that has levels"),
        (("-c", "zstd", "--level", "99"), "level 99 is not from"),
        (("--segment-bytes", "10"), "segments of 10 bytes"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    klog: Run, logs: Path, arguments: tuple[str, ...], what: str
) -> None:
    done = klog("convert", *arguments, "--yes", logs)
    assert done.code == 2
    assert what in done.err


def test_a_killed_conversion_continues(logs: Path, tmp_path: Path) -> None:
    """Two processes convert some megabytes, and are killed at any time until they are done."""
    directory = tmp_path / "big-0"
    log = LogWriter(directory)
    for number in range(24):
        for _ in range(20):
            log.data([(b"key", os.urandom(400).hex().encode() * 4)] * 12, codec=3, producer=number % 3)
        log.roll()
    log.finish()
    before = records_of(directory)
    command = [sys.executable, "-m", "klog", "convert", "-c", "zstd", "--yes", "-j", "2", str(directory)]
    wait_s = 0.4
    output = tmp_path / "output.txt"
    returned = None
    for _ in range(50):
        with output.open("wb") as file:
            process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            returned = process.wait(wait_s)
            break
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        wait_s *= 1.3
    assert returned == 0, output.read_text()
    assert records_of(directory) == before
    assert not [name for name in contents(directory) if name.endswith((".cleaned", ".swap", ".json"))]
