"""A partition's log in use: rolls, indexes, reads, truncation, log start, leader epochs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.formats.errors import StorageError
from klog.storage.log.append_values import AppendError, Origin, UnexpectedOffsetError
from klog.storage.log.partition_log import PartitionLog
from klog.storage.log.reading import OffsetOutOfRangeError
from tests.storage.log.building import (
    NOW_MS,
    SMALL_INDEXES,
    Clock,
    Later,
    append,
    batch,
    bytes_of,
    files,
    fill,
    idempotent,
    marker,
    new_log,
    offsets_of,
    reload,
    stored,
    transactional,
)

BATCH_BYTES = len(batch())


def bases(log: PartitionLog) -> list[int]:
    return list(log.segments.bases)


# -- rolling


def test_a_segment_rolls_before_it_would_exceed_segment_bytes(tmp_path: Path) -> None:
    log = new_log(tmp_path, {"segment.bytes": str(3 * BATCH_BYTES)})
    fill(log, 7)
    assert bases(log) == [0, 3, 6]
    assert [segment.size for segment in log.segments] == [3 * BATCH_BYTES, 3 * BATCH_BYTES, BATCH_BYTES]


def test_a_segment_rolls_by_the_age_of_its_messages_not_by_the_clock(tmp_path: Path) -> None:
    clock = Clock()
    log = new_log(tmp_path, {"segment.ms": "1000"}, clock=clock)
    fill(log, 1, timestamp=NOW_MS)
    clock.now_ms += 10**6
    fill(log, 1, timestamp=NOW_MS + 1000)
    assert bases(log) == [0]
    fill(log, 1, timestamp=NOW_MS + 1001)
    assert bases(log) == [0, 2]
    fill(log, 1, timestamp=NOW_MS - 10**9)
    assert bases(log) == [0, 2], "old messages do not roll"


def test_nothing_is_written_at_the_largest_offset(tmp_path: Path) -> None:
    """The offset after it would not fit the log's files."""
    log = new_log(tmp_path)
    log.restart_at(2**63 - 3)
    append(log, batch(2))
    for records in (1, 2, 3):
        with pytest.raises(AppendError):
            append(log, batch(records))
    assert (log.log_end_offset, log.segments.active.size) == (2**63 - 1, len(batch(2)))
    assert len(bytes_of(log.read(2**63 - 3, 1000, 2**63 - 1))) == len(batch(2))


def test_a_segment_that_is_cut_to_nothing_is_as_young_as_a_new_one(tmp_path: Path) -> None:
    clock = Clock()
    log = new_log(tmp_path, {"segment.ms": "1000"}, clock=clock)
    fill(log, 1, timestamp=-1)
    clock.now_ms += 900
    log.truncate_to(0)
    fill(log, 1, timestamp=-1)
    log.append_as_leader(batch(timestamp=-1), 0, NOW_MS + 1900)
    assert bases(log) == [0]
    log.append_as_leader(batch(timestamp=-1), 0, NOW_MS + 1901)
    assert bases(log) == [0, 2]


def test_a_segment_without_timestamps_rolls_by_the_clock(tmp_path: Path) -> None:
    log = new_log(tmp_path, {"segment.ms": "1000"})
    log.append_as_leader(batch(timestamp=-1), 0, NOW_MS)
    log.append_as_leader(batch(timestamp=-1), 0, NOW_MS + 1000)
    assert bases(log) == [0]
    log.append_as_leader(batch(timestamp=-1), 0, NOW_MS + 1001)
    assert bases(log) == [0, 2]


def test_jitter_is_drawn_for_each_segment_and_makes_it_roll_earlier(tmp_path: Path) -> None:
    log = new_log(tmp_path, {"segment.ms": "1000", "segment.jitter.ms": "500"})
    drawn = iter([400, 0])
    log._jitter = lambda limit: next(drawn)
    log.reconfigure(log.config)
    fill(log, 1)
    fill(log, 1, timestamp=NOW_MS + 601)
    fill(log, 1, timestamp=NOW_MS + 601 + 1000)
    assert bases(log) == [0, 1]


def test_a_segment_rolls_when_an_index_is_full(tmp_path: Path) -> None:
    # Room for three offset entries and two time entries, the second of which is kept for the end.
    log = new_log(tmp_path, {"segment.index.bytes": "24", "index.interval.bytes": "0"})
    for n in range(4):
        append(log, batch(timestamp=NOW_MS + n))
    assert bases(log) == [0, 2]
    assert log.segments[0].time_index.entries == 1


def test_an_index_too_small_for_any_entry_gives_every_append_a_fresh_segment(tmp_path: Path) -> None:
    log = new_log(tmp_path, {"segment.index.bytes": "8"})
    fill(log, 3)
    assert bases(log) == [0, 1, 2]


def test_a_segment_rolls_when_an_offset_does_not_fit_its_index(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.append_as_follower(batch(), 0, NOW_MS)
    log.append_as_follower(batch(base_offset=2**31 - 1), 0, NOW_MS)
    assert bases(log) == [0]
    log.append_as_follower(batch(base_offset=2**31 + 5), 0, NOW_MS)
    assert bases(log) == [0, 2**31 + 5]


def test_a_compacted_topic_rolls_early_enough_for_its_maximum_lag(tmp_path: Path) -> None:
    log = new_log(
        tmp_path, {"cleanup.policy": "compact", "max.compaction.lag.ms": "10", "segment.ms": "1000"}
    )
    fill(log, 1)
    fill(log, 1, timestamp=NOW_MS + 11)
    assert bases(log) == [0, 1]


def test_rolling_trims_the_indexes_adds_the_last_time_entry_and_takes_a_snapshot(tmp_path: Path) -> None:
    log = new_log(tmp_path, {"segment.index.bytes": "4096"})
    append(log, idempotent(0, timestamp=NOW_MS + 5))
    sizes = {kind: log.segments.active.path(kind) for kind in ("index", "timeindex")}
    assert [os.path.getsize(path) for path in sizes.values()] == [4096, 4092]
    log.roll()
    assert [os.path.getsize(path) for path in sizes.values()] == [0, 12]
    assert tuple(log.segments[0].time_index.last) == (NOW_MS + 5, 0)
    assert os.path.exists(log.segments.active.path("snapshot"))
    assert [os.path.getsize(log.segments.active.path(kind)) for kind in sizes] == [4096, 4092]


def test_rolling_moves_the_recovery_point_once_the_old_segment_is_flushed(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 3)
    assert log.recovery_point == 0
    log.roll()
    assert log.recovery_point == 3


def test_what_a_crash_left_under_the_new_segment_s_name_is_no_part_of_it(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 1)
    for kind in ("log", "index", "timeindex", "txnindex"):
        Path(log.directory, f"{1:020d}.{kind}").write_bytes(bytes(68))
    log.roll()
    assert (log.segments.active.size, log.segments.active.offset_index.entries) == (0, 0)
    assert log.segments.active.aborted() == []


def test_flush_messages_forces_records_to_disk(tmp_path: Path) -> None:
    log = new_log(tmp_path, {"flush.messages": "3"})
    fill(log, 2)
    assert log.recovery_point == 0
    fill(log, 1)
    assert log.recovery_point == 3


# -- indexes


def test_an_index_entry_maps_the_last_offset_to_where_its_append_starts(tmp_path: Path) -> None:
    log = new_log(tmp_path, {"index.interval.bytes": str(BATCH_BYTES)})
    for n in range(4):
        append(log, batch(timestamp=NOW_MS + (5 if n == 1 else 0)))
    index, times = log.segments.active.offset_index, log.segments.active.time_index
    # More than the interval must have been written since the last entry, so the third append has the first.
    assert (index.entries, tuple(index.last)) == (1, (2, 2 * BATCH_BYTES))
    assert (times.entries, tuple(times.last)) == (1, (NOW_MS + 5, 1))


def test_every_offset_is_found_whatever_the_index_holds(tmp_path: Path) -> None:
    for interval in ("0", "300", "1000000"):
        log = new_log(tmp_path / interval, {"index.interval.bytes": interval})
        fill(log, 60, records=2)
        log.roll()
        fill(log, 60, records=2)
        for offset in range(240):
            first = offset - offset % 2
            assert offsets_of(log.read(offset, BATCH_BYTES * 2, 240))[0] == (first, first + 1)


def test_the_batch_of_an_index_entry_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = new_log(tmp_path, {"index.interval.bytes": "0"})
    fill(log, 4, records=10)
    segment = log.segments.active
    places = [segment.batch_at(0)]
    while len(places) < 4:
        places.append(segment.batch_at(places[-1].position + places[-1].size))
    read_from = []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda file, size, at: (read_from.append(at), pread(file, size, at))[1])
    # The entry at or before offset 20 is that of offsets 10 to 19.
    assert segment.find(20) == places[2]
    assert read_from == [places[1].position, places[2].position]
    read_from.clear()
    assert segment.find(25) == places[2]
    assert read_from == [places[2].position]


def test_a_full_disk_under_an_index_is_an_error_not_the_end_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = new_log(tmp_path, {"index.interval.bytes": "0"})

    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        append(log, batch())


# -- reading


def test_a_read_starts_with_the_batch_that_holds_the_offset(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 3, records=4)
    assert offsets_of(log.read(6, 10_000, 12)) == [(4, 7), (8, 11)]


def test_a_read_ends_before_the_batch_that_holds_the_limit(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 3, records=4)
    assert offsets_of(log.read(0, 10_000, 8)) == [(0, 3), (4, 7)]
    assert offsets_of(log.read(0, 10_000, 10)) == [(0, 3), (4, 7)]
    assert log.read(5, 10_000, 5).file is None
    assert log.read(9, 10_000, 5).file is None


def test_a_read_is_bounded_by_bytes_and_gives_one_batch_at_least_where_asked(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 3)
    assert log.read(0, 1, 3).size == 0
    assert log.read(0, 1, 3, at_least_one=True).size == BATCH_BYTES
    assert log.read(0, 0, 3, at_least_one=True).size == BATCH_BYTES
    assert log.read(0, 2 * BATCH_BYTES + 7, 3).size == 2 * BATCH_BYTES + 7


def test_a_read_stays_in_one_segment_and_goes_on_in_the_next(tmp_path: Path) -> None:
    log = new_log(tmp_path, {"segment.bytes": str(2 * BATCH_BYTES)})
    fill(log, 5)
    read = log.read(1, 10_000, 5)
    assert (offsets_of(read), read.segment_base, read.position) == ([(1, 1)], 0, BATCH_BYTES)
    assert offsets_of(log.read(2, 10_000, 5)) == [(2, 2), (3, 3)]


def test_a_read_in_a_gap_that_compaction_left_begins_behind_it(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.append_as_follower(batch(2), 0, NOW_MS)
    log.roll()
    log.append_as_follower(batch(base_offset=50), 0, NOW_MS)
    assert offsets_of(log.read(2, 10_000, 51)) == [(50, 50)]
    assert log.read(2, 10_000, 40).size == 0
    assert log.log_end_offset == 51


def test_offsets_outside_of_the_log_are_out_of_range(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 3)
    log.advance_log_start(1)
    for offset in (-1, 0, 4):
        with pytest.raises(OffsetOutOfRangeError):
            log.read(offset, 100, 3)
    assert log.read(3, 100, 3).size == 0
    read = log.read(1, 100, 3)
    assert (read.log_start_offset, read.log_end_offset, read.high_watermark) == (1, 3, 3)


def test_bytes_of_a_deleted_segment_can_still_be_sent(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 2)
    log.roll()
    read = log.read(0, 10_000, 2)
    log.delete_oldest(1)
    assert offsets_of(read) == [(0, 0), (1, 1)]
    with pytest.raises(OffsetOutOfRangeError):
        log.read(0, 100, 2)


# -- followers


def test_a_follower_stores_batches_as_they_are(tmp_path: Path) -> None:
    leader, follower = new_log(tmp_path / "a"), new_log(tmp_path / "b")
    append(leader, transactional(0, 3), epoch=3)
    append(leader, marker(commit=False), epoch=4, origin=Origin.COORDINATOR)
    append(leader, batch(2), epoch=4)
    data = bytes_of(leader.read(0, 10_000, 6))
    info = follower.append_as_follower(memoryview(data + data[:30]), 4, NOW_MS)
    assert (info.first_offset, info.last_offset) == (0, 5)
    assert bytes_of(follower.read(0, 10_000, 6)) == data
    assert follower.epochs.entries == leader.epochs.entries
    assert follower.producers.entries() == leader.producers.entries()
    assert follower.segments.active.aborted() == leader.segments.active.aborted()


def test_an_epoch_begins_where_the_records_before_end_if_its_first_ones_were_cleaned(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    sent = (
        batch(2, leader_epoch=1),
        batch(base_offset=8, leader_epoch=4),
        batch(base_offset=20, leader_epoch=6),
    )
    log.append_as_follower(memoryview(b"".join(map(bytes, sent[:1]))), 6, NOW_MS)
    log.append_as_follower(memoryview(b"".join(map(bytes, sent[1:]))), 6, NOW_MS)
    assert [(each.epoch, each.start_offset) for each in log.epochs.entries] == [(1, 0), (4, 2), (6, 9)]
    # A replica with other records at 2 and above truncates them.
    assert log.end_of_epoch(1).end_offset == 2


def test_a_follower_takes_nothing_from_a_later_epoch_than_it_asked_in(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    later = batch(base_offset=2, leader_epoch=4)
    later[-1] ^= 1  # not even looked at
    data = bytes(batch(2, leader_epoch=3)) + bytes(later) + bytes(batch(base_offset=3, leader_epoch=3))
    info = log.append_as_follower(memoryview(data), 3, NOW_MS)
    assert (info.first_offset, info.last_offset, log.log_end_offset) == (0, 1, 2)
    assert log.append_as_follower(batch(base_offset=2, leader_epoch=4), 3, NOW_MS).last_offset == -1
    assert [entry.epoch for entry in log.epochs.entries] == [3]


def test_batches_that_a_follower_fetched_together_have_index_entries_of_their_own(tmp_path: Path) -> None:
    """As they have after a recovery."""
    log = new_log(tmp_path, SMALL_INDEXES)
    offsets = range(0, 40, 2)
    data = b"".join(
        bytes(batch(2, base_offset=at, timestamp=NOW_MS + at % 7, leader_epoch=0)) for at in offsets
    )
    log.append_as_follower(memoryview(data), 0, NOW_MS)
    log.close()
    written = files(log.directory)
    again, _ = reload(log, tmp_path)
    again.close()
    assert files(log.directory) == written
    assert len(written["00000000000000000000.index"]) == 8 * 9


def test_a_follower_refuses_what_does_not_continue_its_log(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.append_as_follower(batch(3), 0, NOW_MS)
    with pytest.raises(UnexpectedOffsetError) as refused:
        log.append_as_follower(batch(4, base_offset=1), 0, NOW_MS)
    assert (refused.value.first_offset, refused.value.last_offset) == (1, 4)
    both = memoryview(bytes(batch(2, base_offset=9)) + bytes(batch(2, base_offset=7)))
    with pytest.raises(UnexpectedOffsetError):
        log.append_as_follower(both, 0, NOW_MS)
    damaged = batch(base_offset=3)
    damaged[-1] ^= 1
    with pytest.raises(AppendError, match="checksum"):
        log.append_as_follower(damaged, 0, NOW_MS)
    assert log.log_end_offset == 3


# -- truncating


@pytest.mark.parametrize("offset", range(13))
def test_truncation_drops_every_batch_that_reaches_the_offset(tmp_path: Path, offset: int) -> None:
    log = new_log(tmp_path, {"segment.bytes": str(2 * len(batch(2))), "index.interval.bytes": "0"})
    for n in range(6):
        append(log, idempotent(2 * n, 2, timestamp=NOW_MS + n), epoch=n)
    log.set_high_watermark(12)
    assert log.truncate_to(offset) == (offset < 12)
    end = min(offset, 12)
    kept = [(first, first + 1) for first in range(0, end - 1, 2)]
    assert [(b.baseOffset, b.baseOffset + b.lastOffsetDelta) for b in stored(log)] == kept
    assert (log.log_end_offset, log.high_watermark, log.log_start_offset) == (end, end, 0)
    assert log.recovery_point <= end
    assert [entry.epoch for entry in log.epochs.entries] == [n for n in range(6) if 2 * n < end]
    assert bases(log) == [base for base in (0, 4, 8) if base <= offset]
    fill(log, 2)
    assert log.log_end_offset == end + 2
    for base in range(0, end - 1, 2):
        assert offsets_of(log.read(base, 10_000, end + 2))[0] == (base, base + 1)


def test_truncation_forgets_what_dropped_batches_said_of_producers(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, transactional(0))
    append(log, marker(commit=False), origin=Origin.COORDINATOR)
    log.roll()
    append(log, idempotent(1))
    log.close()
    log, _ = reload(log, tmp_path, clean=True)
    log.truncate_to(1)
    assert log.producers.first_unstable_offset == 0
    assert log.segments.active.aborted() == []
    assert append(log, transactional(1)).last_offset == 1
    assert not Path(log.directory, f"{3:020d}.snapshot").exists()


def test_truncation_at_the_end_forgets_an_epoch_that_wrote_nothing(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 1)
    log.assign_epoch(5, 1)
    assert not log.truncate_to(3)
    assert [entry.epoch for entry in log.epochs.entries] == [0]


def test_truncation_below_the_first_segment_starts_the_log_anew(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 4)
    log.roll()
    log.delete_oldest(1)
    assert log.truncate_to(2)
    assert (log.log_start_offset, log.log_end_offset, bases(log)) == (2, 2, [2])


def test_a_log_can_begin_anew_anywhere(tmp_path: Path) -> None:
    later = Later()
    log = new_log(tmp_path, background=later)
    append(log, idempotent(0), epoch=3)
    log.restart_at(100)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (100, 100, 100)
    assert (log.epochs.entries, len(log.producers), bases(log)) == ((), 0, [100])
    assert append(log, batch(), epoch=4).first_offset == 100
    assert all(path.endswith(".deleted") for path in later.deletions)
    log.restart_at(100, log_start_offset=90)
    assert (log.log_start_offset, log.log_end_offset) == (90, 100)


# -- log start offset


def test_the_log_start_may_lie_inside_a_batch(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 2, records=4)
    assert log.advance_log_start(2)
    assert not log.advance_log_start(1)
    assert offsets_of(log.read(2, 10_000, 8)) == [(0, 3), (4, 7)]
    assert [tuple(entry) for entry in log.epochs.entries] == [(0, 2)]
    # What lies below it need not be recovered any more.
    assert log.recovery_point == 2


def test_the_log_start_may_not_pass_the_high_watermark(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, batch(4))
    log.set_high_watermark(2)
    with pytest.raises(OffsetOutOfRangeError):
        log.advance_log_start(3)


def test_deleting_all_segments_rolls_first_and_keeps_the_end(tmp_path: Path) -> None:
    later = Later()
    log = new_log(tmp_path, background=later)
    fill(log, 3)
    log.delete_oldest(1)
    assert (bases(log), log.log_start_offset, log.log_end_offset) == ([3], 3, 3)
    assert sorted(os.path.basename(path) for path in later.deletions) == [
        f"{0:020d}.{kind}.deleted" for kind in ("index", "log", "timeindex")
    ]
    log.delete_oldest(1)
    assert bases(log) == [3], "the last, empty segment stays"


def test_a_closed_log_is_not_written_to(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.close()
    for forbidden in (lambda: append(log, batch()), lambda: log.truncate_to(0), lambda: log.read(0, 1, 1)):
        with pytest.raises(StorageError):
            forbidden()


# -- leader epochs


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [(-1, (-1, -1)), (0, (0, 10)), (2, (2, 20)), (3, (2, 20)), (5, (5, 30)), (6, (-1, -1))],
)
def test_the_end_of_an_epoch_is_where_the_next_one_starts(
    tmp_path: Path, epoch: int, answer: tuple[int, int]
) -> None:
    log = new_log(tmp_path)
    assert tuple(log.end_of_epoch(epoch)) == (-1, -1)
    log.append_as_follower(batch(30), 0, NOW_MS)
    log.epochs.clear()
    log.assign_epoch(2, 10)
    log.assign_epoch(5, 20)
    assert tuple(log.end_of_epoch(epoch)) == answer


def test_epochs_are_on_disk_before_anything_is_written_under_them(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, batch(), epoch=4)
    assert Path(log.directory, "leader-epoch-checkpoint").read_text() == "0\n1\n4 0\n"
    assert (log.epochs.epoch_of(0), log.epochs.latest) == (4, 4)


def test_a_later_epoch_that_starts_earlier_replaces_those_after_it(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for epoch, start in ((1, 0), (2, 10), (3, 20), (4, 15)):
        log.assign_epoch(epoch, start)
    assert [tuple(entry) for entry in log.epochs.entries] == [(1, 0), (2, 10), (4, 15)]
    log.assign_epoch(4, 12)
    assert [tuple(entry) for entry in log.epochs.entries] == [(1, 0), (2, 10), (4, 12)]


# -- all together


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["append", "roll", "truncate", "start", "reload"]), st.integers(0, 9)),
        max_size=25,
    )
)
def test_whatever_happens_the_log_holds_what_was_appended_and_not_cut(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    root = tmp_path_factory.mktemp("log")
    log = new_log(root, {"segment.bytes": "400", "index.interval.bytes": "90", "segment.index.bytes": "120"})
    values: list[bytes] = []
    for action, n in steps:
        if action == "append":
            sent = [b"%d" % (len(values) + i) for i in range(n % 3 + 1)]
            append(log, batch(sent))
            values += sent
            log.set_high_watermark(log.log_end_offset)
        elif action == "roll" and log.segments.active.size:
            log.roll()
        elif action == "truncate":
            cut = max(log.log_start_offset, len(values) - n)
            if log.truncate_to(cut):
                log.set_high_watermark(cut)
                del values[cut:]
                kept = sum(1 for _ in live_values(log))
                # A batch that reaches over the cut goes whole, and the offsets it had are given out anew.
                values[kept_until(log) :] = []
                values += [b"gone"] * (log.log_end_offset - len(values))
                assert kept <= len(values)
        elif action == "start":
            log.advance_log_start(min(log.log_end_offset, log.log_start_offset + n))
            log.delete_oldest(sum(1 for base in bases(log)[1:] if base <= log.log_start_offset))
        elif action == "reload":
            clean = bool(n % 2)
            (log.close if clean else log.release)()
            start, end = log.log_start_offset, log.log_end_offset
            log, _ = reload(log, root, clean=clean, log_start_offset=start)
            log.set_high_watermark(log.log_end_offset)
            if log.log_end_offset < end:  # a truncated tail has no record to say where the log ended
                del values[log.log_end_offset :]
        assert all(values[offset] == value for offset, value in live_values(log))


def live_values(log: PartitionLog) -> list[tuple[int, bytes]]:
    from klog.formats import record_batch

    return [
        (b.baseOffset + record.offsetDelta, record.value)
        for b in stored(log)
        for record in record_batch.records(b)
        if b.baseOffset + record.offsetDelta >= log.log_start_offset
    ]


def kept_until(log: PartitionLog) -> int:
    return max((offset + 1 for offset, _ in live_values(log)), default=log.log_start_offset)
