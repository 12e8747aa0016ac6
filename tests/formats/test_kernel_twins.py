"""The compiled kernel and its twin in pure Python read the same from every input: columns, problems,
bytes.
"""

from __future__ import annotations

import struct
from array import array
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.formats.errors import CorruptRecordError, UsageError
from klog.kernel import _pykernel as twin
from klog.kernel.columns import BatchTable, RecordTable
from tests import corpora, strategies
from tests.formats import reading

compiled: ModuleType = pytest.importorskip("klog.kernel._kernel", reason="klog was built without a compiler")

LOGS = list(corpora.files(".log", ".log.deleted", ".swap", ".cleaned", ".checkpoint"))


def assert_same(data: bytes, *, origin: int = 0, final: bool = True) -> reading.ReadLog:
    by_twin = reading.read(twin, data, origin=origin, final=final)
    assert reading.read(compiled, data, origin=origin, final=final) == by_twin
    return by_twin


def test_the_kernels_are_different_implementations() -> None:
    assert (compiled.IMPLEMENTATION, twin.IMPLEMENTATION) == ("cython", "python")
    assert set(twin.__all__) <= set(dir(compiled))


@pytest.mark.parametrize("path", LOGS, ids=corpora.fixture_id)
def test_equal_on_every_log_of_the_fixtures(path: Path) -> None:
    assert_same(path.read_bytes())


@given(strategies.segments(), st.integers(0, 2**40), st.booleans())
def test_equal_on_generated_segments(data: bytes, origin: int, final: bool) -> None:
    found = assert_same(data, origin=origin, final=final)
    assert all(batch.problem is None and batch.row["valid"] for batch in found.batches)
    assert found.consumed_bytes == len(data)


@given(strategies.damaged(strategies.segments()), st.booleans())
def test_equal_on_damaged_segments(data: bytes, final: bool) -> None:
    assert_same(data, final=final)


@given(st.integers(-5, 200), st.integers(0, 255), st.binary(max_size=300), st.booleans())
def test_equal_on_random_bytes_after_a_size_and_a_magic(
    size: int, magic: int, data: bytes, final: bool
) -> None:
    assert_same(struct.pack(">qiiB", 7, size, 0, magic) + data, final=final)
    assert_same(data, final=final)


@given(
    count=st.integers(-2, 5) | st.just(2**31 - 1),
    attributes=st.integers(0, 15),
    records=st.lists(st.binary(max_size=20), max_size=5),
    rest=st.binary(max_size=12),
)
def test_equal_on_mostly_invalid_records(
    count: int, attributes: int, records: list[bytes], rest: bytes
) -> None:
    payload = b"".join(bytes((2 * len(record),)) + record for record in records) + rest
    header = struct.pack(
        ">qiibIhiqqqhii", 5, 49, 0, 2, 0, attributes, 2**31 - 1, 2**63 - 5, 1, -1, -1, -1, count
    )
    assert_payload_same(header, payload)
    uncompressed = header[:21] + struct.pack(">h", attributes & 8) + header[23:]
    assert_same(uncompressed[:8] + struct.pack(">i", 49 + len(payload)) + uncompressed[12:] + payload)


@given(
    magic=st.integers(-1, 1),
    attributes=st.sampled_from([0, 1, 8, 9]),
    offset=st.sampled_from([-1, 0, 1, 7, 2**63 - 1, -(2**63)]),
    payload=strategies.damaged(
        st.lists(
            st.integers(-1, 1).flatmap(
                lambda magic: strategies.segments(max_entries=3, magics=(abs(magic),), base_offset=0)
            ),
            max_size=2,
        ).map(b"".join)
    ),
)
def test_equal_on_mostly_invalid_message_sets(
    magic: int, attributes: int, offset: int, payload: bytes
) -> None:
    message = struct.pack(">qiIbBqii", offset, 22, 0, magic, attributes, 1234, -1, -1)
    assert_payload_same(message, payload)


def assert_payload_same(batch: bytes, payload: bytes) -> None:
    found = []
    for kernel in (compiled, twin):
        table, records = BatchTable(), RecordTable()
        kernel.scan(batch, 0, True, table)
        assert len(table) == 1
        sound = kernel.decode_payload(payload, table, 0, records)
        rows = reading.read_records(kernel, payload, records)
        found.append((sound, rows, records.problem, records.problem_batch, table.base_offset.tolist()))
    assert found[0] == found[1]


@given(
    strategies.segments(max_entries=6) | strategies.damaged(strategies.segments(max_entries=6)),
    st.integers(0, 300),
    st.sampled_from([0, 1, 2**31, -(2**63)]),
)
def test_an_index_rebuild_is_equal(data: bytes, interval_bytes: int, base_offset: int) -> None:
    by_twin = reading.index_of(twin, data, base_offset, interval_bytes)
    assert reading.index_of(compiled, data, base_offset, interval_bytes) == by_twin


@given(st.binary(max_size=40), st.integers(-2, 50), st.integers(0, 4))
def test_headers_are_equal_or_both_refused(payload: bytes, start: int, count: int) -> None:
    found: list[object] = []
    for kernel in (compiled, twin):
        try:
            found.append(kernel.headers(payload, start, count))
        except CorruptRecordError as error:
            found.append(str(error))
    assert found[0] == found[1]


KERNELS = pytest.mark.parametrize("kernel", [compiled, twin], ids=["compiled", "python"])


@KERNELS
def test_a_table_is_not_read_against_another_buffer(kernel: ModuleType) -> None:
    data = LOGS[0].read_bytes()
    table = BatchTable()
    kernel.scan(data, 0, True, table)
    rows = len(table)
    assert rows > 0
    short = data[: table.consumed_bytes - 1]
    with pytest.raises(UsageError, match="does not lie in the buffer"):
        kernel.verify(short, table)
    with pytest.raises(UsageError, match="does not lie in the buffer"):
        kernel.decode(short, table, rows - 1, rows, RecordTable())
    with pytest.raises(UsageError, match="does not lie in the buffer"):
        kernel.payload_span(short, table, rows - 1)
    for first, last in ((-1, 0), (0, rows + 1), (1, 0)):
        with pytest.raises(UsageError, match="of a table of"):
            kernel.decode(data, table, first, last, RecordTable())
    for row in (-1, rows):
        with pytest.raises(UsageError, match="of a table of"):
            kernel.decode_payload(b"", table, row, RecordTable())
        with pytest.raises(UsageError, match="of a table of"):
            kernel.payload_span(data, table, row)


@KERNELS
def test_a_column_with_an_exported_buffer_is_not_resized(kernel: ModuleType) -> None:
    data = LOGS[0].read_bytes()
    table = BatchTable()
    kernel.scan(data, 0, True, table)
    with memoryview(table.position), pytest.raises(BufferError):
        kernel.scan(data, 0, True, table)


def test_a_column_of_another_type_is_refused() -> None:
    table = BatchTable()
    compiled.scan(LOGS[0].read_bytes(), 0, True, table)
    table.position = array("d", [0.0] * len(table))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="64-bit integers"):
        compiled.verify(LOGS[0].read_bytes(), table)
