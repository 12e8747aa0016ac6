"""A replica is copied to another log directory while its log grows, is cut and loses its beginning."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klog.formats.names import FileKind
from klog.replication.log_dir_move import LogDirMove
from klog.replication.partition import Partition, ReplicaContext
from klog.storage.log.log_manager import LogManager
from klog.storage.log.partition_log import PartitionLog
from tests.control_requests import leader_and_isr_state
from tests.storage.log.building import NOW_MS, batch, idempotent, stored
from tests.storage.log.managing import Managed, new_log, partition, read_checkpoint

BROKER = 1
CONFIG = {"t": {"segment.bytes": "2000", "index.interval.bytes": "100"}}


def replica(manager: LogManager) -> Partition:
    context = ReplicaContext(BROKER, lambda: NOW_MS, lambda: {BROKER}, 30_000)
    found = Partition(partition(0), context, new_log(manager), None)
    found.apply(leader_and_isr_state(0, BROKER, (BROKER,)))
    return found


def begin(manager: LogManager, where: Partition, root: Path) -> LogDirMove:
    return LogDirMove(where, manager.futures.create(where.log, str(root / "b")), manager.futures)


def copy_all(move: LogDirMove) -> None:
    while move.copy(bytearray(1 << 20), NOW_MS):
        pass


def write(where: Partition, data: memoryview) -> None:
    where.append(data, 1, NOW_MS)


def state_of(log: PartitionLog) -> dict[str, object]:
    return {
        "batches": [
            each for each in stored(log) if each.baseOffset + each.lastOffsetDelta >= log.log_start_offset
        ],
        "start": log.log_start_offset,
        "end": log.log_end_offset,
        "high watermark": log.high_watermark,
        "epochs": log.epochs.entries,
        "producers": {
            number: (each.epoch, each.last_sequence) for number, each in log.producers.by_id.items()
        },
    }


def test_the_future_log_takes_the_name_and_the_place_of_the_log(tmp_path: Path) -> None:
    managed = Managed(tmp_path / "a", tmp_path / "b", topics=CONFIG)
    manager = managed.start()
    where = replica(manager)
    for sequence in range(0, 60, 3):
        write(where, idempotent(sequence, 3))
    before = state_of(where.log)
    move = begin(manager, where, tmp_path)
    assert [path.name.endswith("-future") for path in (tmp_path / "b").iterdir() if path.is_dir()] == [True]
    copy_all(move)
    old = where.log
    replaced = move.promote(bytearray(1 << 20), NOW_MS)
    assert replaced is old is not where.log
    assert manager.get(partition(0)) is where.log is move.future
    assert manager.futures.logs.futures() == []
    assert state_of(where.log) == before
    manager.futures.discard(old)
    assert (tmp_path / "b" / "t-0").is_dir()
    assert not (tmp_path / "a" / "t-0").exists()
    assert partition(0) not in read_checkpoint(tmp_path / "a", FileKind.RECOVERY_POINT_CHECKPOINT)
    # It leads on.
    write(where, idempotent(60, 3))
    managed.pass_ms(120_000)
    assert [path for path in (tmp_path / "a").iterdir() if path.is_dir()] == []
    managed.stop()
    again = Managed(tmp_path / "a", tmp_path / "b", topics=CONFIG).start()
    assert again.get(partition(0)).log_end_offset == 63


def test_a_move_goes_on_after_a_restart(tmp_path: Path) -> None:
    managed = Managed(tmp_path / "a", tmp_path / "b", topics=CONFIG)
    manager = managed.start()
    where = replica(manager)
    for sequence in range(0, 30, 3):
        write(where, idempotent(sequence, 3))
    copy_all(begin(manager, where, tmp_path))
    write(where, idempotent(30, 3))
    managed.crash()
    manager = Managed(tmp_path / "a", tmp_path / "b", topics=CONFIG).start()
    where = replica(manager)
    move = LogDirMove(where, manager.futures.get(partition(0)), manager.futures)
    assert (move.future.log_end_offset, where.log.log_end_offset) == (30, 33)
    copy_all(move)
    expected = state_of(where.log)
    assert move.promote(bytearray(1 << 20), NOW_MS) is not None
    assert state_of(where.log) == expected


def test_a_copy_that_another_leader_s_records_were_in_is_cut_where_the_epochs_part(tmp_path: Path) -> None:
    manager = Managed(tmp_path / "a", tmp_path / "b", topics=CONFIG).start()
    where = replica(manager)
    write(where, batch([b"x"] * 5))
    move = begin(manager, where, tmp_path)
    copy_all(move)
    # As if the process had ended here: what was written in epoch 0 beyond offset 3 is replaced in epoch 2.
    move.future.truncate_to(3)
    move.future.append_as_follower(stamped(3, 1, b"old"), 9, NOW_MS)
    where.log.truncate_to(3)
    where.apply(leader_and_isr_state(0, BROKER, (BROKER,), leader_epoch=2))
    write(where, batch([b"new"] * 4))
    move = LogDirMove(where, move.future, manager.futures)
    copy_all(move)
    expected = state_of(where.log)
    assert move.promote(bytearray(1 << 20), NOW_MS) is not None
    assert state_of(where.log) == expected


def stamped(base_offset: int, epoch: int, value: bytes) -> memoryview:
    data = bytearray(batch([value]))
    data[0:8] = base_offset.to_bytes(8, "big")
    data[12:16] = epoch.to_bytes(4, "big")
    return memoryview(data)


def test_what_was_read_of_a_batch_that_is_not_whole_does_not_count(tmp_path: Path) -> None:
    manager = Managed(tmp_path / "a", tmp_path / "b").start()
    where = replica(manager)
    for _ in range(3):
        write(where, batch([b"x" * 600_000]))
    move, copied = begin(manager, where, tmp_path), []
    while count := move.copy(bytearray(1 << 20), NOW_MS):
        copied.append(count)
    assert len(copied) == 3
    assert sum(copied) == sum(each.size for each in where.log.segments)


def test_nothing_is_promoted_while_many_records_are_missing(tmp_path: Path) -> None:
    manager = Managed(tmp_path / "a", tmp_path / "b").start()
    where = replica(manager)
    move = begin(manager, where, tmp_path)
    for _ in range(3):
        write(where, batch([b"x" * 600_000]))
    assert move.promote(bytearray(1 << 20), NOW_MS) is None
    assert manager.get(partition(0)) is where.log is not move.future


def test_a_failed_target_takes_the_copy_only(tmp_path: Path) -> None:
    managed = Managed(tmp_path / "a", tmp_path / "b")
    manager = managed.start()
    where = replica(manager)
    begin(manager, where, tmp_path)
    manager.directory_failed(str(tmp_path / "b"), OSError("gone"))
    assert managed.listener.failed == [(str(tmp_path / "b"), ())]
    assert manager.futures.get(partition(0)) is None
    assert manager.get(partition(0)) is where.log


def test_a_replica_that_is_deleted_takes_its_copy_with_it(tmp_path: Path) -> None:
    manager = Managed(tmp_path / "a", tmp_path / "b").start()
    begin(manager, replica(manager), tmp_path)
    assert manager.delete([partition(0)]) == {}
    assert manager.futures.logs.futures() == []
    left = [path.name for name in "ab" for path in (tmp_path / name).iterdir() if path.is_dir()]
    assert [name.endswith("-delete") for name in left] == [True, True]


def test_a_new_replica_is_created_in_the_preferred_directory(tmp_path: Path) -> None:
    manager = Managed(tmp_path / "a", tmp_path / "b").start()
    manager.prefer(partition(7), str(tmp_path / "b"))
    assert Path(new_log(manager, 7).directory).parent.name == "b"
    manager.prefer(partition(8), str(tmp_path / "gone"))
    assert Path(new_log(manager, 8).directory).parent.name == "a"


@pytest.mark.parametrize("directory", ["offline", "b"])
def test_a_directory_that_is_offline_takes_no_copy(tmp_path: Path, directory: str) -> None:
    manager = Managed(tmp_path / "a", tmp_path / "b").start()
    manager.directory_failed(str(tmp_path / "b"), OSError("gone"))
    with pytest.raises(Exception, match="offline"):
        manager.futures.create(replica(manager).log, str(tmp_path / directory))


def test_a_copy_that_lacks_descriptors_is_no_failure_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    managed = Managed(tmp_path / "a", tmp_path / "b")
    manager = managed.start()
    where = replica(manager)

    def fails(*_: object) -> None:
        raise OSError(errno.EMFILE, "none left")

    monkeypatch.setattr("klog.storage.log.log_factory.create_log", fails)
    with pytest.raises(OSError, match="none left"):
        manager.futures.create(where.log, str(tmp_path / "b"))
    managed.pass_ms(1000)
    assert managed.listener.failed == []


Change = Callable[[Partition, LogDirMove], None]


def _append(count: int) -> Change:
    return lambda where, _: write(where, batch([b"v" * 90] * count))


def _new_epoch(where: Partition, _: LogDirMove) -> None:
    where.apply(leader_and_isr_state(0, BROKER, (BROKER,), leader_epoch=where.state.leader_epoch + 1))


def _cut(part: float) -> Change:
    def cut(where: Partition, _: LogDirMove) -> None:
        log = where.log
        # Leaders and followers cut between batches.
        ends = [log.log_end_offset, *(each.baseOffset for each in stored(log))]
        log.truncate_to(max(log.log_start_offset, ends[int(part * (len(ends) - 1))]))

    return cut


def _restart(where: Partition, _: LogDirMove) -> None:
    where.log.restart_at(where.log.log_end_offset + 5)


def _advance(part: float) -> Change:
    def advance(where: Partition, _: LogDirMove) -> None:
        log = where.log
        log.set_high_watermark(log.log_end_offset)
        span = log.log_end_offset - log.log_start_offset
        log.advance_log_start(log.log_start_offset + int(part * span))

    return advance


def _copy(where: Partition, move: LogDirMove) -> None:
    move.copy(bytearray(300), NOW_MS)


_PARTS = st.floats(0, 1)
_CHANGES = st.one_of(
    st.integers(1, 9).map(_append),
    st.just(_new_epoch),
    st.just(_copy),
    st.just(_copy),
    _PARTS.map(_cut),
    _PARTS.map(_advance),
    st.just(_restart),
)


@settings(max_examples=30, deadline=None)
@given(before=st.lists(_CHANGES, max_size=8), after=st.lists(_CHANGES, max_size=25))
def test_whatever_happens_to_the_log_the_copy_becomes_the_same(
    before: list[Change], after: list[Change]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        manager = Managed(root / "a", root / "b", topics=CONFIG).start()
        where = replica(manager)
        unused = LogDirMove(where, where.log, manager.futures)
        for change in before:
            if change is not _copy:
                change(where, unused)
        move = begin(manager, where, root)
        for change in after:
            change(where, move)
        copy_all(move)
        expected = state_of(where.log)
        assert move.promote(bytearray(1 << 20), NOW_MS) is not None
        found = state_of(where.log)
        manager.release()
    assert found == expected
