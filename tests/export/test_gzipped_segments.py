"""Gzipped copies of segments are read up to their damage; what is not there is told, and counts as lost."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from klog.commands.offline.exporting.report_text import report_text
from klog.export.options import ReadOptions
from klog.export.planner import plan
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from tests.export.export_support import export, table_rows
from tests.export.logs import batch, replica, write_segment


def varied(first: int, count: int) -> bytes:
    """A batch whose bytes do not compress to nothing."""
    records = [
        RecordData(n, n, b"%d" % n, b"".join(b"%d," % (n * k * 7919 % 10007) for k in range(1, 40)))
        for n in range(first, first + count)
    ]
    return bytes(build_batch(records, BatchFields(leader_epoch=0)))


def copy_of(directory: Path, first: int, batches: int, change: Callable[[bytes], bytes]) -> tuple[Path, int]:
    """A gzipped segment of batches of five records, changed; and the size of its plain bytes."""
    plain = b"".join(varied(n, 5) for n in range(first, first + 5 * batches, 5))
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{first:020}.log.gz"
    path.write_bytes(change(gzip.compress(plain, mtime=0)))
    return path, len(plain)


def offsets(output: Path) -> list[int]:
    return [row["offset"] for row in table_rows(output)]


def test_a_whole_copy_is_counted_by_its_plain_bytes(tmp_path: Path) -> None:
    copy, plain_bytes = copy_of(tmp_path / "in" / "t-0", 0, 20, bytes)
    report = export(tmp_path / "in", tmp_path / "out", verify=True)
    assert copy.stat().st_size < plain_bytes
    assert report.read_bytes == plain_bytes
    assert report.plan.splits[0].length_bytes == plain_bytes
    assert report.clean
    assert offsets(tmp_path / "out") == list(range(100))


DAMAGE = {
    "truncated": lambda data: data[: len(data) * 2 // 3],
    "without its last byte": lambda data: data[:-1],
    "damaged in the middle": lambda data: data[: len(data) // 2] + b"\xff" * 20 + data[len(data) // 2 + 20 :],
    "with a wrong checksum": lambda data: data[:-8] + bytes([data[-8] ^ 1]) + data[-7:],
}

READABLE = {
    "truncated": (600, 700),
    "without its last byte": (1000, 1000),
    "damaged in the middle": (450, 550),
    "with a wrong checksum": (995, 995),
}
"""The least and the greatest number of records that are there."""


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_copy_is_read_up_to_the_damage(tmp_path: Path, name: str) -> None:
    copy, plain_bytes = copy_of(tmp_path / "in" / "t-0", 0, 200, DAMAGE[name])
    report = export(tmp_path / "in", tmp_path / "out", verify=True)
    found = offsets(tmp_path / "out")
    assert found == list(range(len(found)))
    least, most = READABLE[name]
    assert least <= len(found) <= most
    (lost,) = report.lost
    assert (lost.file, lost.first_offset, lost.end_offset) == (str(copy), len(found), None)
    assert lost.reason.startswith("the gzipped copy ")
    assert report.read_bytes <= plain_bytes
    assert not report.clean
    assert report_text(report).splitlines()[-1] == (
        "verified: not all is there: 1 range of the log could not be read; all other records are there"
    )


@pytest.mark.parametrize("content", [b"no gzip at all", b""], ids=["text", "empty"])
def test_a_copy_that_is_not_gzipped_is_lost(tmp_path: Path, content: bytes) -> None:
    copy, _ = copy_of(tmp_path / "in" / "t-0", 0, 1, lambda _: content)
    report = export(tmp_path / "in", tmp_path / "out", verify=True)
    assert [(lost.file, lost.reason) for lost in report.lost] == [
        (str(copy), "the copy is not gzipped, as its name says, and no valid batch is in it")
    ]
    assert not report.clean
    assert "all is there" not in report_text(report).replace("not all is there", "")


def test_a_plain_segment_with_the_name_of_a_copy_is_read(tmp_path: Path) -> None:
    directory = tmp_path / "in" / "t-0"
    write_segment(directory, [batch(0, 3), batch(3, 2)], index=False).rename(
        directory / "00000000000000000000.log.gz"
    )
    report = export(tmp_path / "in", tmp_path / "out")
    assert report.clean
    assert report.read_bytes == (directory / "00000000000000000000.log.gz").stat().st_size
    assert offsets(tmp_path / "out") == list(range(5))


def test_the_offsets_between_a_damaged_copy_and_the_next_segment_are_lost(tmp_path: Path) -> None:
    copy_of(tmp_path / "in" / "t-0", 0, 200, DAMAGE["truncated"])
    copy_of(tmp_path / "in" / "t-0", 1000, 4, bytes)
    report = export(tmp_path / "in", tmp_path / "out")
    found = offsets(tmp_path / "out")
    first = next(n for n in range(1000) if n not in found)
    assert found == [*range(first), *range(1000, 1020)]
    assert [(lost.first_offset, lost.end_offset) for lost in report.lost] == [(first, 1000)]


def test_another_replica_has_what_a_damaged_copy_lacks(tmp_path: Path) -> None:
    copy_of(tmp_path / "a" / "t-0", 0, 200, DAMAGE["truncated"])
    replica(tmp_path / "b" / "t-0", [varied(n, 5) for n in range(0, 1000, 5)], segment_batches=1000)
    report = export([tmp_path / "a", tmp_path / "b"], tmp_path / "out", verify=True)
    assert report.clean
    assert sorted(offsets(tmp_path / "out")) == list(range(1000))


def test_a_plain_checkpoint_counts_and_not_its_gzipped_copy(tmp_path: Path) -> None:
    directory = replica(tmp_path / "t-0", [varied(0, 5)], (3, 0))
    (directory / "leader-epoch-checkpoint.gz").write_bytes(b"damaged")
    assert not plan(ReadOptions((str(tmp_path),))).problems
