"""`klog.replicas.discover`: replicas below the paths of a job, and what stands beside their segments."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from klog.formats.names import DirectoryState, FileKind, TopicPartition
from klog.replicas.discover import discover
from klog.replicas.replica_files import Found
from tests.corpora import log_dirs
from tests.export.logs import batch, write_checkpoint, write_epochs, write_segment, write_topic_id

TOPIC_ID = "HxEftVCTR1iKjvwIAj5sdg"


def names(found: Found) -> list[str]:
    return [str(replica.partition) for replica in found.replicas]


def test_a_log_directory_has_its_partitions_and_their_checkpoints(tmp_path: Path) -> None:
    first = tmp_path / "orders-1"
    write_segment(first, [batch(10, 5), batch(15, 5)])
    write_segment(first, [batch(20)])
    write_epochs(first, (3, 0), (4, 15))
    write_topic_id(first, TOPIC_ID)
    (first / "00000000000000000020.snapshot").write_bytes(b"")
    (first / "00000000000000000020.txnindex").write_bytes(b"")
    write_segment(tmp_path / "orders-0", [batch(0)])
    write_checkpoint(tmp_path, FileKind.REPLICATION_CHECKPOINT, orders_1=19)
    write_checkpoint(tmp_path, FileKind.LOG_START_CHECKPOINT, orders_1=12)
    write_checkpoint(tmp_path, FileKind.RECOVERY_POINT_CHECKPOINT, orders_1=18)
    write_checkpoint(tmp_path, FileKind.CLEANER_CHECKPOINT, orders_1=11)
    found = discover([str(tmp_path)])
    assert names(found) == ["orders-0", "orders-1"]
    assert not found.problems
    replica = found.replicas[1]
    assert [segment.base_offset for segment in replica.segments] == [10, 20]
    assert replica.segments[0].size_bytes == len(batch(10, 5) + batch(15, 5))
    assert replica.segments[0].txn_index is None
    assert replica.segments[1].txn_index == str(first / "00000000000000000020.txnindex")
    assert [entry.epoch for entry in replica.epochs] == [3, 4]
    assert replica.topic_id == TOPIC_ID
    assert replica.snapshots == ((20, str(first / "00000000000000000020.snapshot")),)
    offsets = (replica.high_watermark, replica.log_start_offset, replica.recovery_point, replica.cleaned_to)
    assert offsets == (19, 12, 18, 11)


def test_a_partition_directory_finds_the_checkpoints_beside_it(tmp_path: Path) -> None:
    write_segment(tmp_path / "orders-0", [batch(0)])
    write_checkpoint(tmp_path, FileKind.REPLICATION_CHECKPOINT, orders_0=1)
    assert discover([str(tmp_path / "orders-0")]).replicas[0].high_watermark == 1


def test_single_segments_are_their_directory_without_the_others(tmp_path: Path) -> None:
    directory = tmp_path / "orders-3"
    logs = [write_segment(directory, [batch(base)]) for base in (0, 1, 2)]
    found = discover([str(logs[2]), str(logs[0])])
    assert names(found) == ["orders-3"]
    assert [segment.base_offset for segment in found.replicas[0].segments] == [0, 2]
    assert found.replicas[0].segments[0].offset_index is not None


def test_segments_in_a_directory_of_no_partition_get_its_name_as_topic(tmp_path: Path) -> None:
    write_segment(tmp_path / "saved", [batch(7)])
    replica = discover([str(tmp_path / "saved")]).replicas[0]
    assert replica.partition == TopicPartition("saved", 0)
    assert [segment.base_offset for segment in replica.segments] == [7]


def test_a_segment_under_another_name_starts_at_its_first_batch_and_must_be_named(tmp_path: Path) -> None:
    directory = tmp_path / "orders-0"
    log = write_segment(directory, [batch(7)])
    for name, data in (("b.log", batch(70, 3)), ("a.log", batch(7)), ("server.log", b"[2024] INFO started")):
        (directory / name).write_bytes(data)
    assert [segment.base_offset for segment in discover([str(tmp_path)]).replicas[0].segments] == [7]
    found = discover([str(log), str(directory / "b.log"), str(directory / "a.log")])
    assert [Path(segment.log).name for segment in found.replicas[0].segments] == [log.name, "b.log"]
    assert found.replicas[0].segments[1].base_offset == 70
    assert found.skipped == [(str(directory / "a.log"), f"starts where {log} does")]


def test_log_directories_are_found_below_hosts_and_disks(tmp_path: Path) -> None:
    write_segment(tmp_path / "host-1" / "disk-0" / "orders-0", [batch(0)])
    write_segment(tmp_path / "host-2" / "disk-0" / "orders-0", [batch(0)])
    found = discover([str(tmp_path)])
    assert names(found) == ["orders-0", "orders-0"]
    assert [Path(replica.directory).parts[-3] for replica in found.replicas] == ["host-1", "host-2"]


def test_a_log_directory_may_be_called_like_a_partition(tmp_path: Path) -> None:
    write_segment(tmp_path / "kafka-1" / "orders-0", [batch(0)])
    write_segment(tmp_path / "kafka-2" / "data" / "orders-0", [batch(0)])
    write_checkpoint(tmp_path / "kafka-1", FileKind.REPLICATION_CHECKPOINT, orders_0=1)
    for path in (tmp_path, tmp_path / "kafka-*"):
        assert names(discover([str(path)])) == ["orders-0", "orders-0"]
    assert [replica.high_watermark for replica in discover([str(tmp_path)]).replicas] == [1, None]


def test_segments_of_tiered_stores_are_found_under_their_plugins_names(tmp_path: Path) -> None:
    log = write_segment(tmp_path / "made-0", [batch(40, 5)])
    segment_id = "oAtiIQ95REujbuzNd_lkLQ"
    for directory in (f"local/orders-7-{TOPIC_ID}", f"aiven/payments-{TOPIC_ID}/3"):
        place = tmp_path / "tiers" / directory
        place.mkdir(parents=True)
        for suffix in (".log", ".index"):
            data = log.with_suffix(suffix).read_bytes()
            (place / f"{log.stem}-{segment_id}{suffix}").write_bytes(data)
        (place / f"{log.stem}-{'z' * 22}.log").write_bytes(log.read_bytes()[:-1])
        (place / f"{log.stem}-{segment_id}.rsm-manifest").write_text("{}")
    found = discover([str(tmp_path / "tiers")])
    assert names(found) == ["orders-7", "payments-3"]
    for replica in found.replicas:
        assert [segment.base_offset for segment in replica.segments] == [40]
        assert replica.segments[0].log.endswith(f"{segment_id}.log")
        assert replica.segments[0].offset_index is not None
    assert [Path(path).name[21:24] for path, _ in found.skipped] == ["zzz", "zzz"]


def test_a_directory_that_several_paths_lead_to_counts_once(tmp_path: Path) -> None:
    log = write_segment(tmp_path / "orders-0", [batch(0)])
    (tmp_path / "link").symlink_to(tmp_path)
    found = discover([str(tmp_path), str(tmp_path / "orders-0"), str(log), str(tmp_path / "link")])
    assert names(found) == ["orders-0"]


@pytest.mark.parametrize("state", [DirectoryState.FUTURE, DirectoryState.STRAY])
def test_directories_of_other_states_are_found_with_their_state(
    tmp_path: Path, state: DirectoryState
) -> None:
    write_segment(tmp_path / f"orders-0.{'ab' * 16}-{state}", [batch(0)])
    replica = discover([str(tmp_path)]).replicas[0]
    assert (replica.partition, replica.state) == (TopicPartition("orders", 0), state)


def test_what_is_being_deleted_is_skipped_by_default(tmp_path: Path) -> None:
    directory = tmp_path / f"orders-0.{'ab' * 16}-delete"
    write_segment(directory, [batch(0)])
    found = discover([str(tmp_path)])
    assert not found.replicas
    reason = "a topic or replica that was being deleted (includeDeleted reads it)"
    assert found.skipped == [(str(directory), reason)]
    assert names(discover([str(tmp_path)], include_deleted=True)) == ["orders-0"]


def test_unfinished_swapped_and_deleted_files_are_distinguished(tmp_path: Path) -> None:
    directory = tmp_path / "orders-0"
    write_segment(directory, [batch(0)])
    write_segment(directory, [batch(0)], suffix=".deleted")
    write_segment(directory, [batch(0)], suffix=".swap")
    cleaned = write_segment(directory, [batch(5)], suffix=".cleaned")
    found = discover([str(tmp_path)])
    replica = found.replicas[0]
    assert [segment.log[-8:] for segment in replica.deleted] == [".deleted"]
    assert [segment.log[-8:] for segment in replica.swaps] == ["log.swap"]
    assert replica.swaps[0].offset_index == str(directory / "00000000000000000000.index.swap")
    assert replica.first_cleaned == 5
    assert (str(cleaned), "output of a cleaning or split that did not end") in found.skipped


def test_gzipped_copies_are_segments(tmp_path: Path) -> None:
    log = write_segment(tmp_path / "orders-0", [batch(4)])
    (log.parent / f"{log.name}.gz").write_bytes(gzip.compress(log.read_bytes()))
    log.unlink()
    segment = discover([str(tmp_path)]).replicas[0].segments[0]
    assert (segment.base_offset, segment.gzipped) == (4, True)


def test_a_plain_segment_goes_before_its_gzipped_copy(tmp_path: Path) -> None:
    log = write_segment(tmp_path / "orders-0", [batch(4)])
    copy = log.parent / f"{log.name}.gz"
    copy.write_bytes(gzip.compress(log.read_bytes()))
    found = discover([str(tmp_path)])
    assert [segment.log for segment in found.replicas[0].segments] == [str(log)]
    assert found.skipped == [(str(copy), f"starts where {log} does")]


def test_what_cannot_be_read_is_a_problem_and_the_rest_is_found(tmp_path: Path) -> None:
    write_segment(tmp_path / "a-0", [batch(0)])
    (tmp_path / "a-0" / "leader-epoch-checkpoint").write_text("nonsense")
    (tmp_path / FileKind.REPLICATION_CHECKPOINT).write_text("0\n7\n")
    (tmp_path / "a-0" / "partition.metadata").write_text("")
    found = discover([str(tmp_path), str(tmp_path / "nowhere")])
    assert names(found) == ["a-0"]
    assert found.replicas[0].epochs == ()
    assert {Path(problem.file or "").name for problem in found.problems} == {
        "leader-epoch-checkpoint",
        "replication-offset-checkpoint",
        "partition.metadata",
        "nowhere",
    }


def test_a_file_that_is_no_segment_is_a_problem(tmp_path: Path) -> None:
    write_segment(tmp_path / "a-0", [batch(0)])
    found = discover([str(tmp_path / "a-0" / "00000000000000000000.index")])
    assert [problem.what for problem in found.problems] == ["does not have the name of a segment"]


@pytest.mark.parametrize("log_dir", log_dirs(), ids=str)
def test_every_partition_of_the_corpora_is_found_with_all_its_segments(log_dir) -> None:
    found = discover([str(log_dir.path)], include_deleted=True)
    expected = {
        str(partition.path): [path.name for path in partition.files(".log")]
        for partition in log_dir.partitions()
    }
    assert {
        replica.directory: [Path(segment.log).name for segment in replica.segments]
        for replica in found.replicas
    } == expected
