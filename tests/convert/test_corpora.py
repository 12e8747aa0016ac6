"""Every sound log that real Kafka wrote, in any format and codec, is converted without losing anything."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from klog.formats.compression import CODEC_NAMES
from klog.formats.constants import CONTROL_BIT
from klog.formats.names import FileKind
from klog.kernel.columns import BatchTable
from tests import corpora
from tests.convert.logs import batches_of, converted, records_of, with_codec

PARTITIONS = [
    partition
    for partition in corpora.partitions()
    if not partition.corpus.is_corrupt
    and "unclean" not in partition.corpus.name
    and "__cluster_metadata" not in partition.name
    and not partition.name.endswith("-delete")
    and partition.files(".log")
    and sum(path.stat().st_size for path in partition.files(".log"))
]


def is_data(table: BatchTable, row: int) -> bool:
    return table.count[row] > 0 and not table.attributes[row] & CONTROL_BIT


@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
@pytest.mark.parametrize("codec", [None, *range(5)], ids=["producer", *CODEC_NAMES])
def test_a_converted_log_has_the_records_that_it_had(
    partition: corpora.PartitionDirectory, codec: int | None, tmp_path: Path
) -> None:
    directory = tmp_path / partition.name
    shutil.copytree(partition.path, directory)
    for left in [*directory.glob("*.deleted"), *directory.glob("*.cleaned"), *directory.glob("*.swap")]:
        left.unlink()
    before = records_of(directory)
    epochs = (directory / FileKind.LEADER_EPOCH_CHECKPOINT).exists()
    converted(directory, with_codec(codec, max_message_bytes=1 << 30))
    after = records_of(directory)
    if epochs:  # messages of magic 0 and 1 get the epoch of the checkpoint
        after = [record | {"leaderEpoch": 0} for record in after]
        before = [record | {"leaderEpoch": 0} for record in before]
    assert after == before
    tables = [(table, row) for _, table, row in batches_of(directory)]
    assert {table.magic[row] for table, row in tables} <= {2}
    if codec is not None:
        assert {table.attributes[row] & 7 for table, row in tables if is_data(table, row)} <= {codec}
    assert not list(directory.glob("klog-convert*"))
