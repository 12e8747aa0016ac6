"""Batches are found through indexes; an index that is missing, damaged or of another file gives the start."""

from __future__ import annotations

import struct
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.storage.reading.position_search import start_position
from klog.storage.reading.select import Bounds
from tests.corpora import corpora, partitions
from tests.export.logs import batch, write_segment


def position(log: Path, bounds: Bounds) -> int:
    with log.open("rb", buffering=0) as file:
        return start_position(file, str(log), int(log.stem), bounds)


@given(counts=st.lists(st.integers(1, 5), min_size=1, max_size=30), offset=st.integers(0, 160))
def test_an_offset_is_searched_for_from_its_batch_on(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], offset: int
) -> None:
    firsts = [0, *accumulate(counts)][:-1]
    batches = [batch(first, count) for first, count in zip(firsts, counts, strict=True)]
    log = write_segment(tmp_path_factory.mktemp("search") / "t-0", batches)
    starts = dict(zip([0, *accumulate(map(len, batches))], firsts, strict=False))
    found = position(log, Bounds(first_offset=offset))
    # An index entry has the last offset of its batch; the first batch needs no entry.
    ends = [first + count for first, count in zip(firsts, counts, strict=True)]
    entries = [first for first, end in zip(firsts[1:], ends[1:], strict=True) if end - 1 <= offset]
    assert starts[found] == max(entries, default=0)


def test_entries_that_do_not_ascend_are_checked_against_their_batches(tmp_path: Path) -> None:
    batches = [batch(n * 2, 2) for n in range(20)]
    log = write_segment(tmp_path / "t-0", batches)
    starts = [0, *accumulate(map(len, batches))]
    numbers = [(5, starts[2]), (9, starts[4]), (7, starts[3]), (39, starts[19])]
    log.with_suffix(".index").write_bytes(b"".join(struct.pack(">ii", *each) for each in numbers))
    assert position(log, Bounds(first_offset=12)) in {0, *starts[2:5]}
    assert position(log, Bounds(first_offset=39)) == starts[19]


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", [b"", b"\0" * 24, b"\xff" * 96, bytes(range(96))])
def test_a_damaged_index_never_skips_a_record(tmp_path: Path, kind: str, damage: bytes) -> None:
    batches = [batch(n * 2, 2, at=1000 + n) for n in range(20)]
    log = write_segment(tmp_path / "t-0", batches)
    log.with_suffix(kind).write_bytes(damage)
    starts = [0, *accumulate(map(len, batches))]
    assert position(log, Bounds(first_offset=20)) <= starts[10]
    assert position(log, Bounds(since_ms=1010)) <= starts[9]


@pytest.mark.parametrize("partition", partitions(corpora("k39-", "k4-", "up-")), ids=str)
def test_no_record_is_before_the_position_that_kafkas_indexes_give(partition) -> None:
    if not partition.has_expected:
        return
    lines = [line for line in partition.expected_batches() if "lastOffset" in line]
    for path in partition.files(".log"):
        of_file = [line for line in lines if line["file"] == path.name]
        for line in of_file:
            found = position(path, Bounds(first_offset=line["lastOffset"]))
            assert found <= line["position"]
            since_ms = line["maxTimestamp"]
            first = next(one["position"] for one in of_file if one["maxTimestamp"] >= since_ms)
            assert position(path, Bounds(since_ms=since_ms)) <= first
