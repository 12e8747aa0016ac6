"""The rules of Kafka's leader epoch cache."""

from __future__ import annotations

import pytest

from klog.formats.checkpoints import EpochEntry
from klog.storage.repair.leader_epochs import LeaderEpochs


def epochs(*pairs: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs(EpochEntry(*pair) for pair in pairs)


def pairs_of(cache: LeaderEpochs) -> list[tuple[int, int]]:
    return [tuple(entry) for entry in cache.entries]


@pytest.mark.parametrize(
    ("added", "left"),
    [
        ((3, 20), [(1, 0), (2, 10), (3, 20)]),
        ((2, 15), [(1, 0), (2, 10)]),  # known already
        ((2, 5), [(1, 0), (2, 5)]),  # began earlier than known
        ((4, 5), [(1, 0), (4, 5)]),  # later entries cannot be correct any more
        ((1, 12), [(1, 0), (1, 12)][1:]),
    ],
)
def test_entries_that_would_not_ascend_are_removed(
    added: tuple[int, int], left: list[tuple[int, int]]
) -> None:
    cache = epochs((1, 0), (2, 10))
    cache.assign(EpochEntry(*added))
    assert pairs_of(cache) == left


def test_a_batch_adds_only_an_epoch_above_the_latest() -> None:
    cache = epochs((5, 0))
    cache.assign_newer(EpochEntry(4, 10))
    cache.assign_newer(EpochEntry(6, 20))
    assert pairs_of(cache) == [(5, 0), (6, 20)]


def test_truncating_the_end_removes_epochs_from_there_on() -> None:
    cache = epochs((1, 0), (2, 10), (3, 20))
    cache.truncate_from_end(10)
    assert pairs_of(cache) == [(1, 0)]


def test_truncating_the_start_keeps_the_epoch_that_contains_it() -> None:
    cache = epochs((1, 0), (2, 10), (3, 20))
    cache.truncate_from_start(15)
    assert pairs_of(cache) == [(2, 15), (3, 20)]
