"""The fast index readers read what the definitions in `klog.formats` read."""

from __future__ import annotations

from pathlib import Path

import pytest

from klog.formats import offset_index, time_index
from klog.storage.indexes import (
    offset_index_entries,
    read_offset_index,
    read_time_index,
    time_index_entries,
)
from tests import corpora

SOUND = [corpus for corpus in corpora.corpora() if not corpus.is_corrupt]
OFFSET_INDEXES = list(corpora.files(".index", chosen=SOUND))
TIME_INDEXES = list(corpora.files(".timeindex", chosen=SOUND))


@pytest.mark.parametrize("path", OFFSET_INDEXES, ids=corpora.fixture_id)
def test_offset_index_entries_are_those_of_the_definition(path: Path) -> None:
    parsed = offset_index.parse(path.read_bytes()).entries
    expected = [(entry.relativeOffset, entry.position) for entry in parsed]
    assert list(offset_index_entries(path.read_bytes())) == expected
    sorted_part = read_offset_index(str(path))
    found = list(zip(sorted_part.relative_offsets, sorted_part.positions, strict=True))
    assert found == expected[: len(found)]


@pytest.mark.parametrize("path", TIME_INDEXES, ids=corpora.fixture_id)
def test_time_index_entries_are_those_of_the_definition(path: Path) -> None:
    parsed = time_index.parse(path.read_bytes()).entries
    expected = [(entry.timestamp, entry.relativeOffset) for entry in parsed]
    assert list(time_index_entries(path.read_bytes())) == expected
    sorted_part = read_time_index(str(path))
    found = list(zip(sorted_part.timestamps_ms, sorted_part.relative_offsets, strict=True))
    assert found == expected[: len(found)]


def test_entries_that_do_not_ascend_end_what_a_lookup_uses(tmp_path: Path) -> None:
    path = tmp_path / "x.index"
    numbers = [(5, 100), (9, 200), (7, 300), (12, 400)]
    path.write_bytes(b"".join(o.to_bytes(4, "big") + p.to_bytes(4, "big") for o, p in numbers))
    assert list(read_offset_index(str(path)).at_or_before(12)) == [(9, 200), (5, 100)]
