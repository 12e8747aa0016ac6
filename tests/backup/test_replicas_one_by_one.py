"""Replicas that runs meet one after another: what the backup has of one is not read again from another."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from klog.backup.matching import NothingCommon, common_end
from klog.backup.moment.view import view_of
from klog.backup.run import Result
from klog.backup.verify import VerifyOptions, verify
from klog.formats.checkpoints import EpochEntry
from klog.formats.names import FileKind, TopicPartition
from tests.backup.repositories import Backups, restored
from tests.export.logs import batch, replica, write_checkpoint, write_segment, write_topic_id

ORDERS = TopicPartition("orders", 0)
ID = "AAAAAAAAAAAAAAAAAAAAAQ"
OTHER_ID = "AAAAAAAAAAAAAAAAAAAAAg"


def log(first: int, end: int, epoch: int = 0, at: int = 0) -> list[bytes]:
    """A batch for each five offsets."""
    return [batch(each, 5, size=300, leader_epoch=epoch, at=at) for each in range(first, end, 5)]


def size_of(batches: Sequence[bytes]) -> int:
    return sum(map(len, batches))


class Brokers:
    """Log directories of several brokers with one partition each, and a repository."""

    def __init__(self, tmp_path: Path, backups: Backups) -> None:
        self.backups = backups
        self._tmp_path = tmp_path

    def write(
        self,
        number: int,
        batches: Sequence[bytes],
        *epochs: tuple[int, int],
        each: int = 4,
        topic_id: str | None = ID,
    ) -> None:
        """The replica of a broker, with so many batches in each segment."""
        directory = self._path(number) / "orders-0"
        directory.mkdir(exist_ok=True)
        replica(directory, batches, *(epochs or ((0, 0),)), segment_batches=each)
        if topic_id is not None:
            write_topic_id(directory, topic_id)

    def empty(self, number: int) -> None:
        """Replace the disk of a broker by an empty one."""
        shutil.rmtree(self._path(number))

    def forget_epochs(self, number: int) -> None:
        """Remove the checkpoint of leader epochs."""
        (self._path(number) / "orders-0" / FileKind.LEADER_EPOCH_CHECKPOINT).unlink()

    def roll(self, number: int, base: int) -> None:
        """Begin a segment without records."""
        write_segment(self._path(number) / "orders-0", [], base)

    def checkpoint(self, number: int, kind: FileKind, offset: int) -> None:
        """What a broker has noted about the partition."""
        write_checkpoint(self._path(number), kind, orders_0=offset)

    def run(self, *numbers: int) -> Result:
        """Back up the directories of some brokers."""
        result = self.backups.run(*map(self._path, numbers))
        repository = self.backups.repository
        assert not verify(repository, repository.ids(), VerifyOptions()).findings
        return result

    def log(self) -> bytes:
        """The log in the newest backup; its segments are in order, and none begins within another."""
        state = self.backups.states()[ORDERS]
        ends = [pieces[-1].end_offset for pieces in state.segments().values() if pieces]
        assert all(base >= end for base, end in zip(list(state.segments())[1:], ends, strict=False))
        return b"".join(restored(self.backups.repository, state).values())

    def _path(self, number: int) -> Path:
        path = self._tmp_path / f"broker-{number}"
        path.mkdir(exist_ok=True)
        (path / "meta.properties").write_text(f"version=0\nbroker.id={number}\ncluster.id=abc\n")
        return path


@pytest.fixture
def brokers(tmp_path: Path, backups: Backups) -> Brokers:
    return Brokers(tmp_path, backups)


@pytest.mark.parametrize("each", [4, 5, 100])
@pytest.mark.parametrize("topic_id", [ID, None])
def test_a_replica_is_not_read_again(brokers: Brokers, each: int, topic_id: str | None) -> None:
    """Also if its segments begin elsewhere."""
    brokers.write(1, log(0, 100), topic_id=topic_id)
    brokers.write(2, log(0, 100), topic_id=topic_id, each=each)
    brokers.run(1)
    objects = brokers.backups.objects("data")

    result = brokers.run(2)

    assert (result.manifest.read_bytes, result.manifest.stored_bytes) == (0, 0)
    assert brokers.backups.objects("data") == objects
    assert brokers.log() == b"".join(log(0, 100))


@pytest.mark.parametrize("each", [4, 5, 100])
def test_of_a_log_that_grows_each_run_reads_what_is_new(brokers: Brokers, each: int) -> None:
    for number in range(1, 7):
        end = 100 * number + 5 * number
        brokers.write(1, log(0, end))
        brokers.write(2, log(0, end), each=each)
        result = brokers.run(1 + number % 2)
        assert result.manifest.read_bytes == size_of(log(end - 105, end))
        assert brokers.log() == b"".join(log(0, end))


def test_runs_of_one_broker_after_that_read_only_what_is_new(brokers: Brokers) -> None:
    brokers.write(1, log(0, 100))
    brokers.run(1)
    for end in (110, 120, 130):
        brokers.write(2, log(0, end), each=7)
        assert brokers.run(2).manifest.read_bytes == size_of(log(end - 10, end))
        assert brokers.log() == b"".join(log(0, end))
    assert brokers.run(2).changed == 0


def test_a_replica_that_is_behind_takes_nothing_away(brokers: Brokers) -> None:
    brokers.write(1, log(0, 100))
    brokers.write(2, log(0, 60))
    before = brokers.run(1)

    result = brokers.run(2)

    assert result.is_clean
    assert result.manifest.read_bytes == 0
    assert brokers.log() == b"".join(log(0, 100))
    assert brokers.backups.states()[ORDERS].source == before.manifest.sources[0].directory


def test_what_a_newer_leader_has_instead_is_read(brokers: Brokers) -> None:
    brokers.write(1, log(0, 100))
    newer = [*log(0, 60), *log(60, 90, epoch=1)]
    brokers.write(2, newer, (0, 0), (1, 60))
    brokers.run(1)

    result = brokers.run(2)

    assert result.manifest.read_bytes == size_of(newer[-6:])
    assert brokers.log() == b"".join(newer)


def test_records_of_an_older_leader_are_named_and_not_taken(brokers: Brokers) -> None:
    newer = [*log(0, 60), *log(60, 90, epoch=1)]
    brokers.write(1, newer, (0, 0), (1, 60))
    brokers.write(2, log(0, 100))
    brokers.run(1)

    result = brokers.run(2)

    [problem] = result.manifest.problems
    assert "has other records from offset 60 on" in problem.what
    assert problem.partition == ORDERS
    assert brokers.log() == b"".join(newer)


@pytest.mark.parametrize("end", [100, 120])
def test_another_log_with_the_same_epochs_is_read(brokers: Brokers, end: int) -> None:
    """As after a topic was deleted and created again, when brokers did not know ids."""
    other = log(0, end, at=7)
    brokers.write(1, log(0, 100), topic_id=None)
    brokers.write(2, other, topic_id=None)
    brokers.run(1)

    result = brokers.run(2)

    assert result.manifest.read_bytes == size_of(other)
    assert brokers.log() == b"".join(other)


def test_a_topic_with_another_id_is_read(brokers: Brokers) -> None:
    brokers.write(1, log(0, 100))
    brokers.write(2, log(0, 50), topic_id=OTHER_ID)
    brokers.run(1)

    assert brokers.run(2).manifest.read_bytes == size_of(log(0, 50))
    assert brokers.log() == b"".join(log(0, 50))


def test_a_replica_that_was_compacted_otherwise_is_read(brokers: Brokers) -> None:
    compacted = [each for number, each in enumerate(log(0, 100)) if number not in (1, 2, 5)]
    brokers.write(1, log(0, 100))
    brokers.write(2, compacted)
    brokers.run(1)

    assert brokers.run(2).manifest.read_bytes == size_of(compacted)
    assert brokers.log() == b"".join(compacted)


def test_what_another_replica_has_deleted_is_no_longer_in_the_log(brokers: Brokers) -> None:
    brokers.write(1, log(0, 100))
    brokers.write(2, log(30, 110), (0, 30), each=5)
    brokers.run(1)

    result = brokers.run(2)

    assert result.manifest.read_bytes == size_of(log(100, 110))
    state = brokers.backups.states()[ORDERS]
    assert (state.log_start_offset, state.end_offset) == (30, 110)
    assert brokers.log() == b"".join(log(20, 110))  # the piece in which the log begins


def test_a_disk_that_was_replaced_takes_nothing_away(brokers: Brokers) -> None:
    """Its replica is filled again by its leader."""
    brokers.write(1, log(0, 100))
    brokers.run(1)
    brokers.empty(1)
    brokers.write(1, log(0, 20))

    result = brokers.run(1)

    [problem] = result.manifest.problems
    assert "the log ends at 20, but it was read up to 100 before" in problem.what
    assert brokers.log() == b"".join(log(0, 100))
    brokers.write(1, log(0, 120))
    assert brokers.run(1).is_clean
    assert brokers.log() == b"".join(log(0, 120))


def test_the_end_of_a_log_that_is_lost_is_named_and_stays_in_the_backup(brokers: Brokers) -> None:
    brokers.write(1, log(0, 100))
    brokers.checkpoint(1, FileKind.REPLICATION_CHECKPOINT, 100)
    brokers.run(1)
    brokers.empty(1)
    brokers.write(1, log(0, 60))
    brokers.checkpoint(1, FileKind.REPLICATION_CHECKPOINT, 100)

    [problem] = brokers.run(1).manifest.problems

    assert "the log ends at 60, but the broker's checkpoint has a high watermark of 100" in problem.what
    assert brokers.log() == b"".join(log(0, 100))


def test_a_replica_without_segments_takes_nothing_away(brokers: Brokers) -> None:
    brokers.write(1, log(0, 100))
    brokers.write(2, [])
    brokers.run(1)

    assert brokers.run(2).is_clean
    assert brokers.log() == b"".join(log(0, 100))


def test_a_replica_that_is_behind_does_not_take_the_place_of_a_damaged_one(brokers: Brokers) -> None:
    damaged = [*log(0, 50), bytes(300), *log(55, 100)]
    brokers.write(1, damaged)
    brokers.write(2, log(0, 60))
    before = brokers.run(1)
    kept = brokers.log()

    result = brokers.run(2)

    assert [bool(each.manifest.problems) for each in (before, result)] == [True, True]
    assert brokers.log() == kept
    brokers.write(2, log(0, 100))
    assert brokers.run(2).is_clean
    assert brokers.log() == b"".join(log(0, 100))


def test_a_leader_that_has_written_nothing_yet_is_followed(brokers: Brokers) -> None:
    """As after a restore of an older moment: the others would truncate what they have beyond."""
    brokers.write(1, log(0, 100))
    brokers.write(2, log(0, 60), (0, 0), (1, 60))
    brokers.run(1)

    result = brokers.run(2)

    assert (result.is_clean, result.manifest.read_bytes) == (True, 0)
    assert brokers.log() == b"".join(log(0, 60))


def test_a_replica_that_has_lost_its_epochs_is_read(brokers: Brokers) -> None:
    brokers.write(1, log(0, 100))
    brokers.run(1)
    brokers.write(2, log(0, 120))
    brokers.forget_epochs(2)

    assert brokers.run(2).is_clean
    assert brokers.log() == b"".join(log(0, 120))


def test_a_replica_that_has_lost_its_epochs_is_not_said_to_differ(brokers: Brokers) -> None:
    brokers.write(1, log(0, 100))
    brokers.run(1)
    brokers.write(2, log(0, 80))
    brokers.forget_epochs(2)

    assert brokers.run(2).is_clean
    assert brokers.log() == b"".join(log(0, 100))


def test_a_replica_that_was_compacted_otherwise_in_the_first_piece_is_read(brokers: Brokers) -> None:
    """Also if its log is shorter than the pieces of the state."""
    compacted = [each for number, each in enumerate(log(0, 110)) if number not in (1, 2)]
    brokers.write(1, log(0, 100), each=100)
    brokers.write(2, compacted, each=100)
    brokers.run(1)

    assert brokers.run(2).manifest.read_bytes == size_of(compacted)
    assert brokers.log() == b"".join(compacted)


def test_a_replica_is_not_read_again_if_the_last_segment_was_empty(brokers: Brokers) -> None:
    brokers.write(1, log(0, 100))
    brokers.roll(1, 100)
    brokers.write(2, log(0, 100))
    brokers.run(1)

    assert brokers.run(2).manifest.read_bytes == 0


def test_records_that_were_deleted_do_not_come_back_with_another_replica(brokers: Brokers) -> None:
    compacted = [each for number, each in enumerate(log(0, 110)) if number != 5]
    brokers.write(1, log(0, 100))
    brokers.checkpoint(1, FileKind.LOG_START_CHECKPOINT, 20)
    brokers.write(2, compacted)
    brokers.run(1)

    brokers.run(2)

    assert brokers.backups.states()[ORDERS].log_start_offset == 20


def test_a_newer_log_that_differs_below_the_log_start_begins_where_it_does(brokers: Brokers) -> None:
    """After an unclean election the deleted offsets are those of other records."""
    newer = [*log(0, 60), *log(60, 120, epoch=1)]
    brokers.write(1, log(0, 100))
    brokers.checkpoint(1, FileKind.LOG_START_CHECKPOINT, 80)
    brokers.write(2, newer, (0, 0), (1, 60))
    brokers.run(1)

    brokers.run(2)

    assert brokers.backups.states()[ORDERS].log_start_offset == 0
    assert brokers.log() == b"".join(newer)


def test_where_logs_differ_is_said_though_the_log_start_was_not_noted(brokers: Brokers) -> None:
    newer = [*log(0, 60), *log(60, 120, epoch=1)]
    brokers.write(1, newer, (0, 0), (1, 60))
    brokers.write(2, log(0, 100), (0, 20))
    brokers.run(1)

    [problem] = brokers.run(2).manifest.problems

    assert "has other records from offset 60 on" in problem.what


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> None:
    """All brokers run."""
    monkeypatch.setattr("klog.backup.scanning.holder_of", lambda _path: "a broker")


@pytest.mark.usefixtures("running")
def test_an_epoch_above_the_high_watermark_is_no_loss(brokers: Brokers) -> None:
    brokers.write(1, [*log(0, 60), *log(60, 90, epoch=1)], (0, 0), (1, 60))
    brokers.checkpoint(1, FileKind.REPLICATION_CHECKPOINT, 40)

    assert brokers.run(1).is_clean
    assert brokers.backups.states()[ORDERS].end_offset == 40


@pytest.mark.usefixtures("running")
def test_what_was_cleaned_is_below_the_high_watermark(brokers: Brokers) -> None:
    """A record that took the place of others is read with the rest of the log."""
    brokers.write(1, [*log(0, 20), *log(60, 100)])
    brokers.checkpoint(1, FileKind.REPLICATION_CHECKPOINT, 40)
    brokers.checkpoint(1, FileKind.CLEANER_CHECKPOINT, 80)

    assert brokers.run(1).is_clean
    assert brokers.backups.states()[ORDERS].end_offset == 80


@pytest.mark.usefixtures("running")
def test_of_replicas_in_one_epoch_the_one_is_read_of_which_more_is_committed(brokers: Brokers) -> None:
    for number, high_watermark in ((1, 40), (2, 80)):
        brokers.write(number, log(0, 100))
        brokers.checkpoint(number, FileKind.REPLICATION_CHECKPOINT, high_watermark)

    brokers.run(1, 2)

    assert brokers.backups.states()[ORDERS].end_offset == 80


def test_no_segment_of_a_moment_begins_within_another(brokers: Brokers) -> None:
    """Readers would not find what is in the first of both."""
    compacted = [each for number, each in enumerate(log(0, 100)) if number != 1]
    brokers.write(1, log(0, 70), each=100)
    brokers.write(2, compacted, each=8)
    brokers.run(1)
    known = brokers.backups.states()[ORDERS]
    brokers.run(2)

    view = view_of(known, brokers.backups.states()[ORDERS])

    assert [(each.segment_base_offset, each.piece.end_offset) for each in view.parts] == [
        (0, 70),
        (0, 85),
        (85, 100),
    ]


FAR = [batch(2**31, 5, leader_epoch=0)]


def test_no_segment_gets_offsets_that_its_indexes_cannot_have(brokers: Brokers) -> None:
    brokers.write(1, log(0, 15), each=100)
    brokers.write(2, log(0, 15) + FAR, each=2)
    brokers.run(1)
    brokers.run(2)

    pieces = brokers.backups.states()[ORDERS].pieces

    assert [(each.segment_base_offset, each.end_offset) for each in pieces] == [(0, 15), (15, 2**31 + 5)]


def test_no_segment_of_a_moment_gets_offsets_that_its_indexes_cannot_have(brokers: Brokers) -> None:
    compacted = [each for number, each in enumerate(log(0, 20)) if number != 1]
    brokers.write(1, log(0, 20), each=100)
    brokers.write(2, compacted + FAR, each=2)
    brokers.run(1)
    known = brokers.backups.states()[ORDERS]
    brokers.run(2)

    view = view_of(known, brokers.backups.states()[ORDERS])

    assert [(each.segment_base_offset, each.piece.end_offset) for each in view.parts] == [
        (0, 20),
        (20, 2**31 + 5),
    ]


def test_a_disk_to_which_the_replica_was_moved_is_not_read(brokers: Brokers, tmp_path: Path) -> None:
    brokers.write(1, log(0, 100))
    brokers.run(1)
    other = tmp_path / "disk-2"
    (tmp_path / "broker-1").rename(other)

    result = brokers.backups.run(other)

    assert (result.manifest.read_bytes, result.is_clean) == (0, True)
    assert brokers.backups.states()[ORDERS].source == str(other)


@pytest.mark.parametrize(
    ("one", "other", "start", "expected"),
    [
        (([], 100), ([(0, 0)], 100), 0, NothingCommon.UNKNOWN),
        (([(0, 0), (1, 50)], 100), ([(1, 60)], 90), 30, 90),
        (([(0, 0)], 100), ([(0, 0)], 80), 0, 80),
        (([(0, 0)], 100), ([(1, 0)], 80), 0, NothingCommon.DIFFERENT),
        (([(0, 0), (1, 50)], 100), ([(0, 0), (1, 60)], 100), 0, 50),
        (([(0, 0), (1, 50)], 100), ([(0, 0), (2, 50)], 100), 0, 50),
        (([(0, 0), (1, 50)], 100), ([(0, 0)], 70), 0, 50),
        (([(0, 0), (1, 50)], 100), ([(0, 40), (1, 50)], 90), 40, 90),
        (([(0, 0), (1, 50)], 100), ([(1, 60)], 90), 60, 90),
    ],
)
def test_leader_epochs_say_how_far_logs_are_the_same(
    one: tuple[list[tuple[int, int]], int],
    other: tuple[list[tuple[int, int]], int],
    start: int,
    expected: int | NothingCommon,
) -> None:
    (ours, our_end), (theirs, their_end) = (
        ([EpochEntry(*entry) for entry in epochs], end) for epochs, end in (one, other)
    )
    assert common_end((ours, our_end), (theirs, their_end), start) == expected
