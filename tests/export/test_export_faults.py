"""Damage in a segment is reported and costs nothing else; a failure of the output stops the job."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from klog.commands.offline.exporting.report_text import report_text
from klog.export import table_files
from klog.export.report import report_json
from klog.formats import compression
from klog.formats.errors import KlogError, StorageError
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from tests import corpora
from tests.corpora import REPOSITORY
from tests.export.export_support import data_files, export, table_rows, tree
from tests.export.logs import write_segment

GZIP = corpora.corpora("k39-codecs")[0].log_dir().partition("t-gzip-0").path


@pytest.fixture
def log(tmp_path) -> Path:
    """A copy that a test may damage."""
    copy = tmp_path / "logs" / GZIP.name
    shutil.copytree(GZIP, copy)
    return copy


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x55
    path.write_bytes(data)


def test_only_the_damaged_batch_is_lost_and_reported_with_position_and_offsets(log, tmp_path) -> None:
    flip(log / "00000000000000000140.log", 200)
    report = export(log, tmp_path / "out", verify=True)
    (lost,) = report.lost
    assert lost.file == str(log / "00000000000000000140.log")
    assert lost.start_bytes == 0
    assert lost.first_offset == 140
    offsets = {row["offset"] for row in table_rows(tmp_path / "out")}
    assert offsets == set(range(420)) - set(range(140, lost.end_offset))
    assert not report.clean
    assert report.findings == ()
    assert f"lost: {lost.file} at byte 0, offsets 140 to {lost.end_offset - 1}: " in report_text(report)
    assert report_json(report)["lost"][0]["endOffset"] == lost.end_offset


def test_fail_on_data_loss_stops_at_the_first_damage(log, tmp_path) -> None:
    flip(log / "00000000000000000140.log", 200)
    with pytest.raises(KlogError, match=r"00000000000000000140.log at byte 0: .*checksum"):
        export(log, tmp_path / "out", read={"fail_on_data_loss": True})


def test_a_segment_that_vanishes_after_it_was_planned_is_lost_and_the_rest_is_exported(
    log, tmp_path, monkeypatch
) -> None:
    from klog.export.sources import ReplicaFiles

    real = ReplicaFiles.plan

    def plan_then_lose(source, options):
        planned = real(source, options)
        (log / "00000000000000000265.log").unlink()
        return planned

    monkeypatch.setattr(ReplicaFiles, "plan", plan_then_lose)
    report = export(log, tmp_path / "out")
    assert [(lost.first_offset, lost.end_offset) for lost in report.lost] == [(265, 400)]
    assert {row["offset"] for row in table_rows(tmp_path / "out")} == {*range(265), *range(400, 420)}


def test_a_disk_that_fills_up_stops_the_job_with_nothing_half_written_and_it_can_go_on(
    tmp_path, monkeypatch
) -> None:
    export(GZIP, tmp_path / "whole")
    done = 0
    real = table_files.row_writer

    def fill_up(*args, **options):
        nonlocal done
        done += 1
        writer = real(*args, **options)
        if done == 3:
            monkeypatch.setattr(writer, "close", _no_space)
        return writer

    monkeypatch.setattr(table_files, "row_writer", fill_up)
    with pytest.raises(StorageError, match="No space left on device") as caught:
        export(GZIP, tmp_path / "out")
    assert caught.value.cure == (
        "free some space and run it again (klog export with --resume): what is done is kept"
    )
    assert len(data_files(tmp_path / "out")) == 2
    assert not (tmp_path / "out/_klog/unfinished").exists()
    monkeypatch.undo()
    export(GZIP, tmp_path / "out", resume=True)
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")


def _no_space() -> None:
    raise OSError(28, os.strerror(28))


# Without bytecode: what is imported under the limit would be cut off in the cache, for all later processes.
_LIMITED = """
import resource, sys
sys.dont_write_bytecode = True
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
sys.argv = ["klog", "export", "{source}", "-o", "{output}", "--columns", "value,offset", "-f", "{wanted}"]
from klog.commands.main import main
main()
"""


@pytest.mark.parametrize("wanted", ["parquet", "orc", "jsonl"])
def test_a_file_that_cannot_grow_is_an_error_of_one_line(wanted, tmp_path) -> None:
    """The real thing: the kernel refuses to write on, in the middle of a file."""
    text = _LIMITED.format(limit=4096, source=GZIP, output=tmp_path / "out", wanted=wanted)
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr.startswith("klog: ")
    assert "cannot be written: File too large" in done.stderr
    assert done.stderr.count("\n") == 1
    assert data_files(tmp_path / "out") == []


def test_a_report_shows_some_of_many_losses_and_json_all(log, tmp_path) -> None:
    for path in log.glob("*.log"):
        for at in range(100, path.stat().st_size, 300):
            flip(path, at)
    report = export(log, tmp_path / "out")
    lost = len(report.lost)
    assert report_text(report).count("lost: ") == min(lost, 20) + (lost > 20)
    assert len(report_json(report)["lost"]) == lost > 0


def test_memory_is_bounded_whatever_a_few_bytes_decompress_to(tmp_path) -> None:
    """Sixteen batches of 96 MiB each, in a file of some KiB."""
    zeros = [RecordData(offset, 1000, None, bytes(32 << 20)) for offset in range(3)]
    batch = bytes(build_batch(zeros, BatchFields(codec=compression.ZSTD)))
    batches = [struct.pack(">q", 3 * number) + batch[8:] for number in range(16)]
    write_segment(tmp_path / "logs" / "bomb-0", batches)
    done = subprocess.run(
        [sys.executable, "-c", _PEAK_KIB, "export", tmp_path / "logs", "-o", tmp_path / "out", "-q"],
        cwd=REPOSITORY,
        capture_output=True,
        check=True,
        timeout=120,
    )
    assert len(data_files(tmp_path / "out")) == 1
    assert int(done.stdout) < 500 << 10


# Not what wait4 says: that counts what the process was before exec, which is as large as this one.
_PEAK_KIB = """
from klog.commands.main import main
try:
    main()
finally:
    with open("/proc/self/status") as status:
        print(next(line.split()[1] for line in status if line.startswith("VmHWM")))
"""
