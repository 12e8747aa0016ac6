"""Committed offsets are loaded from columns as from single records, whatever the records are."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.coordinator.groups.loading import GroupReader, load_groups
from klog.coordinator.groups.records import GroupMetadata, group_key, group_value, offset_key, offset_value
from klog.coordinator.groups.values import CommittedOffset
from klog.formats.compression import GZIP
from klog.kernel import kernel
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.kernel.columns import BatchTable, RecordTable
from klog.storage.cleaner.decoding import decode_plain

ATTRIBUTES = (
    "offset",
    "leader_epoch",
    "metadata",
    "commit_timestamp_ms",
    "expire_timestamp_ms",
    "written_at",
)
Record = tuple[bytes | None, bytes | None]

NAMES = st.sampled_from(("g", "g", "other", "grüppe", "", "n" * 600))
COMMITS = st.builds(
    CommittedOffset,
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 2**31 - 1),
    st.sampled_from(("", "", "some", "ü", "m" * 300)),
    st.integers(-1, 2**63 - 1),
    st.sampled_from((-1, -1, -1, 5)),
)


@st.composite
def records(draw: st.DrawFn) -> Record:
    """A record of `__consumer_offsets`; most are commits."""
    kind = draw(st.integers(0, 11))
    group, topic = draw(NAMES), draw(NAMES)
    if kind == 0:
        return group_key(group), draw(st.sampled_from((None, group_value(GroupMetadata("p", 1, None, None)))))
    if kind == 1:
        return draw(st.binary(max_size=30) | st.none()), draw(st.binary(max_size=30) | st.none())
    key = offset_key(group, (topic, draw(st.integers(-1, 3))))
    if kind == 2:
        return key, None
    value = offset_value(draw(COMMITS), draw(st.sampled_from((3, 3, 3, 2, 1))))
    if kind == 3:
        return key[: draw(st.integers(0, len(key)))], value
    if kind == 4:
        return key, value[: draw(st.integers(0, len(value)))]
    if kind == 5:
        return b"\0\0" + key[2:], value + b"rest"
    return key, value


BATCH_KINDS = st.sampled_from(
    (
        *(BatchFields(),) * 6,
        BatchFields(codec=GZIP),
        BatchFields(producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True),
    )
)
BATCHES = st.lists(st.tuples(BATCH_KINDS, st.lists(records(), min_size=1, max_size=6)), max_size=5)


def log_of(batches: list[tuple[BatchFields, list[Record]]]) -> tuple[memoryview, BatchTable]:
    data, offset = bytearray(), 0
    for fields, several in batches:
        data += build_batch([RecordData(offset + n, 1, *each) for n, each in enumerate(several)], fields)
        offset += len(several)
    table = BatchTable()
    kernel.scan(memoryview(data), 0, True, table)
    return memoryview(data), table


def plain(several: list[Record]) -> tuple[memoryview, RecordTable]:
    data, table = log_of([(BatchFields(), several)])
    decoded = RecordTable()
    decode_plain(data, table, 0, 1, decoded)
    return data, decoded


@pytest.fixture(params=["_offset_loading", "_pyoffset_loading"])
def module(request: pytest.FixtureRequest) -> ModuleType:
    return import_module(f"klog.coordinator.groups.offsets.{request.param}")


def loaded_by(module: ModuleType, several: list[Record]) -> tuple[list[int], dict]:
    """Where the loader has stopped, and what it has loaded."""
    data, decoded = plain(several)
    groups: dict[str, dict] = {}
    loader = module.OffsetLoader(lambda group_id: groups.setdefault(group_id, {}))
    stops, number = [], 0
    while number < len(several):
        number = loader.load(data, decoded, number, len(several))
        stops.append(number)
        number += 1
    return stops, {
        group_id: [(key, [getattr(stored, name) for name in ATTRIBUTES]) for key, stored in offsets.items()]
        for group_id, offsets in groups.items()
    }


def test_commits_are_stored_with_their_record_offsets(module: ModuleType) -> None:
    value = offset_value(CommittedOffset(7, 2, "m", 5))
    several = [(offset_key("g", ("t", number)), value) for number in range(2)]
    stops, groups = loaded_by(module, several)
    assert stops == [2]
    assert groups == {"g": [(("t", 0), [7, 2, "m", 5, -1, 0]), (("t", 1), [7, 2, "m", 5, -1, 1])]}


def test_records_that_are_not_there_are_refused(module: ModuleType) -> None:
    data, decoded = plain([(b"k", b"v")])
    loader = module.OffsetLoader(lambda _: {})
    for number, end in ((-1, 1), (0, 2)):
        with pytest.raises(IndexError):
            loader.load(data, decoded, number, end)


def test_a_payload_that_is_too_short_is_not_read(module: ModuleType) -> None:
    value = offset_value(CommittedOffset(7, 2, "m", 5))
    data, decoded = plain([(offset_key("g", ("t", 0)), value)])
    groups: dict[str, dict] = {}
    loader = module.OffsetLoader(lambda group_id: groups.setdefault(group_id, {}))
    assert loader.load(data[:-9], decoded, 0, 1) == 0
    assert groups == {}


def test_groups_share_the_names_of_partitions(module: ModuleType) -> None:
    value = offset_value(CommittedOffset(7, 2, "m", 5))
    data, decoded = plain([(offset_key(group, ("t", 0)), value) for group in ("a", "b")])
    groups: dict[str, dict] = {}
    loader = module.OffsetLoader(lambda group_id: groups.setdefault(group_id, {}))
    assert loader.load(data, decoded, 0, 2) == 2
    assert next(iter(groups["a"])) is next(iter(groups["b"]))


@given(st.lists(records(), min_size=1, max_size=8))
def test_both_implementations_agree(several: list[Record]) -> None:
    compiled, twin = (
        loaded_by(import_module(f"klog.coordinator.groups.offsets.{name}"), several)
        for name in ("_offset_loading", "_pyoffset_loading")
    )
    assert compiled == twin


def read(reader: GroupReader, data: memoryview, table: BatchTable, *, together: bool) -> object:
    row, rows = 0, len(table)
    while row < rows:
        if together:
            row = reader.add_plain(data, table, row, rows)
        if row < rows:
            reader.add_batch(data, table, row)
            row += 1
    loaded = reader.loaded
    offsets = {group_id: (each.committed(), each.is_empty) for group_id, each in loaded.offsets.items()}
    return loaded.groups, offsets, loaded.group_ids()


class _TakesNothing:
    def load(self, payload, records, number: int, end: int) -> int:
        return number


@given(BATCHES)
def test_batches_are_loaded_as_record_by_record(batches) -> None:
    data, table = log_of(batches)
    one, other = GroupReader("__consumer_offsets-0"), GroupReader("__consumer_offsets-0")
    other._loader = _TakesNothing()
    assert read(one, data, table, together=True) == read(other, data, table, together=False)


class FileLog:
    """A log of one file, as `load_groups` reads it."""

    partition = "__consumer_offsets-0"
    log_start_offset = 0

    def __init__(self, file: BinaryIO, data: memoryview, table: BatchTable) -> None:
        file.write(data)
        file.flush()
        self.file = file
        self.table = table
        self.lock = threading.RLock()
        self.log_end_offset = table.last_offset[-1] + 1

    def read(self, offset: int, max_bytes: int, limit: int, *, at_least_one: bool) -> SimpleNamespace:
        """The batches from `offset` on that fit, at least one."""
        row = bisect_left(self.table.last_offset, offset)
        start = self.table.position[row]
        ends = [at + size for at, size in zip(self.table.position, self.table.size, strict=True)]
        fitting = [end for end in ends if start < end <= start + max_bytes]
        end = max(fitting, default=ends[row])
        return SimpleNamespace(file=self.file, position=start, size=end - start)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[BinaryIO]:
    with (tmp_path / "log").open("w+b") as file:
        yield file


def test_a_damaged_batch_is_skipped_alone(file: BinaryIO, caplog: pytest.LogCaptureFixture) -> None:
    value = offset_value(CommittedOffset(7, 2, "m", 5))
    several = [(BatchFields(), [(offset_key(group, ("t", 0)), value)]) for group in ("a", "b", "c")]
    data, table = log_of(several)
    data[table.position[1] + 61] = 0xFF  # the length of its record
    found = load_groups(FileLog(file, data, table), 1 << 20, lambda: True)
    assert set(found.offsets) == {"a", "c"}
    assert "the records 1 to 1 are not loaded" in caplog.text


def test_other_threads_run_while_a_large_batch_is_loaded(file: BinaryIO) -> None:
    value = offset_value(CommittedOffset(7, 2, "m", 5))
    commits = [(offset_key("g", ("t", number)), value) for number in range(500)]
    data, table = log_of([(BatchFields(), commits)])
    reader_sizes: list[int] = []
    reader = GroupReader("t-0", lambda: reader_sizes.append(len(reader.loaded.offsets["g"].committed())))
    assert reader.add_plain(memoryview(data), table, 0, 1) == 1
    assert len(reader.loaded.offsets["g"].committed()) == 500
    steps = [after - before for before, after in zip([0, *reader_sizes], [*reader_sizes, 500], strict=True)]
    assert 0 < max(steps) <= 50


def test_a_log_is_read_in_chunks_with_a_pause_after_each(file: BinaryIO) -> None:
    value = offset_value(CommittedOffset(7, 2, "m", 5))
    several = [(BatchFields(), [(offset_key("g", ("t", number)), value)]) for number in range(10)]
    data, table = log_of(several)
    log = FileLog(file, data, table)
    paused = []
    found = load_groups(log, 2 * table.size[0] + 1, lambda: True, lambda: paused.append(1))
    assert (len(found.offsets["g"].committed()), len(paused)) == (10, 5)
    led = iter((True, True, False))
    assert load_groups(log, 1, lambda: next(led)) is None
