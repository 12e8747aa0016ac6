"""Offset and time index on disk: what is found in them, active or rolled, and what a cut leaves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from klog.config.broker import BrokerConfig
from klog.formats.errors import CorruptRecordError
from klog.storage.log.index_files import OffsetIndexFile, TimeIndexFile
from klog.storage.log.manager_values import ManagerSettings

BASE = 1000
ascending = st.lists(st.integers(1, 50), min_size=0, max_size=600).map(
    lambda steps: [BASE + sum(steps[: n + 1]) for n in range(len(steps))]
)


# More entries than are read at once.
MANY = [BASE + 2 * number for number in range(1, 601)]


def floor(values: list[int], target: int) -> int:
    return max((n for n, value in enumerate(values) if value <= target), default=-1)


@given(
    offsets=ascending,
    target=st.integers(BASE, BASE + 30_000),
    rolled=st.booleans(),
    cut=st.integers(0, 30_000),
)
@example(MANY, BASE + 2, True, 10)
@example(MANY, BASE + 602, True, 3010)
@example(MANY, BASE + 1190, True, 5990)
def test_an_offset_index_finds_the_last_entry_at_or_below(
    tmp_path_factory: pytest.TempPathFactory, offsets: list[int], target: int, rolled: bool, cut: int
) -> None:
    index = OffsetIndexFile(str(tmp_path_factory.mktemp("i") / "index"), BASE, 8192)
    index.activate()
    for number, offset in enumerate(offsets):
        index.append(offset, number * 10)
    if rolled:
        index.trim()
        assert os.path.getsize(index.path) == 8 * len(offsets)
    found = floor(offsets, target)
    assert tuple(index.lookup(target)) == ((offsets[found], found * 10) if found >= 0 else (BASE, 0))
    reaching = [offset for n, offset in enumerate(offsets) if n * 10 >= cut]
    assert index.upper_bound(cut) == (reaching[0] if reaching else None)
    index.truncate_to(BASE + cut)
    kept = [offset for offset in offsets if offset < BASE + cut]
    assert index.entries == len(kept)
    assert index.last.offset == (kept[-1] if kept else BASE)
    index.activate()
    assert os.path.getsize(index.path) == 8192
    index.append(BASE + 40_000, 7)
    assert tuple(index.lookup(BASE + 50_000)) == (BASE + 40_000, 7)


@given(times=ascending, target=st.integers(0, 40_000), rolled=st.booleans())
def test_a_time_index_finds_the_last_entry_at_or_before(
    tmp_path_factory: pytest.TempPathFactory, times: list[int], target: int, rolled: bool
) -> None:
    index = TimeIndexFile(str(tmp_path_factory.mktemp("i") / "timeindex"), BASE, 12_000)
    index.activate()
    for number, timestamp in enumerate(times):
        index.maybe_append(timestamp, BASE + number)
        index.maybe_append(timestamp, BASE + number)  # no later: not written
    if rolled:
        index.trim()
    found = floor(times, target)
    assert tuple(index.lookup(target)) == ((times[found], BASE + found) if found >= 0 else (-1, BASE))
    index.truncate_to(BASE + len(times) // 2)
    assert index.entries == len(times) // 2


def test_an_index_takes_nothing_that_goes_back_or_does_not_fit(tmp_path: Path) -> None:
    index = OffsetIndexFile(str(tmp_path / "index"), BASE, 16)
    index.activate()
    index.append(BASE + 5, 0)
    for offset in (BASE + 5, BASE + 4, BASE + 2**31, BASE - 1):
        with pytest.raises(CorruptRecordError):
            index.append(offset, 1)
    index.append(BASE + 6, 1)
    assert index.full
    with pytest.raises(CorruptRecordError, match="no space"):
        index.append(BASE + 7, 2)


def test_the_time_index_keeps_its_last_slot_for_the_end_of_the_segment(tmp_path: Path) -> None:
    index = TimeIndexFile(str(tmp_path / "timeindex"), BASE, 24)
    index.activate()
    index.maybe_append(1, BASE)
    assert index.full
    index.maybe_append(2, BASE + 1)
    index.maybe_append(3, BASE + 2)
    assert (index.entries, tuple(index.last)) == (2, (2, BASE + 1))


def test_an_active_index_takes_disk_space_only_for_its_entries(tmp_path: Path) -> None:
    index = OffsetIndexFile(str(tmp_path / "index"), 0, 10 << 20)
    index.activate()
    for offset in range(1, 2000):
        index.append(offset, offset)
    on_disk = os.stat(index.path)
    assert on_disk.st_size == 10 << 20
    assert on_disk.st_blocks * 512 < 1 << 20


def test_settings_are_the_broker_s_configs() -> None:
    configs = {"log.retention.check.interval.ms": "7", "num.recovery.threads.per.data.dir": "3"}
    found = ManagerSettings.of(BrokerConfig(configs), ("/a",))
    assert (found.retention_check_ms, found.recovery_threads_per_directory) == (7, 3)
    assert ManagerSettings.of(BrokerConfig({}), ("/a",)) == ManagerSettings(("/a",))
