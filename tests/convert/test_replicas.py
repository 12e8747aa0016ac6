"""Replicas that are converted apart have the same batches, wherever their segments begin."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from klog.convert.options import ConvertOptions
from klog.formats.compression import LZ4, ZSTD
from klog.formats.names import FileKind, segment_file
from tests import corpora
from tests.convert.logs import batches_of, converted, log_bytes, records_of, with_codec
from tests.storage.cleaner.logs import LogWriter, index, random_log

OPTIONS = [
    with_codec(ZSTD),
    with_codec(LZ4, batch_bytes=500),
    with_codec(None, batch_bytes=2000, segment_bytes=3000),
]
options = pytest.mark.parametrize("options", OPTIONS, ids=["zstd", "lz4", "producer"])


@options
def test_three_replicas_that_kafka_wrote_become_the_same(options: ConvertOptions, tmp_path: Path) -> None:
    results = []
    for number in range(3):
        original = corpora.Corpus("k39-epochs").log_dir(f"logs_{number}").partitions()[0]
        directory = tmp_path / str(number) / original.name
        shutil.copytree(original.path, directory)
        assert records_of(directory)
        converted(directory, options)
        results.append({path.name: path.read_bytes() for path in directory.glob("*.log")})
    assert results[0] == results[1] == results[2]


@options
@pytest.mark.parametrize("seed", range(4))
def test_a_replica_that_rolled_elsewhere_becomes_the_same(
    options: ConvertOptions, seed: int, tmp_path: Path
) -> None:
    leader, follower = tmp_path / "leader" / "events-0", tmp_path / "follower" / "events-0"
    random_log(leader, seed)
    rolled_elsewhere(leader, follower, every=7)
    assert log_bytes(follower) == log_bytes(leader)
    for directory in (leader, follower):
        converted(directory, options)
    assert log_bytes(follower) == log_bytes(leader)


@options
def test_replicas_with_other_starts_and_ends_agree_between_them(
    options: ConvertOptions, tmp_path: Path
) -> None:
    """One has deleted its first segments, and its active segment begins later."""
    leader, follower = tmp_path / "leader" / "events-0", tmp_path / "follower" / "events-0"
    log = LogWriter(leader)
    for number in range(400):
        log.data([(b"k%d" % number, b"v" * 40)] * 31, codec=number // 40 % 5)
        if number % 60 == 59:
            log.roll()
    log.finish()
    rolled_elsewhere(leader, follower, every=70)
    first = min(follower.glob("*.log"))
    for path in follower.glob(f"{first.stem}.*"):
        path.unlink()
    apart = replace(options, converts_active=False)
    for directory in (leader, follower):
        converted(directory, apart)
    batches = [[bytes(data[at:end]) for data, at, end in places(one)] for one in (leader, follower)]
    # They may differ up to the next multiple of 4096 offsets at the start, and from the last one at the end.
    between = [[batch for batch in one if 4096 <= int.from_bytes(batch[:8], "big") < 8192] for one in batches]
    assert between[0]
    assert between[0] == between[1]


def places(directory: Path) -> list[tuple[bytes, int, int]]:
    return [
        (data, table.position[row], table.position[row] + table.size[row])
        for data, table, row in batches_of(directory)
    ]


def rolled_elsewhere(source: Path, target: Path, *, every: int) -> None:
    """A copy of a log whose segments begin at other batches."""
    target.mkdir(parents=True)
    name = ""
    for number, (data, table, row) in enumerate(batches_of(source)):
        if number % every == 0:
            name = segment_file(FileKind.LOG, table.base_offset[row])
        start = table.position[row]
        with (target / name).open("ab") as file:
            file.write(data[start : start + table.size[row]])
    index(target)
