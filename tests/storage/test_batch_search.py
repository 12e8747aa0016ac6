"""Batches are found in open segments: at a position, by walking headers, after damage."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.kernel import kernel
from klog.kernel.columns import BatchTable
from klog.storage.reading import batch_search
from klog.storage.reading.batch_search import first_filled_byte, headers, next_valid_batch, valid_batch, walk
from tests.corpora import corpora, partitions
from tests.export.logs import batch


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
    assert file.read_bytes <= 21 * batch_search.WALK_BYTES


def test_a_batch_is_valid_if_its_checksum_matches() -> None:
    data = batch(5, 3) + batch(8, 2, size=30_000)
    second = len(batch(5, 3))
    for position, offset in ((0, 5), (second, 8)):
        found = valid_batch(io.BytesIO(data), position)
        assert found is not None
        assert (found.base_offset[0], found.position[0], len(found)) == (offset, position, 1)
    assert valid_batch(io.BytesIO(data), 1) is None
    assert valid_batch(io.BytesIO(data), len(data)) is None
    assert valid_batch(io.BytesIO(data[:-1]), second) is None
    assert valid_batch(io.BytesIO(data), second, largest_bytes=1000) is None
    flipped = bytearray(data)
    flipped[second + 100] ^= 1
    assert valid_batch(io.BytesIO(flipped), second) is None


@given(damage=st.binary(max_size=200), zeros=st.integers(0, 3000), largest=st.integers(1, 40))
def test_the_next_valid_batch_is_found_after_any_damage(damage: bytes, zeros: int, largest: int) -> None:
    data = damage + bytes(zeros) + batch(7, largest, size=largest * 100)
    found = next_valid_batch(io.BytesIO(data), 0, len(data), from_offset=7)
    assert found is not None
    assert (found.position[0], found.base_offset[0]) == (len(damage) + zeros, 7)
    assert next_valid_batch(io.BytesIO(data), 0, len(data), from_offset=8) is None
    assert next_valid_batch(io.BytesIO(data), 0, len(damage) + zeros, from_offset=7) is None


@pytest.mark.parametrize("before", [0, 5, (1 << 20) - 17, (1 << 20) - 16, (1 << 20) - 1, 1 << 20])
def test_a_batch_across_two_chunks_of_the_search_is_found(before: int) -> None:
    data = b"\xff" * before + batch(3)
    found = next_valid_batch(io.BytesIO(data), 0, len(data))
    assert found is not None
    assert found.position[0] == before


def test_bytes_that_only_look_like_batches_cost_a_bounded_amount() -> None:
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
    assert next_valid_batch(file, 0, len(data)) is None
    assert file.read_bytes < 10 * len(data)


def test_zeros_are_skipped_up_to_the_first_other_byte() -> None:
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


def test_a_walk_continues_after_damage() -> None:
    batches = [batch(n * 3, 3) for n in range(6)]
    data = bytearray(b"".join(batches))
    at = len(batches[0]) * 2
    data[at + 8 : at + 12] = b"\xff\xff\xff\xff"  # the size of the third
    found = [offset for _, table in walk(io.BytesIO(data), 0, len(data), 0) for offset in table.base_offset]
    assert found == [0, 3, 9, 12, 15]
