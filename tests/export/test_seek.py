"""`klog.export.seek` and `klog.export.segments`: finding batches, ends and cuts without reading segments."""

from __future__ import annotations

import gzip
import io
import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.export import seek
from klog.export.discover import discover
from klog.export.replica_files import SegmentFile
from klog.export.seek import first_filled_byte, headers, next_sound_batch, sound_batch, walk
from klog.export.segments import OpenSegment, Place
from klog.formats import kernel
from klog.formats.columns import BatchTable
from tests.corpora import corpora, partitions
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


def walked(data: bytes) -> list[tuple[int, ...]]:
    found = []
    for _, table in headers(io.BytesIO(data), 0, len(data)):
        found += zip(*(getattr(table, name) for name in BatchTable.COLUMNS[:-2]), strict=True)
    return found


@given(st.lists(st.tuples(st.integers(1, 4), st.sampled_from((1, 300, 40_000, 70_000, 200_000))), max_size=6))
def test_headers_are_those_of_a_whole_scan_however_large_the_batches_are(
    sizes: list[tuple[int, int]],
) -> None:
    data = b"".join(batch(n * 10, count, size=size) for n, (count, size) in enumerate(sizes))
    assert walked(data) == rows(data)


@pytest.mark.parametrize("partition", partitions(corpora("k08", "k010", "k011", "up-")), ids=str)
def test_headers_of_old_formats_are_those_of_a_whole_scan(partition) -> None:
    for path in partition.files(".log"):
        data = path.read_bytes()
        assert walked(data) == rows(data)


def test_bodies_of_large_batches_are_not_read() -> None:
    data = b"".join(batch(n, size=1 << 20) for n in range(20))

    class Counting(io.BytesIO):
        read_bytes = 0

        def read(self, size: int | None = -1, /) -> bytes:
            part = super().read(size)
            self.read_bytes += len(part)
            return part

    file = Counting(data)
    assert sum(len(table) for _, table in headers(file, 0, len(data))) == 20
    assert file.read_bytes <= 21 * seek.WALK_BYTES


def test_a_batch_is_sound_where_its_checksum_is_good() -> None:
    data = batch(5, 3) + batch(8, 2, size=30_000)
    second = len(batch(5, 3))
    for position, offset in ((0, 5), (second, 8)):
        found = sound_batch(io.BytesIO(data), position)
        assert found is not None
        assert (found.base_offset[0], found.position[0], len(found)) == (offset, position, 1)
    assert sound_batch(io.BytesIO(data), 1) is None
    assert sound_batch(io.BytesIO(data), len(data)) is None
    assert sound_batch(io.BytesIO(data[:-1]), second) is None
    assert sound_batch(io.BytesIO(data), second, largest_bytes=1000) is None
    flipped = bytearray(data)
    flipped[second + 100] ^= 1
    assert sound_batch(io.BytesIO(flipped), second) is None


@given(damage=st.binary(max_size=200), zeros=st.integers(0, 3000), largest=st.integers(1, 40))
def test_the_next_sound_batch_is_found_behind_any_damage(damage: bytes, zeros: int, largest: int) -> None:
    data = damage + bytes(zeros) + batch(7, largest, size=largest * 100)
    found = next_sound_batch(io.BytesIO(data), 0, len(data), from_offset=7)
    assert found is not None
    assert (found.position[0], found.base_offset[0]) == (len(damage) + zeros, 7)
    assert next_sound_batch(io.BytesIO(data), 0, len(data), from_offset=8) is None
    assert next_sound_batch(io.BytesIO(data), 0, len(damage) + zeros, from_offset=7) is None


@pytest.mark.parametrize("before", [0, 5, (1 << 20) - 17, (1 << 20) - 16, (1 << 20) - 1, 1 << 20])
def test_a_batch_across_two_chunks_of_the_search_is_found(before: int) -> None:
    data = b"\xff" * before + batch(3)
    found = next_sound_batch(io.BytesIO(data), 0, len(data))
    assert found is not None
    assert found.position[0] == before


def test_what_only_looks_like_batches_costs_a_bounded_amount() -> None:
    claims = (3 << 20).to_bytes(4, "big")
    liar = bytes(8) + claims + bytes(4) + b"\x02"
    data = liar * (1 << 16) + bytes(3 << 20)

    class Counting(io.BytesIO):
        read_bytes = 0

        def read(self, size: int | None = -1, /) -> bytes:
            part = super().read(size)
            self.read_bytes += len(part)
            return part

    file = Counting(data)
    assert next_sound_batch(file, 0, len(data)) is None
    assert file.read_bytes < 10 * len(data)


def test_zeros_are_passed_over_up_to_the_first_other_byte() -> None:
    data = bytes(2 << 20) + b"\x01" + bytes(100)
    assert first_filled_byte(io.BytesIO(data), 0, len(data)) == 2 << 20
    assert first_filled_byte(io.BytesIO(data), (2 << 20) + 1, len(data)) is None
    assert first_filled_byte(io.BytesIO(data), 0, 2 << 20) is None


def test_holes_of_a_file_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.write(b"x")
        file.truncate(1 << 40)
    with path.open("rb", buffering=0) as file:
        assert first_filled_byte(file, 1, 1 << 40) is None


def test_a_walk_goes_on_behind_damage() -> None:
    batches = [batch(n * 3, 3) for n in range(6)]
    data = bytearray(b"".join(batches))
    at = len(batches[0]) * 2
    data[at + 8 : at + 12] = b"\xff\xff\xff\xff"  # the size of the third
    found = [offset for _, table in walk(io.BytesIO(data), 0, len(data), 0) for offset in table.base_offset]
    assert found == [0, 3, 9, 12, 15]


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
        (batch(5, 3)[:15], r"no sound batch is found in the last 15 bytes"),
        (batch(5, 3)[:40], r"the last batch is cut short: it needs \d+ bytes, 40 are left"),
        (batch(5, 3)[:80], r"the last batch is cut short: it needs \d+ bytes, 80 are left"),
        (b"\xffgarbage" * 10, r"no sound batch is found in the last 80 bytes"),
    ],
    ids=["prefix", "header", "body", "garbage"],
)
def test_other_bytes_behind_the_last_batch_are_a_loss(tmp_path: Path, tail: bytes, problem: str) -> None:
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
        assert opened.cuts(Place(0, 0), 1000, 3) == []


def batches_of(counts: list[int]) -> list[bytes]:
    made, offset = [], 0
    for count in counts:
        made.append(batch(offset, count))
        offset += count
    return made


@pytest.mark.parametrize("indexed", [True, False])
@given(counts=st.lists(st.integers(1, 5), min_size=1, max_size=30), parts=st.integers(1, 12))
def test_cuts_are_batches_and_part_a_segment_evenly(
    tmp_path_factory: pytest.TempPathFactory, indexed: bool, counts: list[int], parts: int
) -> None:
    batches = batches_of(counts)
    log = write_segment(tmp_path_factory.mktemp("cuts") / "t-0", batches, index=indexed)
    size = log.stat().st_size
    with OpenSegment(segment_of(log)) as opened:
        cuts = opened.cuts(Place(0, 0), size, parts)
    starts = {row[0]: row[2] for row in rows(log.read_bytes())}
    assert all(starts[cut.position_bytes] == cut.offset for cut in cuts)
    assert [cut.position_bytes for cut in cuts] == sorted({cut.position_bytes for cut in cuts})
    assert 0 not in (cut.position_bytes for cut in cuts)
    assert len(cuts) < parts
    largest = max(map(len, batches))
    edges = [0, *(cut.position_bytes for cut in cuts), size]
    assert max(after - before for before, after in pairwise(edges)) <= size / parts + 2 * largest


@pytest.mark.parametrize("damage", ["garbage", "other", "zeros", "odd", "positions"])
def test_an_index_that_lies_gives_no_cut_that_is_no_batch(tmp_path: Path, damage: str) -> None:
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
        cuts = opened.cuts(Place(0, 0), log.stat().st_size, 5)
        assert all(starts[cut.position_bytes] == cut.offset for cut in cuts)
        assert opened.end().end_offset == 80
        place = opened.place_by_offset(41)
    assert starts[place.position_bytes] == place.offset <= 41
