"""The fast index readers read what the definitions in `klog.formats` read."""

from __future__ import annotations

from pathlib import Path

import pytest

from klog.formats import offset_index, time_index
from klog.formats.names import FileKind
from klog.storage.indexes.index_file import index_entries
from klog.storage.indexes.index_search import OffsetIndexSearch, TimeIndexSearch
from tests import corpora

SOUND = [corpus for corpus in corpora.corpora() if not corpus.is_corrupt]
OFFSET_INDEXES = list(corpora.files(".index", chosen=SOUND))
TIME_INDEXES = list(corpora.files(".timeindex", chosen=SOUND))


@pytest.mark.parametrize("path", OFFSET_INDEXES, ids=corpora.fixture_id)
def test_offset_index_entries_are_those_of_the_definition(path: Path) -> None:
    parsed = offset_index.parse(path.read_bytes()).entries
    expected = [(entry.relativeOffset, entry.position) for entry in parsed]
    assert list(index_entries(FileKind.OFFSET_INDEX, path.read_bytes())) == expected
    with path.open("rb") as file:
        search = OffsetIndexSearch(file)
        assert [search[row] for row in range(len(search))] == expected


@pytest.mark.parametrize("path", TIME_INDEXES, ids=corpora.fixture_id)
def test_time_index_entries_are_those_of_the_definition(path: Path) -> None:
    parsed = time_index.parse(path.read_bytes()).entries
    expected = [(entry.timestamp, entry.relativeOffset) for entry in parsed]
    assert list(index_entries(FileKind.TIME_INDEX, path.read_bytes())) == expected
    with path.open("rb") as file:
        search = TimeIndexSearch(file)
        assert [search[row] for row in range(len(search))] == expected
