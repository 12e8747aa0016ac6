"""Partition and log directories: their contents, and offsets by time as a real broker answers them."""

from __future__ import annotations

from pathlib import Path

import pytest

import klog
from tests import corpora

TIMES = corpora.Corpus("k39-times").log_dir()


def ignore(problem: klog.KlogError) -> None:
    """Corpora with an unclean tail: these tests do not look at the problems."""


@pytest.mark.parametrize("partition", TIMES.partitions(), ids=str)
def test_the_first_offset_at_a_time_is_what_the_broker_answered(
    partition: corpora.PartitionDirectory,
) -> None:
    path = TIMES.expected_path / f"{partition.name}.times.jsonl"
    if corpora.stored(path) is None:
        assert partition.name.startswith("__")
        return
    directory = klog.PartitionDirectory(partition.path)
    for answer in corpora.read_jsonl(path):
        if "query" in answer:
            found = directory.first_offset_at(answer["query"])
            assert found == (None if answer["offset"] is None else (answer["offset"], answer["timestamp"]))
        elif answer["spec"] == "EarliestSpec":
            assert directory.log_start_offset == answer["offset"]
        elif answer["spec"] == "LatestSpec":
            assert directory.log_end_offset == answer["offset"]


CONSUMED = [
    partition
    for partition in corpora.partitions()
    if not partition.corpus.is_corrupt and partition.expected_consumer() is not None
]


@pytest.mark.parametrize("partition", CONSUMED, ids=str)
def test_start_and_end_are_those_of_a_consumer(partition: corpora.PartitionDirectory) -> None:
    consumed = partition.expected_consumer()
    assert consumed is not None
    directory = klog.PartitionDirectory(partition.path)
    assert directory.log_start_offset == consumed[-1]["beginningOffset"]
    assert directory.log_end_offset == consumed[-1]["endOffset"]
    seen = [record["offset"] for record in consumed[:-1]]
    start = directory.log_start_offset
    records = directory.records(start_offset=start, on_problem=ignore)
    assert [record.offset for record in records if not record.is_control] == seen


def test_records_go_through_all_segments_in_order() -> None:
    directory = klog.PartitionDirectory(corpora.Corpus("k39-codecs").path / "logs" / "t-gzip-0")
    assert len(directory.segments) > 1
    assert [record.offset for record in directory.records()] == list(range(420))
    assert [record.offset for record in directory.records(start_offset=139, end_offset=281)] == list(
        range(139, 281)
    )
    assert sum(batch.num_rows for batch in directory.arrow_batches(start_offset=139, end_offset=281)) == 142


def test_open_distinguishes_segment_partition_and_log_directory() -> None:
    logs = corpora.Corpus("k39-groups").path / "logs"
    assert isinstance(klog.open(logs), klog.LogDirectory)
    assert isinstance(klog.open(logs / "g-a-0"), klog.PartitionDirectory)
    assert isinstance(klog.open(logs / "g-a-0" / f"{0:020d}.log"), klog.Segment)


def test_a_log_directory_named_like_a_partition_is_a_log_directory(tmp_path: Path) -> None:
    logs = tmp_path / "kafka-1"
    (logs / "orders-0").mkdir(parents=True)
    assert isinstance(klog.open(logs), klog.LogDirectory)


def test_a_log_directory_knows_its_partitions_checkpoints_and_owner() -> None:
    directory = klog.LogDirectory(corpora.Corpus("k39-groups").path / "logs")
    names = [(partition.topic, partition.partition) for partition in directory.partitions]
    assert names == sorted(names)
    assert directory.recovery_points[klog.TopicPartition("g-a", 0)] == 40
    assert directory.high_watermarks[klog.TopicPartition("g-a", 0)] == 40
    assert directory.meta_properties is not None
    assert directory.meta_properties.node_id == 0
    assert directory.clean_shutdown is not None
    partition = directory.partition("g-a", 0)
    assert partition.topic_id is not None
    assert [tuple(entry) for entry in partition.leader_epochs] == [(0, 0)]
    assert partition.snapshot_offsets == [40]
    assert partition.log_end_offset == 40


@pytest.mark.parametrize("missing", ["no-such-0", "no-such.log"])
def test_a_missing_path_is_a_storage_error_with_a_cure(tmp_path: Path, missing: str) -> None:
    with pytest.raises(klog.StorageError) as caught:
        klog.open(tmp_path / missing)
    assert caught.value.file == str(tmp_path / missing)
    assert caught.value.cure is not None


def test_an_empty_directory_is_not_a_log(tmp_path: Path) -> None:
    with pytest.raises(klog.StorageError, match="neither segments nor partition directories"):
        klog.open(tmp_path)
