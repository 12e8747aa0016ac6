"""A log cleaned by klog and by Kafka's own cleaner at the same time is the same log."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from klog.formats import compression
from klog.formats.constants import CODEC_MASK
from klog.kernel import kernel
from klog.kernel.columns import BatchTable
from klog.storage.cleaner.task import CleanerSettings
from tests import corpora
from tests.peers import CleanServer, KafkaPeer
from tests.storage.cleaner.logs import COMPACT, NOW_MS, clean_directory, random_log

pytestmark = pytest.mark.kafka

DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def kafka_cleaner(kafka3: KafkaPeer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CleanServer]:
    with CleanServer(kafka3, tmp_path_factory.mktemp("cleaner") / "cleaner.log") as server:
        yield server


Batch = tuple[int | bytes, ...]


def plain_batches(log: bytes) -> list[Batch]:
    """The batches with their decompressed payload, because compressed bytes depend on the library."""
    table = BatchTable()
    kernel.scan(log, 0, True, table)
    assert table.consumed_bytes == len(log)
    assert kernel.verify(log, table) == 0
    found: list[Batch] = []
    for row in range(len(table)):
        codec = table.attributes[row] & CODEC_MASK
        header = tuple(getattr(table, name)[row] for name in HEADER)
        start, size = kernel.payload_span(log, table, row)
        if codec and table.count[row] != 0:
            payload = compression.decompress(codec, log[start : start + size], magic=table.magic[row])
        else:
            at = table.position[row]
            payload = log[at : at + table.size[row]]
        found.append((*header, payload))
    return found


HEADER = tuple(
    name for name in BatchTable.COLUMNS if name not in {"position", "size", "crc", "valid", "computed_crc"}
)


def files(directory: Path, *suffixes: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.suffix in suffixes}


def require_same(ours: Path, theirs: Path) -> None:
    our_logs, their_logs = files(ours, ".log"), files(theirs, ".log")
    assert our_logs.keys() == their_logs.keys()
    same_bytes = True
    for name, theirs_bytes in their_logs.items():
        if our_logs[name] != theirs_bytes:
            assert plain_batches(our_logs[name]) == plain_batches(theirs_bytes), name
        same_bytes = same_bytes and len(our_logs[name]) == len(theirs_bytes)
        modified_ms = [(one / name).stat().st_mtime_ns // 1_000_000 for one in (ours, theirs)]
        assert modified_ms[0] == modified_ms[1], name
    assert files(ours, ".txnindex") == files(theirs, ".txnindex")
    assert files(ours, ".snapshot").keys() == files(theirs, ".snapshot").keys()
    if same_bytes:  # positions in an index depend on the sizes of batches
        assert files(ours, ".index", ".timeindex") == files(theirs, ".index", ".timeindex")


def take_over(ours: Path, theirs: Path) -> None:
    """Begin with the state of Kafka, because sizes of compressed batches depend on its library."""
    shutil.rmtree(ours)
    shutil.copytree(theirs, ours, ignore=shutil.ignore_patterns("*.deleted"))


def require_same_cleanings(
    server: CleanServer,
    source: Path,
    work: Path,
    *,
    rounds: int = 2,
    config: dict[str, str] | None = None,
    dedupe_buffer_bytes: int = 1 << 20,
) -> int:
    """Clean both copies repeatedly while time passes the horizons; returns the cleanings."""
    ours, theirs = work / "ours" / "events-0", work / "theirs" / "events-0"
    for copy in (ours, theirs):
        shutil.copytree(source, copy)
    # A clean stop, so that both start from the files that Kafka leaves.
    assert not server.clean(theirs, now_ms=NOW_MS, io_buffer_bytes=0, config=COMPACT).refusal
    take_over(ours, theirs)
    checkpoint = None
    for number in range(rounds):
        now_ms = NOW_MS + 2 * DAY_MS * number
        outcome = server.clean(
            theirs,
            now_ms=now_ms,
            checkpoint=checkpoint,
            dedupe_buffer_bytes=dedupe_buffer_bytes,
            config=COMPACT | (config or {}),
        )
        assert outcome.refusal == ""
        dirty, result = clean_directory(
            ours,
            now_ms=now_ms,
            checkpoint=checkpoint,
            config=config,
            settings=CleanerSettings(dedupe_buffer_bytes=dedupe_buffer_bytes),
        )
        assert dirty.first_dirty_offset == outcome.first_dirty_offset
        assert dirty.first_uncleanable_offset == outcome.first_uncleanable_offset
        assert dirty.clean_bytes == outcome.clean_bytes
        assert dirty.cleanable_bytes == outcome.cleanable_bytes
        if result is None:
            assert outcome.end_offset == -1
            return number
        assert result.end_offset == outcome.end_offset
        require_same(ours, theirs)
        take_over(ours, theirs)
        # From the start again, so that cleaned segments are read again.
        checkpoint = result.end_offset if number % 2 else None
    return rounds


UNCLEAN = ("k010-unclean/logs", "k39-unclean/logs", "k39-epochs/logs_div0")
"""Their brokers were killed: indexes are still allocated in full, the log may end in anything."""

FIXTURES = [
    partition
    for partition in corpora.partitions()
    if not partition.corpus.is_corrupt
    and "__cluster_metadata" not in partition.name
    and not partition.name.endswith("-delete")
    and str(partition.log_dir) not in UNCLEAN
]


@pytest.mark.parametrize("partition", FIXTURES, ids=str)
def test_a_log_of_any_kafka_is_cleaned_as_kafka_cleans_it(
    partition: corpora.PartitionDirectory, kafka_cleaner: CleanServer, tmp_path: Path
) -> None:
    require_same_cleanings(kafka_cleaner, partition.path, tmp_path)


@pytest.mark.parametrize("seed", range(120))
def test_a_log_in_which_everything_happens_is_cleaned_as_kafka_cleans_it(
    seed: int, kafka_cleaner: CleanServer, tmp_path: Path
) -> None:
    random_log(tmp_path / "source", seed)
    require_same_cleanings(kafka_cleaner, tmp_path / "source", tmp_path, rounds=4)


@pytest.mark.parametrize("seed", range(20))
def test_small_segments_are_grouped_as_kafka_groups_them(
    seed: int, kafka_cleaner: CleanServer, tmp_path: Path
) -> None:
    random_log(tmp_path / "source", seed, codecs=(0,))
    config = {"segment.bytes": "8192", "delete.retention.ms": "0", "index.interval.bytes": "100"}
    require_same_cleanings(kafka_cleaner, tmp_path / "source", tmp_path, rounds=3, config=config)


@pytest.mark.parametrize("keys", [2, 5, 9])
def test_a_full_offset_map_ends_the_cleaning_where_kafka_ends_it(
    keys: int, kafka_cleaner: CleanServer, tmp_path: Path
) -> None:
    for seed in range(8):
        random_log(tmp_path / f"{seed}" / "source", seed, codecs=(0, 3))
        work = tmp_path / f"{seed}"
        require_same_cleanings(kafka_cleaner, work / "source", work, dedupe_buffer_bytes=24 * (keys + 2))


@pytest.mark.parametrize("lag_ms", [NOW_MS - 1_700_000_020_000, NOW_MS])
def test_the_minimum_lag_holds_segments_back_as_it_does_in_kafka(
    lag_ms: int, kafka_cleaner: CleanServer, tmp_path: Path
) -> None:
    for seed in range(10):
        random_log(tmp_path / f"{seed}" / "source", seed, codecs=(0,))
        work = tmp_path / f"{seed}"
        config = {"min.compaction.lag.ms": str(lag_ms)}
        require_same_cleanings(kafka_cleaner, work / "source", work, config=config)
