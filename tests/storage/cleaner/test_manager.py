"""The states of logs in the cleaner."""

from __future__ import annotations

import pytest

from klog.formats.errors import UsageError
from klog.formats.names import TopicPartition
from klog.storage.cleaner.manager import Activity, CleanerManager
from klog.storage.cleaner.selection import Reason
from tests.storage.cleaner.test_selection import FOUR, NOW_MS, log

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


def test_the_chosen_log_is_in_progress_until_it_is_done() -> None:
    manager = CleanerManager()
    grab = manager.grab([log(*FOUR)], {}, NOW_MS)
    assert grab.dirty is not None
    assert grab.max_dirty_ratio == 1.0
    assert manager.reason(ONE, "dir") is Reason.BUSY
    assert manager.done(ONE)
    assert manager.reason(ONE, "dir") is None


def test_an_invalid_checkpoint_is_reported_for_rewriting() -> None:
    assert CleanerManager().grab([log(*FOUR)], {ONE: 1000}, NOW_MS).resets == {ONE: 0}


def test_an_aborted_cleaning_ends_paused() -> None:
    manager = CleanerManager({ONE: Activity.IN_PROGRESS})
    manager.abort_and_pause(ONE)
    assert manager.aborted(ONE)
    assert not manager.paused(ONE)
    assert not manager.done(ONE)
    assert manager.paused(ONE)
    manager.resume([ONE])
    assert manager.states == {}


def test_each_pause_is_undone_by_one_resume() -> None:
    manager = CleanerManager()
    manager.abort_and_pause(ONE)
    manager.abort_and_pause(ONE)
    manager.resume([ONE])
    assert manager.paused(ONE)
    manager.resume([ONE])
    assert not manager.paused(ONE)


def test_invalid_transitions_are_refused() -> None:
    manager = CleanerManager({ONE: Activity.ABORTED})
    with pytest.raises(UsageError):
        manager.abort_and_pause(ONE)
    with pytest.raises(UsageError):
        manager.resume([ONE])
    with pytest.raises(UsageError):
        manager.resume([TWO])
    with pytest.raises(UsageError):
        manager.done(TWO)


def test_only_idle_logs_are_paused_for_retention() -> None:
    manager = CleanerManager({ONE: Activity.IN_PROGRESS})
    assert manager.pause_if_idle([ONE, TWO]) == [TWO]


def test_an_uncleanable_log_stays_so_after_a_move_and_until_it_is_deleted() -> None:
    manager = CleanerManager()
    manager.mark_uncleanable(ONE, "a")
    assert manager.reason(ONE, "a") is Reason.UNCLEANABLE
    manager.move(ONE, "a", "b")
    assert manager.is_free(ONE, "a")
    assert not manager.is_free(ONE, "b")
    manager.keep_uncleanable([TWO])
    assert manager.uncleanable == {}
