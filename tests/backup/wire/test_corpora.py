"""What real Kafka versions wrote comes over the wire byte for byte: all message formats, codecs and gaps."""

from __future__ import annotations

from pathlib import Path

import pytest

from klog.formats.names import DirectoryState, parse_directory
from klog.kernel import kernel
from klog.kernel.columns import BatchTable
from klog.storage.log.directory_loading import METADATA_TOPIC
from tests.backup.repositories import Backups, log_files
from tests.corpora import LogDirectory, log_dirs
from tests.server.read_only.serving import served

SOUND = [each for each in log_dirs() if not each.corpus.is_corrupt]


@pytest.mark.parametrize("log_dir", SOUND, ids=str)
def test_the_batches_of_a_cluster_are_those_of_its_segments(log_dir: LogDirectory, backups: Backups) -> None:
    with served(log_dir.path) as bootstrap:
        result = backups.run_over_wire(bootstrap)
        again = backups.run_over_wire(bootstrap)
    assert result.is_clean, result.manifest.problems
    assert again.manifest.read_bytes == 0
    directories = {
        name.partition: directory.path
        for directory in log_dir.partitions()
        if (name := parse_directory(directory.name)).state is DirectoryState.CURRENT
        and name.partition.topic != METADATA_TOPIC
    }
    states = backups.states()
    assert states.keys() == directories.keys()
    for partition, path in directories.items():
        kept = b"".join(backups.segments(*partition).values())
        assert kept == batches_from(states[partition].log_start_offset, path), partition


def batches_from(log_start_offset: int, directory: Path) -> bytes:
    """The batches that a consumer can get: only from the one on that has the log start offset."""
    found = b""
    for data in log_files(directory).values():
        table = BatchTable()
        kernel.scan(data, 0, True, table)
        for position, size, last in zip(table.position, table.size, table.last_offset, strict=True):
            if last >= log_start_offset:
                found += data[position : position + size]
    return found
