"""Defects put into fetches, the paths for usual frames, cleaning and retention: the simulation finds each."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

from klog.formats.constants import CONTROL_BIT
from klog.replication.partition import Partition
from klog.replication.partition_state import ANY_EPOCH, PartitionState
from klog.replication.reading import DelayedFetch
from klog.server.handlers.data.produce_waits import ProduceWaits
from klog.server.handlers.groups.commit_runs import CommitRuns
from klog.storage.cleaner import selection
from klog.storage.cleaner.filtering import BatchFilter
from klog.storage.cleaner.log_cleaner import LogCleaner
from klog.storage.cleaner.open_log import OpenLog
from klog.storage.log import retention
from klog.storage.log.verification import UNCHECKED

_APPEND_RUN = Partition.append_run
_TOO_OLD = retention._too_old
_LEADING = retention._leading
_IS_SPENT = BatchFilter.is_spent
# The last state in which a broker has led a partition and has written a run.
_LED: WeakKeyDictionary[Partition, PartitionState] = WeakKeyDictionary()


def _answer_at_once(
    waits: ProduceWaits,
    connection: Any,
    key: Any,
    required_offset: int,
    timeout_ms: int,
    version: int,
    frames: int,
    answers: bytes,
    *_numbers: int,
) -> None:
    connection.outbound.add(answers)


def runs_answered_early() -> Any:
    """A run of Produce frames with acks=all is answered before the high watermark has passed its records."""
    return patch.object(ProduceWaits, "wait", _answer_at_once)


def _answer_commits_at_once(_runs: CommitRuns, _wait: Any, run: Any, connection: Any, _start_ns: int) -> None:
    connection.outbound.add(run.answers())


def commit_runs_answered_early() -> Any:
    """A run of OffsetCommit frames is answered before the high watermark has passed its records."""
    return patch.object(CommitRuns, "_wait", _answer_commits_at_once)


def _append_in_the_old_epoch(
    partition: Partition,
    run: Any,
    now_ms: int,
    leader_epoch: int = ANY_EPOCH,
    may_wait: bool = False,
    guard: object = UNCHECKED,
) -> tuple[int, int, bool] | None:
    state, led = partition.state, _LED.get(partition)
    if state.is_leader:
        _LED[partition] = state
    if state.is_leader or led is None:
        return _APPEND_RUN(partition, run, now_ms, leader_epoch, may_wait, guard)
    log = partition.log
    with log.lock:
        first_offset = log.log_end_offset
        if not log.append_run(run, led.leader_epoch, now_ms, guard):
            return None
        return first_offset, log.log_start_offset, False


def runs_appended_in_an_old_epoch() -> Any:
    """A broker that was replaced as leader goes on to append runs, in its old leader epoch."""
    return patch.object(Partition, "append_run", _append_in_the_old_epoch)


def _read_to_the_end(
    partition: Partition, offset: int, max_bytes: int, current_leader_epoch: int, committed: bool
) -> Any:
    log, state = partition.log, partition.state
    with log.lock:
        if not state.is_leader or state.epoch_error(current_leader_epoch):
            return None
        if not log.log_start_offset <= offset < log.log_end_offset:
            return None
        read = log.read_locked(offset, max_bytes, log.log_end_offset, True, committed, False)
        return None if read.file is None else read


def runs_read_to_the_end() -> Any:
    """A usual Fetch frame of a consumer is answered with records above the high watermark."""
    return patch.object(Partition, "read_for_consumer", _read_to_the_end)


def _complete_when_read(fetch: DelayedFetch) -> bool:
    if fetch.completed:
        return False
    soon, (read,) = fetch._read_again.func, fetch._read_again.args  # type: ignore[attr-defined]

    def complete() -> None:
        if not fetch.completed:
            fetch._completed = True
            if fetch.on_left is not None:
                fetch.on_left(fetch)
        read()

    soon(complete)
    return fetch.completed


def fetches_completed_when_read() -> Any:
    """A fetch that waits is complete only when it is read, later. Until then events complete it again."""
    return patch.object(DelayedFetch, "force_complete", _complete_when_read)


def _only_the_active_segment(log: Any, *_: object) -> Any:
    return log.active.base_offset, selection.Limit.ACTIVE_SEGMENT


def cleaned_above_the_last_stable_offset() -> Any:
    """The cleaner takes records for the latest of their keys that are not committed, or not replicated."""
    return patch.object(selection, "_first_uncleanable", _only_the_active_segment)


def _markers_are_spent(owner: BatchFilter, table: Any, row: int, control_type: Any) -> bool:
    return _IS_SPENT(owner, table, row, control_type) or bool(table.attributes[row] & CONTROL_BIT)


def markers_cleaned_early() -> Any:
    """The cleaner takes each marker for one whose transaction has no records left, and waits for no time."""
    return patch.multiple(
        BatchFilter,
        is_spent=_markers_are_spent,
        is_past_horizon=lambda *_: True,
        is_last_of_producer=lambda *_: False,
    )


def records_deleted_early() -> Any:
    """Retention by age deletes records that are half as old."""
    return patch.object(
        retention,
        "_too_old",
        lambda extents, age_ms, *others: _TOO_OLD(extents, age_ms // 2, *others) if age_ms >= 0 else 0,
    )


def active_segments_retained() -> Any:
    """Retention never deletes the last segment, so the records of a quiet log stay."""
    return patch.object(retention, "_leading", lambda extents, *others: _LEADING(extents[:-1], *others))


def segments_below_the_start_retained() -> Any:
    """Segments stay that end below the log start offset: DeleteRecords frees no space."""
    return patch.object(retention, "_below_start", lambda *_: 0)


def sizes_retained() -> Any:
    """Nothing is deleted because of retention.bytes."""
    return patch.object(retention, "_above_size", lambda *_: 0)


def truncated_while_cleaned() -> Any:
    """What truncates a log does not stop its cleaning, whose segments are then swapped in all the same."""
    stack = ExitStack()
    stack.enter_context(patch.object(OpenLog, "was_truncated", False))
    stack.enter_context(
        patch.multiple(
            LogCleaner,
            abort_and_pause=lambda *_: None,
            resume=lambda *_: None,
            _check_still_wanted=lambda *_: None,
        )
    )
    return stack


FAST_PATH_MUTATIONS: dict[str, Callable[[], Any]] = {
    "a run answered before the high watermark": runs_answered_early,
    "a run of offset commits answered before the high watermark": commit_runs_answered_early,
    "a run appended in an old leader epoch": runs_appended_in_an_old_epoch,
    "a usual fetch answered above the high watermark": runs_read_to_the_end,
    "a fetch completed twice before it is read": fetches_completed_when_read,
    "records deleted before their age": records_deleted_early,
    "old records of a quiet log kept": active_segments_retained,
    "segments below the log start offset kept": segments_below_the_start_retained,
    "a log that exceeds its size kept": sizes_retained,
    "a log truncated while it is cleaned": truncated_while_cleaned,
    "a cleaning above the last stable offset": cleaned_above_the_last_stable_offset,
    "markers that cleaning removes early": markers_cleaned_early,
}
