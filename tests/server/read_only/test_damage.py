"""Damage in what a read-only broker serves: it is logged once, with file, position and meaning."""

from __future__ import annotations

import gzip
import logging
import re
import shutil
from collections import defaultdict
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from klog.formats.names import TopicPartition
from klog.server.read_only.damage_search import DamageSearch, ServedSegment
from klog.server.read_only.opening import opened_backup
from klog.storage.repair.index_reports import RebuildOptions
from klog.storage.repair.problem import Severity
from klog.storage.repair.segment_scan import IndexSettings
from klog.storage.repair.verify import scope_of, verify
from tests.clients.python_clients import ConfluentKafka
from tests.corpora import Corpus, LogDirectory, log_dirs
from tests.server.read_only.serving import LISTENER, served, state_of
from tests.server.read_only.test_corpora import expected

DAMAGED = [each for each in log_dirs() if each.corpus.is_corrupt and each.name == "logs"]
CODECS = Corpus("k39-codecs").log_dir()
TIMEOUT_S = 60
PLACE = re.compile(r"^damaged: (?P<file>.*?)(?: at byte (?P<position>\d+))?: ")
# What is missing there has no bytes that verify could name.
WITHOUT_BYTES = ("c-b.empty-last-0", "c-b.missing-last-log-0")
ZEROS = "zero bytes follow the last batch"


@pytest.fixture(autouse=True)
def all_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="klog.server.read_only")


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name.startswith("klog.server.read_only")]


def places_of(caplog: pytest.LogCaptureFixture) -> list[tuple[str, int | None]]:
    found = [match for match in map(PLACE.match, lines_of(caplog)) if match]
    return [(each["file"], None if each["position"] is None else int(each["position"])) for each in found]


def summary_of(caplog: pytest.LogCaptureFixture) -> str:
    (line,) = [line for line in lines_of(caplog) if "segments checked" in line]
    assert lines_of(caplog)[-1] == line
    return line


def verified_of(directory: Path) -> dict[str, dict[int, str]]:
    """What `klog verify` says of each `.log`, by position."""
    found: dict[str, dict[int, str]] = defaultdict(dict)
    options = RebuildOptions(now_ms=0, settings=IndexSettings(), check=True)
    for each in verify(scope_of([str(directory)]), options, processes=1, on_bytes=lambda _: None):
        if each.severity is Severity.ERROR and each.file.endswith(".log") and each.position is not None:
            found[each.file].setdefault(each.position, each.what)
    return found


@pytest.mark.parametrize("log_dir", DAMAGED, ids=str)
def test_each_place_that_verify_finds_is_listed_once(
    log_dir: LogDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    before = state_of(log_dir.path)
    with served(log_dir.path, checked=True) as bootstrap:
        assert AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=TIMEOUT_S).topics
    assert state_of(log_dir.path) == before
    places, verified = places_of(caplog), verified_of(log_dir.path)
    assert len(places) == len(set(places))
    for file, position in places:
        assert position in verified.get(file, {}) or any(name in file for name in WITHOUT_BYTES)
    for file, problems in verified.items():
        # Zeros are no damage: a broker preallocates them.
        if problems[min(problems)] != ZEROS:
            assert (file, min(problems)) in places
    assert f" {len(places)} damaged places" in summary_of(caplog)


def damaged_copy(tmp_path: Path) -> tuple[Path, Path, int]:
    """A copy of a directory with one byte changed in the middle of an old segment, and where its batch is."""
    copy = tmp_path / "backup"
    shutil.copytree(CODECS.path, copy)
    first = min(copy.glob("t-none-0/*.log"))
    data = bytearray(first.read_bytes())
    # The second batch: its size is in the header of the first.
    position = 12 + int.from_bytes(data[8:12], "big")
    data[position + 70] ^= 0xFF
    first.write_bytes(data)
    return copy, first, position


def test_damage_in_an_old_segment_names_where_consumers_can_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy, file, position = damaged_copy(tmp_path)
    before = state_of(copy)
    with served(copy, checked=True) as bootstrap:
        (line,) = [line for line in lines_of(caplog) if line.startswith("damaged")]
        assert f"{file} at byte {position}: batch with offsets" in line
        found = re.search(r"consumers of t-none-0 fail there .* can go on from offset (\d+)$", line)
        assert found
        start = int(found[1])
        rows = [row["offset"] for row in expected(CODECS)["t-none", 0] if row["offset"] >= start]
        assert rows
        assert [each.offset for each in ConfluentKafka(bootstrap).read("t-none", start=start)] == rows
    assert summary_of(caplog).endswith("segments checked, 1 damaged places")
    assert state_of(copy) == before


def test_damage_in_a_gzipped_copy_names_the_copy(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    copy, file, position = damaged_copy(tmp_path)
    packed = file.with_name(f"{file.name}.gz")
    packed.write_bytes(gzip.compress(file.read_bytes()))
    file.unlink()
    with served(copy, checked=True):
        pass
    # Its indexes are not used, so the broker recovers it, and leaves out what follows the damage.
    assert places_of(caplog) == [(str(packed), position)]
    (line,) = [line for line in lines_of(caplog) if line.startswith("damaged")]
    assert line.endswith("the rest of the segment is not served")


def test_sound_directories_end_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with served(CODECS.path, checked=True):
        pass
    segments = sum(1 for each in CODECS.path.glob("*/*.log") if each.stat().st_size)
    assert summary_of(caplog) == f"{segments} segments checked, 0 damaged places"
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


def test_a_stop_ends_a_search_that_waits(caplog: pytest.LogCaptureFixture) -> None:
    """At a byte a second the first segment would take hours."""
    files = sorted(CODECS.path.glob("t-none-0/*.log"))
    segments = [
        ServedSegment(
            TopicPartition("t-none", 0),
            str(file.parent),
            int(file.stem),
            file.stat().st_size,
            str(file),
            0,
            0,
            True,
        )
        for file in files
    ]
    search = DamageSearch(segments, bytes_per_second=1)
    search.start()
    search.stop()
    assert summary_of(caplog) == f"0 of {len(segments)} segments checked, 0 damaged places"


def test_without_a_start_nothing_is_searched(caplog: pytest.LogCaptureFixture) -> None:
    with opened_backup([str(CODECS.path)], None, LISTENER):
        pass
    assert not [line for line in lines_of(caplog) if "segments checked" in line]
