"""Layouts are drawn from the definitions, and agree with the numbers that fast readers use."""

from __future__ import annotations

import pytest

from klog.formats import catalogue, constants, layout
from klog.formats.errors import UsageError


def _offsets(name: str) -> dict[str, tuple[int | None, str]]:
    rows = layout.rows(catalogue.find(name).definition)
    return {row.name: (row.offset, row.size) for row in reversed(rows) if not row.bits}


@pytest.mark.parametrize("entry", catalogue.FORMATS, ids=lambda entry: entry.name)
def test_every_format_has_a_layout_whose_rows_are_documented(entry: catalogue.Format) -> None:
    rows = layout.rows(entry.definition)
    assert rows
    assert all(row.name for row in rows)
    assert all(
        row.type or row.name.startswith(("key", "value", "version", "magic")) or row.depth for row in rows
    )
    assert callable(entry.parse)
    assert callable(entry.build)


def test_the_batch_header_has_the_positions_of_fast_readers() -> None:
    rows = _offsets("record-batch")
    assert rows["records"][0] == constants.BATCH_HEADER_BYTES
    assert rows["magic"] == (constants.MAGIC_POSITION, "1")
    assert rows["crc"] == (constants.BATCH_CRC_POSITION, "4")
    assert rows["partitionLeaderEpoch"] == (constants.ENTRY_PREFIX_BYTES, "4")
    assert rows["recordCount"] == (57, "4")


def test_attribute_bits_are_those_of_the_constants() -> None:
    bits = {row.name: row for row in layout.rows(catalogue.find("record-batch").definition) if row.bits}
    assert 1 << (bits["hasDeleteHorizon"].offset or 0) == constants.DELETE_HORIZON_BIT
    assert 1 << (bits["isControl"].offset or 0) == constants.CONTROL_BIT
    assert 1 << (bits["isTransactional"].offset or 0) == constants.TRANSACTIONAL_BIT
    assert 1 << (bits["timestampType"].offset or 0) == constants.TIMESTAMP_TYPE_BIT
    assert (1 << int(bits["codec"].size)) - 1 == constants.CODEC_MASK
    assert bits["codec"].offset == 0
    assert "4 zstd" in bits["codec"].meaning


def test_message_headers_have_the_positions_of_fast_readers() -> None:
    rows = _offsets("message-set")
    assert rows["magic"] == (constants.MAGIC_POSITION, "1")
    assert rows["timestamp"] == (constants.MESSAGE_V0_HEADER_BYTES, "0 or 8")
    assert rows["crc"] == (constants.ENTRY_PREFIX_BYTES, "4")


@pytest.mark.parametrize(
    ("name", "last", "size"),
    [
        ("offset-index", "position", constants.OFFSET_INDEX_ENTRY_BYTES),
        ("time-index", "relativeOffset", constants.TIME_INDEX_ENTRY_BYTES),
        ("transaction-index", "lastStableOffset", constants.TXN_INDEX_ENTRY_BYTES),
        ("producer-snapshot", "currentTxnFirstOffset", constants.SNAPSHOT_ENTRY_BYTES),
    ],
)
def test_fixed_entries_have_the_sizes_of_the_constants(name: str, last: str, size: int) -> None:
    offset, width = _offsets(name)[last]
    assert offset is not None
    assert offset + int(width) == size


def test_after_a_field_of_variable_size_there_are_no_offsets() -> None:
    rows = layout.rows(catalogue.find("message-set").definition)
    after = [row for row in rows if row.name in ("key", "value")]
    assert [row.offset for row in after] == [None, None]


def test_versions_that_do_not_differ_are_drawn_once() -> None:
    drawn = [row.name for row in layout.rows(catalogue.find("consumer-offsets").definition)]
    assert "version 0, 2" in drawn


def test_an_unknown_format_is_wrong_usage_and_a_near_name_is_offered() -> None:
    with pytest.raises(UsageError, match="did you mean record-batch"):
        catalogue.find("record-bach")


def test_files_find_their_format_by_name() -> None:
    assert (found := catalogue.of_file("00000000000000000000.log.swap")) is not None
    assert found.name == "segment"
    assert catalogue.of_file(".lock") is None
