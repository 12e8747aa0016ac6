"""Offsets, timestamps, sequences and lengths at the edges of their types end in a result or a named error."""

from __future__ import annotations

import contextlib
import random
import shutil
import struct
from pathlib import Path

import pytest

from klog.config.topic import default_topic_config
from klog.formats.constants import INT64_MAX
from klog.formats.errors import CorruptRecordError, KlogError
from klog.storage.cleaner.offline import OfflineDirectory
from klog.storage.reading.segment import Segment
from klog.storage.repair.index_rebuild import rebuild, tasks_of
from klog.storage.repair.index_reports import RebuildOptions
from klog.storage.repair.producer_rebuild import rebuild_snapshots
from tests.corpora import Corpus
from tests.fuzz.mutated_directories import INDEXES, NOW_MS, recovered, sources
from tests.fuzz.mutations import LOG_DAMAGES, SIDECAR_DAMAGES, batches

SEEDS_A_TEST = 25


def cleaned(directory: Path, **configs: str) -> None:
    """Clean a partition directory offline, if there is anything to clean."""
    values = {"min.cleanable.dirty.ratio": "0", "max.compaction.lag.ms": "1"}
    values |= {name.replace("_", "."): value for name, value in configs.items()}
    offline = OfflineDirectory(str(directory.parent), default_topic_config(values), now_ms=NOW_MS)
    judgement = offline.judge(str(directory))
    if judgement is not None and judgement.changes:
        offline.carry_out(str(directory), judgement)


def add_active(directory: Path, base_offset: int) -> None:
    """Close all segments by adding an empty active one."""
    for suffix in ("log", "index", "timeindex"):
        (directory / f"{base_offset:020}.{suffix}").touch()


@pytest.mark.parametrize("first", range(0, 100, SEEDS_A_TEST))
def test_edge_values_never_end_a_tool_in_another_error(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + SEEDS_A_TEST):
        chance = random.Random(seed)
        source = chance.choice(sources())
        directory = tmp_path / str(seed) / source.name
        shutil.copytree(source.path, directory)
        for _ in range(chance.choice((1, 2, 3))):
            chance.choice((*LOG_DAMAGES, *SIDECAR_DAMAGES))(directory, chance)
        if chance.random() < 0.6:
            add_active(directory, chance.choice((10**6, 2**62, INT64_MAX - 1, INT64_MAX)))
        with contextlib.suppress(KlogError):
            policy = chance.choice(("compact", "delete", "compact,delete"))
            kept = str(chance.choice((-1, 1, INT64_MAX)))
            deleted = str(chance.choice((0, 1, INT64_MAX)))
            cleaned(directory, cleanup_policy=policy, retention_ms=kept, delete_retention_ms=deleted)
        with contextlib.suppress(KlogError):
            options = RebuildOptions(NOW_MS, INDEXES, force=True, snapshots=True)
            list(rebuild(tasks_of(str(directory)), options, processes=1))
            rebuild_snapshots(str(directory), options)
        shutil.rmtree(directory.parent)


def with_base_offset(tmp_path: Path, base_offset: int) -> tuple[Path, int]:
    """A closed log of compressed batches, the second with this base offset; and the batch's position."""
    directory = tmp_path / "t-lz4-0"
    shutil.copytree(Corpus("k39-codecs").log_dir().partition("t-lz4-0").path, directory)
    log = min(directory.glob("*.log"))
    data = bytearray(log.read_bytes())
    position = batches(data)[1][0]
    struct.pack_into(">q", data, position, base_offset)
    log.write_bytes(data)
    return directory, position


@pytest.mark.parametrize("base_offset", [INT64_MAX, INT64_MAX - 1])
def test_an_offset_beyond_the_largest_ends_a_cleaning_with_its_place(
    base_offset: int, tmp_path: Path
) -> None:
    directory, position = with_base_offset(tmp_path, base_offset)
    add_active(directory, 10**6)
    with pytest.raises(CorruptRecordError) as caught:
        cleaned(directory, cleanup_policy="compact")
    assert caught.value.position_bytes == position
    assert caught.value.file == str(min(directory.glob("*.log")))
    assert not list(directory.glob("*.cleaned"))


def test_a_log_never_ends_above_the_largest_offset(tmp_path: Path) -> None:
    """Kafka's log end would be negative, and it would delete the log."""
    directory = tmp_path / "e-one-0"
    shutil.copytree(Corpus("k39-edge").log_dir().partition("e-one-0").path, directory)
    log = min(directory.glob("*.log"))
    data = bytearray(log.read_bytes())
    struct.pack_into(">q", data, 0, INT64_MAX)
    log.write_bytes(data)
    plan = recovered(directory, tmp_path)
    assert plan.log_end_offset <= INT64_MAX
    assert recovered(directory, tmp_path).steps == ()


def test_tombstones_are_kept_for_ever_with_the_longest_retention(tmp_path: Path) -> None:
    source = Corpus("k4-codecs").log_dir().partition("t-lat-0")
    directory = tmp_path / source.name
    shutil.copytree(source.path, directory)
    add_active(directory, 10**6)
    cleaned(directory, cleanup_policy="compact", delete_retention_ms=str(INT64_MAX))
    batches_left = [batch for log in directory.glob("*.log") for batch in Segment(log).batches()]
    assert INT64_MAX in {batch.delete_horizon_ms for batch in batches_left}
