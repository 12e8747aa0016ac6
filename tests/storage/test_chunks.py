"""A segment read in chunks of any size has the same batches as one read at once."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.formats.constants import BATCH_HEADER_BYTES
from klog.kernel import kernel
from klog.kernel.columns import BatchTable
from klog.storage.files.chunks import chunks
from tests import corpora, strategies
from tests.export.logs import batch
from tests.formats import reading

CHUNK_BYTES = (1, 17, 61, 100, 4096)


class ShortReads(io.BytesIO):
    """A file that returns fewer bytes than requested, as a pipe or a network file system may."""

    def readinto(self, buffer: Any) -> int:
        return super().readinto(memoryview(buffer)[: max(1, len(buffer) // 2)])


def read_whole(data: bytes) -> tuple[list[dict[str, int]], tuple[int, int, int, int]]:
    table = BatchTable()
    kernel.scan(data, 0, True, table)
    kernel.verify(data, table)
    return reading.rows_of(table), (table.consumed_bytes, table.stop, table.stop_size, table.need_bytes)


def read_in_chunks(
    file: io.BytesIO, chunk_bytes: int, **limits: int
) -> tuple[list[dict[str, int]], tuple[int, int, int, int]]:
    table = BatchTable()
    rows: list[dict[str, int]] = []
    for buffer in chunks(file, table, chunk_bytes=chunk_bytes, **limits):
        kernel.verify(buffer, table)
        rows += reading.rows_of(table)
    return rows, (table.origin + table.consumed_bytes, table.stop, table.stop_size, table.need_bytes)


@given(
    strategies.segments() | strategies.damaged(strategies.segments()) | st.binary(max_size=200),
    st.sampled_from(CHUNK_BYTES) | st.integers(1, 300),
    st.sampled_from([io.BytesIO, ShortReads]),
)
def test_chunks_of_any_size_give_the_batches_of_one_read(
    data: bytes, chunk_bytes: int, file: type[io.BytesIO]
) -> None:
    assert read_in_chunks(file(data), chunk_bytes) == read_whole(data)


@pytest.mark.parametrize("chunk_bytes", CHUNK_BYTES[1:])
@pytest.mark.parametrize(
    "path",
    list(corpora.files(".log", chosen=corpora.corpora("corrupt-k39", "k39-codecs", "up-08"))),
    ids=corpora.fixture_id,
)
def test_chunks_of_real_logs_give_the_batches_of_one_read(path: Path, chunk_bytes: int) -> None:
    data = path.read_bytes()
    assert read_in_chunks(io.BytesIO(data), chunk_bytes) == read_whole(data)


@given(strategies.segments(max_entries=6), st.sampled_from(CHUNK_BYTES), st.data())
def test_a_range_between_batches_is_read_and_nothing_else(
    data: bytes, chunk_bytes: int, draws: st.DataObject
) -> None:
    rows, (end, _, _, _) = read_whole(data)
    edges = [row["position"] for row in rows] + [end]
    start = draws.draw(st.sampled_from(edges))
    stop = draws.draw(st.sampled_from([edge for edge in edges if edge >= start]))
    found, _ = read_in_chunks(io.BytesIO(data), chunk_bytes, start_bytes=start, end_bytes=stop)
    assert found == [row for row in rows if start <= row["position"] < stop]


def test_a_batch_with_a_size_field_of_2_gib_takes_no_more_memory_than_the_file() -> None:
    file = io.BytesIO(struct.pack(">qiib", 0, 2**31 - 1, 0, 2) + bytes(10_000))
    table = BatchTable()
    held = [len(buffer) for buffer in chunks(file, table, chunk_bytes=64)]
    assert held == [10_017]
    assert (len(table), table.need_bytes) == (0, 2**31 - 1 + 12)


@given(strategies.segments(max_entries=6), st.sampled_from(CHUNK_BYTES), st.data())
def test_batches_that_start_before_a_position_are_read_whole_and_little_more_of_the_file(
    data: bytes, chunk_bytes: int, draws: st.DataObject
) -> None:
    rows, (end, _, _, _) = read_whole(data)
    edges = [row["position"] for row in rows] + [end]
    start = draws.draw(st.sampled_from(edges))
    bound = draws.draw(st.integers(start, len(data)))
    file = ReadsCounted(data)
    found, _ = read_in_chunks(file, chunk_bytes, start_bytes=start, starts_before_bytes=bound)
    wanted = [row for row in rows if start <= row["position"] < bound]
    assert [row for row in found if row["position"] < bound] == wanted
    ends = [row["position"] + row["size"] for row in wanted]
    assert file.farthest <= max([start, bound, *ends]) + BATCH_HEADER_BYTES


class ReadsCounted(io.BytesIO):
    """A file that records how far it was read."""

    farthest = 0

    def readinto(self, buffer: Any) -> int:
        got = super().readinto(buffer)
        self.farthest = max(self.farthest, self.tell())
        return got


def test_a_batch_above_the_limit_ends_the_scan_unread() -> None:
    file = ReadsCounted(struct.pack(">qiib", 0, 5000, 0, 2) + bytes(10_000))
    table = BatchTable()
    list(chunks(file, table, max_batch_bytes=5011, chunk_bytes=64))
    assert (len(table), table.need_bytes, file.farthest) == (0, 5012, 64)
    found = [table.size[0] for _ in chunks(file, table, max_batch_bytes=5012, chunk_bytes=64) if len(table)]
    assert found == [5012]


def test_a_large_buffer_is_not_reused_after_its_batch(monkeypatch: Any) -> None:
    monkeypatch.setattr("klog.storage.files.chunks.LARGEST_REUSED_BYTES", 1000)
    batches = [
        struct.pack(">qiib", n, size - 12, 0, 2) + bytes([n]) * (size - 17)
        for n, size in enumerate((4000, 80, 80))
    ]
    table = BatchTable()
    held = [
        (bytes(buffer), buffer) for buffer in chunks(io.BytesIO(b"".join(batches)), table, chunk_bytes=100)
    ]
    assert bytes(held[0][1]) == held[0][0] == batches[0]
    assert max(len(buffer.obj) for _, buffer in held[1:]) == 100


def test_with_keeps_previous_a_buffer_stays_until_the_one_after_the_next() -> None:
    segment = b"".join(batch(5 * each, 5, size=100 * (each % 7)) for each in range(60))
    kept: list[tuple[memoryview, bytes]] = []
    for data in chunks(io.BytesIO(segment), BatchTable(), chunk_bytes=700, keeps_previous=True):
        assert all(bytes(view) == before for view, before in kept[-1:])
        kept.append((data, bytes(data)))
    assert len(kept) > 10
