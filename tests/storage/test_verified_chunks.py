"""Two threads that verify the blocks of a segment in turns find what one thread finds, at the same places."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.formats.errors import ChecksumCodeError
from klog.kernel import kernel
from klog.kernel.columns import BatchTable
from klog.storage.files import verified_chunks as module
from klog.storage.files.files import open_for_reading
from klog.storage.files.verified_chunks import verified_chunks
from klog.storage.repair.segment_scan import IndexSettings, scan_segment
from tests import strategies
from tests.export.logs import batch
from tests.formats import reading
from tests.storage.test_chunks import read_whole

SEGMENT = b"".join(batch(5 * each, 5, size=20 * (each % 7)) for each in range(90))


@contextmanager
def two_threads(block_bytes: int = 1000, room_bytes: int = 800, cores: int = 2) -> Iterator[None]:
    """Files of any size are read in blocks of this size by two threads."""
    with (
        mock.patch.object(module, "BLOCK_BYTES", block_bytes),
        mock.patch.object(module, "ROOM_BYTES", room_bytes),
        mock.patch.object(module, "TWO_THREADS_FROM_BYTES", 1),
        mock.patch.object(module, "own_cores", return_value=cores),
    ):
        yield


@contextmanager
def file_of(data: bytes) -> Iterator[BinaryIO]:
    with tempfile.NamedTemporaryFile() as written:
        written.write(data)
        written.flush()
        with open_for_reading(written.name) as file:
            yield file


def rows_by_turns(
    data: bytes, **limits: int
) -> tuple[list[dict[str, int]], tuple[int, int, int, int], list[int]]:
    """The rows, the end as `read_whole` states it, and the sizes of the chunks."""
    table = BatchTable()
    rows: list[dict[str, int]] = []
    sizes: list[int] = []
    with file_of(data) as file:
        for buffer in verified_chunks(file, table, **limits):
            rows += reading.rows_of(table)
            sizes.append(len(buffer))
    end = table.origin + table.consumed_bytes, table.stop, table.stop_size, table.need_bytes
    return rows, end, sizes


def second_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == module.THREAD_NAME]


@given(
    strategies.segments() | strategies.damaged(strategies.segments()) | st.binary(max_size=200),
    st.integers(20, 900),
    st.integers(0, 900),
)
def test_blocks_of_any_size_give_the_verified_batches_of_one_read(
    data: bytes, block_bytes: int, room_bytes: int
) -> None:
    with two_threads(block_bytes, room_bytes):
        rows, end, _ = rows_by_turns(data)
    assert (rows, end) == read_whole(data)


@given(st.integers(0, len(SEGMENT) - 1), st.integers(1, 255), st.integers(100, 3000))
def test_a_scan_finds_a_damaged_byte_where_one_thread_finds_it(
    position: int, change: int, block_bytes: int
) -> None:
    damaged = bytearray(SEGMENT)
    damaged[position] ^= change
    with file_of(bytes(damaged)) as file:
        expected = scan_segment(file, 0, IndexSettings())
        with two_threads(block_bytes):
            assert scan_segment(file, 0, IndexSettings()) == expected


def test_whole_blocks_are_read_by_turns_and_what_follows_them_at_once() -> None:
    with two_threads(block_bytes=1000):
        _, _, sizes = rows_by_turns(SEGMENT)
    blocks = len(SEGMENT) // 1000
    assert all(1000 <= size <= 1800 for size in sizes[:blocks])
    assert len(sizes) <= blocks + 2


def test_a_range_between_batches_is_read_and_nothing_else() -> None:
    rows, _ = read_whole(SEGMENT)
    edges = [row["position"] for row in rows]
    with two_threads():
        found, _, _ = rows_by_turns(SEGMENT, start_bytes=edges[3], end_bytes=edges[50])
    assert found == [row for row in rows if edges[3] <= row["position"] < edges[50]]


def test_what_cannot_be_read_as_a_block_is_left_to_the_reader_of_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = os.preadv

    def fail_at_7000(descriptor: int, buffers: list[memoryview], position: int) -> int:
        if position == 7000:
            raise OSError(5, "Input/output error")
        return real(descriptor, buffers, position)

    monkeypatch.setattr(os, "preadv", fail_at_7000)
    with two_threads():
        rows, end, _ = rows_by_turns(SEGMENT)
    assert (rows, end) == read_whole(SEGMENT)


def test_the_caller_may_read_the_file_meanwhile() -> None:
    table = BatchTable()
    rows = []
    with file_of(SEGMENT) as file, two_threads():
        for _ in verified_chunks(file, table):
            rows += reading.rows_of(table)
            file.seek(17)
            file.read(100)
    assert rows == read_whole(SEGMENT)[0]


def test_wrong_checksum_code_in_the_second_thread_is_an_error_of_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = kernel.verify

    def fail_in_the_second(data: memoryview, table: BatchTable) -> int:
        if threading.current_thread().name == module.THREAD_NAME:
            raise ChecksumCodeError("this machine's checksum code is wrong")
        return real(data, table)

    monkeypatch.setattr(kernel, "verify", fail_in_the_second)
    with two_threads(), pytest.raises(ChecksumCodeError):
        rows_by_turns(SEGMENT)
    assert not second_threads()


def test_the_second_thread_ends_with_a_reader_that_stops_early() -> None:
    with file_of(SEGMENT) as file, two_threads():
        for _ in verified_chunks(file, BatchTable()):
            assert len(second_threads()) == 1
            break
        assert not second_threads()


@pytest.mark.parametrize(("cores", "from_bytes"), [(1, 1), (2, len(SEGMENT) + 1)])
def test_one_core_or_a_short_file_has_no_second_thread(
    monkeypatch: pytest.MonkeyPatch, cores: int, from_bytes: int
) -> None:
    monkeypatch.setattr(module, "SecondThread", None)
    with two_threads(cores=cores), mock.patch.object(module, "TWO_THREADS_FROM_BYTES", from_bytes):
        rows, end, _ = rows_by_turns(SEGMENT)
    assert (rows, end) == read_whole(SEGMENT)


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("threading.Thread.start", RuntimeError("can't start new thread")),
        ("mmap.mmap", OSError(12, "no memory")),
    ],
)
def test_one_thread_reads_where_the_system_gives_no_other_or_no_memory(what: str, error: Exception) -> None:
    with two_threads(), mock.patch(what, side_effect=error):
        rows, end, _ = rows_by_turns(SEGMENT)
    assert (rows, end) == read_whole(SEGMENT)
