"""What one run of a backup after another keeps of log directories."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

import pytest

from klog.backup.joining import NEVER
from klog.backup.scanning import METADATA_TOPIC, scan
from klog.formats.checkpoints import EpochEntry
from klog.formats.errors import MissingInputError, UsageError
from klog.formats.names import DirectoryState, FileKind, TopicPartition, parse_directory
from tests import corpora
from tests.backup.repositories import Backups, log_files
from tests.export.logs import (
    Log,
    batch,
    replica,
    write_checkpoint,
    write_epochs,
    write_segment,
    write_topic_id,
)

ORDERS = TopicPartition("orders", 0)
NAMES = [path.name for path in sorted(corpora.FIXTURES.iterdir()) if (path / "manifest.json").exists()]
INTACT = [
    log_directory
    for name in NAMES
    if not corpora.Corpus(name).is_corrupt
    for log_directory in corpora.Corpus(name).log_dirs()
]


def batches(first: int, count: int, size: int = 100) -> list[bytes]:
    return [batch(first + 5 * number, 5, size=size, leader_epoch=0) for number in range(count)]


@pytest.mark.parametrize("log_directory", INTACT, ids=str)
def test_what_kafka_wrote_comes_back_byte_for_byte(log_directory, backups: Backups) -> None:
    backups.compression = "zstd"

    result = backups.run(log_directory.path)

    kept = {partition: backups.segments(*partition) for partition in backups.states()}
    directories = {
        name.partition: directory.path
        for directory in log_directory.partitions()
        if (name := parse_directory(directory.name)).state is DirectoryState.CURRENT
        and name.partition.topic != METADATA_TOPIC
    }
    assert kept == {
        partition: _without_preallocated_zeros(_plain(path), kept[partition])
        for partition, path in directories.items()
    }
    assert result.is_clean, result.manifest.problems


def _plain(directory: Path) -> dict[str, bytes]:
    """The segments of a directory, also those that are stored as gzipped copies."""
    found = {}
    for path in [*directory.glob("*.log"), *directory.glob("*.log.gz")]:
        data = path.read_bytes()
        found[path.name.removesuffix(".gz")] = gzip.decompress(data) if path.suffix == ".gz" else data
    return found


def _without_preallocated_zeros(files: dict[str, bytes], kept: dict[str, bytes]) -> dict[str, bytes]:
    return {
        name: data if data[len(kept[name]) :].strip(b"\0") else data[: len(kept[name])]
        for name, data in files.items()
        if name >= min(kept)  # segments below have deleted records only
    }


def test_a_state_says_where_the_log_begins_and_ends(backups: Backups, logs: Path) -> None:
    directory = replica(logs / "orders-0", batches(0, 12), (0, 0), (3, 20))
    write_topic_id(directory, "AAAAAAAAAAAAAAAAAAAAAQ")
    write_checkpoint(logs, FileKind.LOG_START_CHECKPOINT, orders_0=7)
    write_checkpoint(logs, FileKind.REPLICATION_CHECKPOINT, orders_0=55)

    backups.run(logs)

    state = backups.states()[ORDERS]
    assert (state.log_start_offset, state.end_offset, state.high_watermark) == (7, 60, 55)
    assert (state.topic_id, state.broker_id, state.source) == ("AAAAAAAAAAAAAAAAAAAAAQ", 1, str(logs))
    assert state.epochs == (EpochEntry(0, 0), EpochEntry(3, 20))
    assert state.read_time_ms == backups.now_ms


def test_a_second_run_without_changes_reads_and_writes_no_log(backups: Backups, logs: Path) -> None:
    replica(logs / "orders-0", batches(0, 12))
    first = backups.run(logs)
    objects = backups.objects()

    second = backups.run(logs)

    assert (first.changed, second.changed) == (1, 0)
    assert second.manifest.read_bytes == second.manifest.stored_bytes == 0
    assert backups.objects() == objects
    assert backups.segments("orders") == log_files(logs / "orders-0")


def test_only_what_was_appended_is_read(backups: Backups, logs: Path) -> None:
    log = Log(logs / "orders-0")
    log.append(*batches(0, 8)).write()
    backups.run(logs)
    log.append(*batches(40, 2)).write()
    with open(logs / "orders-0" / "00000000000000000000.log", "rb") as file:
        appended = file.read()[sum(map(len, batches(0, 8))) :]

    second = backups.run(logs)

    assert second.manifest.read_bytes == len(appended)
    assert backups.segments("orders") == log_files(logs / "orders-0")
    pieces = backups.states()[ORDERS].pieces
    assert [(piece.first_offset, piece.end_offset) for piece in pieces] == [(0, 40), (40, 50)]


def test_each_backup_stays_as_it_was(backups: Backups, logs: Path) -> None:
    log = Log(logs / "orders-0")
    contents = {}
    for number in range(6):
        log.append(*batches(20 * number, 4))
        if number % 2:
            log.roll()
        log.write()
        contents[backups.run(logs).manifest.id] = log_files(logs / "orders-0")

    assert {identifier: backups.segments("orders", 0, identifier) for identifier in contents} == contents


def test_a_compacted_segment_has_other_pieces(backups: Backups, logs: Path) -> None:
    all_batches = batches(0, 8)
    replica(logs / "orders-0", all_batches)
    first = backups.run(logs).manifest.id
    before = log_files(logs / "orders-0")
    (logs / "orders-0" / "00000000000000000000.log").unlink()
    write_segment(logs / "orders-0", all_batches[2:4], 0)

    backups.run(logs)

    assert backups.segments("orders") == log_files(logs / "orders-0")
    assert backups.segments("orders", 0, first) == before


def test_a_truncated_log_that_was_written_again_is_read_again(backups: Backups, logs: Path) -> None:
    path = write_segment(logs / "orders-0", batches(0, 8))
    backups.run(logs)
    kept = b"".join(batches(0, 4))
    again = [batch(20 + 5 * number, 5, size=100, leader_epoch=1) for number in range(6)]
    with open(path, "r+b") as file:  # the same inode, and longer than before
        file.truncate(len(kept))
        file.seek(len(kept))
        file.write(b"".join(again))

    backups.run(logs)

    assert backups.segments("orders") == log_files(logs / "orders-0")


def test_retention_at_the_source_takes_segments_out_of_later_backups_only(
    backups: Backups, logs: Path
) -> None:
    replica(logs / "orders-0", batches(0, 12))
    first = backups.run(logs).manifest.id
    before = log_files(logs / "orders-0")
    (logs / "orders-0" / "00000000000000000000.log").unlink()

    backups.run(logs)

    assert backups.segments("orders") == log_files(logs / "orders-0")
    assert backups.states()[ORDERS].log_start_offset == 20
    assert backups.segments("orders", 0, first) == before


def test_segments_of_deleted_records_only_are_left_out(backups: Backups, logs: Path) -> None:
    replica(logs / "orders-0", batches(0, 12))
    write_checkpoint(logs, FileKind.LOG_START_CHECKPOINT, orders_0=22)

    backups.run(logs)

    assert list(backups.segments("orders")) == ["00000000000000000020.log", "00000000000000000040.log"]
    assert backups.states()[ORDERS].log_start_offset == 22


def test_a_deleted_topic_is_not_in_later_backups(backups: Backups, logs: Path) -> None:
    replica(logs / "orders-0", batches(0, 4))
    replica(logs / "payments-0", batches(0, 4))
    first = backups.run(logs).manifest.id
    shutil.rmtree(logs / "orders-0")

    result = backups.run(logs)

    assert result.removed == 1
    assert set(backups.states()) == {TopicPartition("payments", 0)}
    assert ORDERS in backups.states(first)


def test_topics_that_were_not_asked_for_are_carried_over(backups: Backups, logs: Path) -> None:
    replica(logs / "orders-0", batches(0, 4))
    replica(logs / "payments-0", batches(0, 4))
    backups.run(logs)
    write_segment(logs / "orders-0", batches(20, 4))
    write_segment(logs / "payments-0", batches(20, 4))

    result = backups.run(logs, patterns=("orders",))

    ends = {partition.topic: state.end_offset for partition, state in backups.states().items()}
    assert ends == {"orders": 40, "payments": 20}
    assert result.manifest.patterns == ("orders",)


def test_several_brokers_share_a_repository(backups: Backups, tmp_path: Path) -> None:
    for number in (1, 2):
        replica(tmp_path / f"broker{number}" / f"orders-{number}", batches(0, 4))
        backups.run(tmp_path / f"broker{number}")

    assert set(backups.states()) == {TopicPartition("orders", 1), TopicPartition("orders", 2)}


def test_brokers_on_several_machines_may_have_the_same_path(backups: Backups, logs: Path) -> None:
    for number in (1, 2):
        replica(logs / f"orders-{number}", batches(0, 4))
        (logs / "meta.properties").write_text(f"version=0\nbroker.id={number}\ncluster.id=abc\n")
        assert backups.run(logs).removed == 0
        logs.rename(logs.with_name(f"machine{number}"))

    assert set(backups.states()) == {TopicPartition("orders", 1), TopicPartition("orders", 2)}


def test_replicas_are_stored_once_and_the_one_that_others_follow_is_chosen(
    backups: Backups, tmp_path: Path
) -> None:
    replica(tmp_path / "a" / "orders-0", batches(0, 6), (0, 0))
    replica(tmp_path / "b" / "orders-0", batches(0, 4), (0, 0), (2, 20))
    replica(tmp_path / "c" / "orders-0", batches(0, 5), (0, 0), (2, 20))

    result = backups.run(tmp_path / "a", tmp_path / "b", tmp_path / "c")

    state = backups.states()[ORDERS]
    assert (state.source, state.end_offset) == (str(tmp_path / "c"), 25)
    assert result.manifest.stored_bytes == sum(map(len, batches(0, 5)))


def test_a_damaged_replica_gives_way_to_a_whole_one(backups: Backups, tmp_path: Path) -> None:
    replica(tmp_path / "a" / "orders-0", batches(0, 6), (0, 0))
    replica(tmp_path / "b" / "orders-0", batches(0, 6), (0, 0))
    _flip(tmp_path / "a" / "orders-0" / "00000000000000000000.log", 150)

    result = backups.run(tmp_path / "a", tmp_path / "b")

    assert backups.states()[ORDERS].source == str(tmp_path / "b")
    assert result.is_clean


def test_damage_is_left_out_and_said(backups: Backups, logs: Path) -> None:
    all_batches = batches(0, 4)
    path = write_segment(logs / "orders-0", all_batches)
    _flip(path, len(all_batches[0]) + 80)

    result = backups.run(logs)

    assert backups.segments("orders") == {path.name: all_batches[0] + b"".join(all_batches[2:])}
    [damage] = backups.states()[ORDERS].damage
    assert (damage.file, damage.position_bytes) == (str(path), len(all_batches[0]))
    assert (damage.first_offset, damage.end_offset) == (5, 10)
    assert damage.what.startswith("the batch fails its checksum")
    assert result.damaged == (ORDERS,)
    assert not result.is_clean


def test_damage_is_said_in_every_run(backups: Backups, logs: Path) -> None:
    path = write_segment(logs / "orders-0", batches(0, 4))
    _flip(path, 80)
    backups.run(logs)

    again = backups.run(logs)

    assert (again.changed, again.damaged) == (0, (ORDERS,))
    assert [problem.partition for problem in again.manifest.problems] == [ORDERS]


def test_a_log_that_is_shorter_than_its_checkpoint_is_damaged(backups: Backups, logs: Path) -> None:
    write_segment(logs / "orders-0", batches(0, 4))
    write_checkpoint(logs, FileKind.REPLICATION_CHECKPOINT, orders_0=25)

    result = backups.run(logs)

    [problem] = result.manifest.problems
    path = logs / "orders-0" / "00000000000000000000.log"
    assert (
        problem.what == f"{path}: the log ends at 20, but the broker's checkpoint has a high watermark of 25"
    )


def test_preallocated_zeros_are_no_part_of_the_log(backups: Backups, logs: Path) -> None:
    path = write_segment(logs / "orders-0", batches(0, 4))
    with open(path, "ab") as file:
        file.truncate(1 << 20)

    assert backups.run(logs).is_clean
    assert backups.segments("orders") == {path.name: b"".join(batches(0, 4))}


def test_an_empty_last_segment_says_where_the_log_goes_on(backups: Backups, logs: Path) -> None:
    write_segment(logs / "orders-0", batches(0, 4))
    write_segment(logs / "orders-0", [], 90)

    backups.run(logs)

    state = backups.states()[ORDERS]
    assert (state.end_offset, state.empty_segments) == (90, (90,))
    assert list(state.segments()) == [0, 90]


def test_a_segment_has_pieces_of_a_bounded_size(backups: Backups, logs: Path, monkeypatch) -> None:
    monkeypatch.setattr("klog.backup.run.PIECE_BYTES", 2000)
    path = write_segment(logs / "orders-0", batches(0, 20))

    backups.run(logs)

    pieces = backups.states()[ORDERS].pieces
    assert len(pieces) > 4
    assert max(piece.size_bytes for piece in pieces) <= 2000
    assert [piece.first_offset for piece in pieces[1:]] == [piece.end_offset for piece in pieces[:-1]]
    assert backups.segments("orders") == {path.name: path.read_bytes()}


def test_the_pieces_of_many_small_runs_are_joined_when_the_segment_is_closed(
    backups: Backups, logs: Path
) -> None:
    log = Log(logs / "orders-0")
    for number in range(40):
        log.append(*batches(5 * number, 1)).write()
        backups.run(logs, joining=NEVER)
    assert len(backups.states()[ORDERS].pieces) == 40
    log.roll().append(*batches(200, 1)).write()

    backups.run(logs)

    assert len(backups.states()[ORDERS].pieces) == 2
    assert backups.segments("orders") == log_files(logs / "orders-0")


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_only_batches_that_are_not_compressed_are_compressed(
    compression: str, backups: Backups, logs: Path
) -> None:
    backups.compression = compression
    write_segment(logs / "plain-0", batches(0, 20, size=1000))
    write_segment(logs / "zipped-0", [batch(0, 500, size=1000, codec=1, leader_epoch=0)])

    backups.run(logs)

    suffix = {"none": ".log", "gzip": ".log.gz", "zstd": ".log.zst"}[compression]
    [plain] = backups.objects("data/plain-0")
    [zipped] = backups.objects("data/zipped-0")
    assert plain.endswith(suffix)
    assert zipped.endswith(".log")
    assert backups.segments("plain") == log_files(logs / "plain-0")
    assert backups.segments("zipped") == log_files(logs / "zipped-0")


def test_clusters_are_not_mixed(backups: Backups, logs: Path, tmp_path: Path) -> None:
    replica(logs / "orders-0", batches(0, 4))
    backups.run(logs)
    (logs / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=other\n")

    with pytest.raises(UsageError, match=r"of several clusters: abc, other .use a repository for each"):
        backups.run(logs)


def test_a_directory_of_other_things_does_not_become_a_repository(backups: Backups, logs: Path) -> None:
    Path(backups.place).mkdir()
    (Path(backups.place) / "thesis.txt").write_text("x")

    with pytest.raises(UsageError, match="holds files and is no backup repository"):
        backups.run(logs)


def test_a_source_without_partitions_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(MissingInputError, match="holds no partition directories"):
        scan([str(tmp_path / "empty")])
    with pytest.raises(MissingInputError, match="is no directory"):
        scan([str(tmp_path / "missing")])


def test_a_log_directory_may_have_the_name_of_a_partition(logs: Path, tmp_path: Path) -> None:
    replica(tmp_path / "disks" / "kafka-1" / "orders-0", batches(0, 4))

    found = scan([str(tmp_path / "disks"), str(tmp_path / "disks" / "kafka-1")])

    assert [each.source.directory for each in found.log_directories] == [str(tmp_path / "disks" / "kafka-1")]
    assert list(found.replicas) == [ORDERS]


def _flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_a_file_that_was_just_written_is_looked_at_again(backups: Backups, logs: Path) -> None:
    path = write_segment(logs / "orders-0", batches(0, 4))
    os.utime(path, ns=(backups.now_ms * 1_000_000, backups.now_ms * 1_000_000))
    backups.run(logs)

    assert backups.run(logs).changed == 1


def test_epochs_above_the_end_are_left_out(backups: Backups, logs: Path) -> None:
    directory = replica(logs / "orders-0", batches(0, 4))
    write_epochs(directory, (0, 0), (1, 20))
    backups.run(logs)

    assert backups.states()[ORDERS].epochs == (EpochEntry(0, 0), EpochEntry(1, 20))
