"""A read_committed consumer of logs that Kafka wrote sees what Kafka's own consumer saw."""

from __future__ import annotations

import base64
import shutil
from pathlib import Path

import pytest

from klog.formats.names import parse_directory
from klog.storage.log.loading import load_log
from klog.storage.log.partition_log import PartitionLog
from tests.corpora import PartitionDirectory, corpora, partitions
from tests.storage.log.building import Clock, Later, config, files, settings
from tests.storage.log.consuming import committed_records

CONSUMED = [
    each
    for each in partitions(corpora("k011-txn", "k39-txn", "k39-unclean", "k39-compact", "k4-txn"))
    if each.expected_consumer("read_committed") is not None
]


def loaded(directory: Path, root: Path, *, clean: bool) -> PartitionLog:
    state = load_log(str(directory), config(), settings(root, clean=clean)).state
    partition = parse_directory(directory.name).partition
    log = PartitionLog(partition, str(directory), config(), state, clock_ms=Clock(), background=Later())
    log.set_high_watermark(log.log_end_offset)
    return log


def test_there_are_logs_with_aborted_and_with_open_transactions() -> None:
    names = [str(each) for each in CONSUMED]
    assert len(names) >= 10
    assert any("t-open" in name for name in names)


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("source", CONSUMED, ids=str)
def test_what_is_committed_and_the_last_stable_offset_are_those_of_kafka(
    source: PartitionDirectory, clean: bool, tmp_path: Path
) -> None:
    *expected, offsets = source.expected_consumer("read_committed") or []
    directory = Path(shutil.copytree(source.path, tmp_path / source.name))
    before = files(directory)
    log = loaded(directory, tmp_path, clean=clean)
    assert log.last_stable_offset == offsets["endOffset"]
    wanted = [
        (each["offset"], None if each["value"] is None else base64.b64decode(each["value"]))
        for each in expected
    ]
    for read_bytes in (1, 1 << 20):
        assert committed_records(log, read_bytes) == wanted
    log.release()
    if source.corpus.name == "k39-compact":
        return  # the cleaner has removed aborted records, so a recovery finds no transaction that was aborted
    indexes = {name: data for name, data in before.items() if name.endswith(".txnindex") and data}
    assert indexes.items() <= files(directory).items(), "the indexes of aborted transactions are unchanged"
