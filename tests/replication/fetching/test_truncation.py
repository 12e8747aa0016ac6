"""Where a follower truncates, for every answer that a leader can give about the end of an epoch."""

from __future__ import annotations

import pytest

from klog.formats.checkpoints import EpochEntry
from klog.formats.epochs import EpochEnd
from klog.replication.fetching.truncation import Truncation, truncation
from klog.storage.log.epoch_file import EpochFile
from klog.storage.repair.leader_epochs import LeaderEpochs

FETCH_OFFSET = 40


def own(tmp_path, *entries: tuple[int, int], end: int):
    epochs = EpochFile(str(tmp_path), LeaderEpochs(EpochEntry(*each) for each in entries))
    return lambda epoch: epochs.end_of(epoch, end)


@pytest.mark.parametrize(
    ("leader", "entries", "end", "expected"),
    [
        pytest.param(EpochEnd(), ((1, 0),), 50, (40, True), id="the leader knows no end"),
        pytest.param(EpochEnd(), ((1, 0),), 30, (30, True), id="no end, and the log is shorter"),
        pytest.param(EpochEnd(-1, 45), ((1, 0),), 50, (45, True), id="an end without an epoch"),
        pytest.param(EpochEnd(-1, 60), ((1, 0),), 50, (50, True), id="no epoch, the leader has more"),
        pytest.param(EpochEnd(1, 20), ((1, 0), (2, 25)), 50, (20, True), id="the leader's end is lower"),
        pytest.param(EpochEnd(1, 30), ((1, 0), (2, 25)), 50, (25, True), id="the own end is lower"),
        pytest.param(EpochEnd(2, 90), ((1, 0), (2, 25)), 50, (50, True), id="the log ends before both"),
        pytest.param(EpochEnd(2, 30), ((1, 0), (3, 25)), 50, (25, False), id="only a lower epoch is known"),
        pytest.param(EpochEnd(2, 30), ((3, 25), (4, 35)), 50, (25, True), id="only later epochs are known"),
        pytest.param(EpochEnd(2, 20), ((3, 25), (4, 35)), 50, (20, True), id="later epochs, lower end"),
        pytest.param(EpochEnd(2, 30), (), 50, (30, True), id="no epochs here"),
        pytest.param(EpochEnd(2, 60), (), 50, (50, True), id="no epochs here, and a shorter log"),
    ],
)
def test_a_truncation_is_decided_by_the_leader_s_and_the_own_epochs(
    tmp_path, leader, entries, end, expected
) -> None:
    decided = truncation(leader, own(tmp_path, *entries, end=end), end, FETCH_OFFSET)
    assert decided == Truncation(*expected)
