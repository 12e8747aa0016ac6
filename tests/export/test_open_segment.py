"""An open segment says where its valid batches end and where it can be divided, without being read whole."""

from __future__ import annotations

import gzip
import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.kernel import kernel
from klog.kernel.columns import BatchTable
from klog.replicas.discover import discover
from klog.replicas.open_segment import OpenSegment
from klog.replicas.replica_files import SegmentFile
from klog.storage.reading.position_search import BatchPosition
from tests.corpora import partitions
from tests.export.logs import batch, write_segment


def segment_of(log: Path) -> SegmentFile:
    return next(
        segment
        for replica in discover([str(log)]).replicas
        for segment in replica.segments
        if segment.log == str(log)
    )


def rows(data: bytes) -> list[tuple[int, ...]]:
    """Every header of a segment, scanned whole."""
    table = BatchTable()
    kernel.scan(data, 0, True, table)
    return list(zip(*(getattr(table, name) for name in BatchTable.COLUMNS[:-2]), strict=True))


@pytest.mark.parametrize("partition", partitions(), ids=str)
def test_a_segment_ends_where_kafkas_last_batch_ends(partition) -> None:
    if not partition.has_expected:
        return
    lines = partition.expected_batches()
    for path in partition.files(".log"):
        of_file = [line for line in lines if line["file"] == path.name and "lastOffset" in line]
        last = of_file[-1] if of_file else None
        segment = segment_of(path)
        end = (
            (segment.base_offset, 0)
            if last is None
            else (last["lastOffset"] + 1, last["position"] + last["size"])
        )
        with OpenSegment(segment) as opened:
            found = opened.end()
            walk_end = opened._end_by_walk()
        assert found.end_offset == walk_end.end_offset
        assert found.end_bytes == walk_end.end_bytes
        if partition.corpus.is_corrupt:
            # Kafka's reader stops at damage, klog finds what is behind it.
            assert (found.end_offset, found.end_bytes) >= end
        else:
            assert (found.end_offset, found.end_bytes, found.rest_bytes) == (*end, end[1])


def test_a_tail_of_zeros_ends_a_segment_silently(tmp_path: Path) -> None:
    log = write_segment(tmp_path / "t-0", [batch(0, 3), batch(3, 2)])
    size = log.stat().st_size
    with log.open("ab") as file:
        file.truncate(size + (10 << 20))
    with OpenSegment(segment_of(log)) as opened:
        end = opened.end()
    assert (end.end_offset, end.end_bytes, end.rest_bytes) == (5, size, size)


@pytest.mark.parametrize(
    ("tail", "problem"),
    [
        (batch(5, 3)[:15], r"no valid batch is found in the last 15 bytes"),
        (batch(5, 3)[:40], r"the last batch is cut short: it needs \d+ bytes, 40 are left"),
        (batch(5, 3)[:80], r"the last batch is cut short: it needs \d+ bytes, 80 are left"),
        (b"\xffgarbage" * 10, r"no valid batch is found in the last 80 bytes"),
    ],
    ids=["prefix", "header", "body", "garbage"],
)
def test_other_bytes_after_the_last_batch_are_a_loss(tmp_path: Path, tail: bytes, problem: str) -> None:
    log = write_segment(tmp_path / "t-0", [batch(0, 3), batch(3, 2)])
    size = log.stat().st_size
    with log.open("ab") as file:
        file.write(tail)
    with OpenSegment(segment_of(log)) as opened:
        end = opened.end()
    assert (end.end_offset, end.end_bytes, end.rest_bytes) == (5, size, size + len(tail))
    assert re.fullmatch(problem, end.rest_problem)


def test_a_gzipped_copy_is_walked_to_its_end(tmp_path: Path) -> None:
    log = write_segment(tmp_path / "t-0", [batch(0, 3), batch(3, 2)])
    copy = log.parent / f"{log.name}.gz"
    copy.write_bytes(gzip.compress(log.read_bytes()))
    log.unlink()
    with OpenSegment(segment_of(copy)) as opened:
        assert opened.end().end_offset == 5
        assert opened.cuts(BatchPosition(0, 0), 1000, 3) == []


def batches_of(counts: list[int]) -> list[bytes]:
    made, offset = [], 0
    for count in counts:
        made.append(batch(offset, count))
        offset += count
    return made


@pytest.mark.parametrize("indexed", [True, False])
@given(counts=st.lists(st.integers(1, 5), min_size=1, max_size=30), parts=st.integers(1, 12))
def test_cuts_are_batches_and_divide_a_segment_evenly(
    tmp_path_factory: pytest.TempPathFactory, indexed: bool, counts: list[int], parts: int
) -> None:
    batches = batches_of(counts)
    log = write_segment(tmp_path_factory.mktemp("cuts") / "t-0", batches, index=indexed)
    size = log.stat().st_size
    with OpenSegment(segment_of(log)) as opened:
        cuts = opened.cuts(BatchPosition(0, 0), size, parts)
    starts = {row[0]: row[2] for row in rows(log.read_bytes())}
    assert all(starts[cut.position_bytes] == cut.offset for cut in cuts)
    assert [cut.position_bytes for cut in cuts] == sorted({cut.position_bytes for cut in cuts})
    assert 0 not in (cut.position_bytes for cut in cuts)
    assert len(cuts) < parts
    largest = max(map(len, batches))
    edges = [0, *(cut.position_bytes for cut in cuts), size]
    assert max(after - before for before, after in pairwise(edges)) <= size / parts + 2 * largest


@pytest.mark.parametrize("damage", ["garbage", "other", "zeros", "odd", "positions"])
def test_a_wrong_index_gives_no_cut_that_is_no_batch(tmp_path: Path, damage: str) -> None:
    batches = [batch(n * 2, 2) for n in range(40)]
    log = write_segment(tmp_path / "t-0", batches)
    index = log.with_suffix(".index")
    sound = index.read_bytes()
    index.write_bytes(
        {
            "garbage": bytes(range(256)),
            "other": b"".join(
                (n * 2 + 1).to_bytes(4, "big") + (n * 91 + 7).to_bytes(4, "big") for n in range(1, 30)
            ),
            "zeros": bytes(len(sound)),
            "odd": sound[:-3],
            "positions": sound[:4] + b"\x7f\xff\xff\xff" + sound[8:],
        }[damage]
    )
    starts = {row[0]: row[2] for row in rows(log.read_bytes())}
    with OpenSegment(segment_of(log)) as opened:
        cuts = opened.cuts(BatchPosition(0, 0), log.stat().st_size, 5)
        assert all(starts[cut.position_bytes] == cut.offset for cut in cuts)
        assert opened.end().end_offset == 80
        found = opened.search.at_or_before_offset(41)
    assert starts[found.position_bytes] == found.offset <= 41
