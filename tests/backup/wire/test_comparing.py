"""How far the log of a backup and that of a leader are the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from klog.backup.model import PartitionState, Piece, SegmentSeen
from klog.backup.wire.comparing import kept_of
from klog.backup.wire.reader import FetchedBatches, PartitionReader
from klog.client.cluster import PartitionLeader
from klog.client.epochs import UNKNOWN, EpochEnd
from klog.client.errors import RefusedError
from klog.formats.checkpoints import EpochEntry
from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import UnsupportedApiError
from klog.protocol.fetch_response import PartitionFetched
from tests.export.logs import batch

Log = Sequence[tuple[int, int, int]]
"""Batches: leader epoch, first offset, end offset."""


def state_of(log: Log) -> PartitionState:
    """A state with a piece for each batch."""
    pieces = tuple(Piece(0, first, end - first, first, end, -1, "", "", 0) for _, first, end in log)
    epochs = {epoch: EpochEntry(epoch, first) for epoch, first, _ in reversed(log) if epoch >= 0}
    _, first, end = log[-1]
    seen = SegmentSeen(0, (), 0, True, 0, batch(first, end - first)[:61].hex())
    return PartitionState(
        TopicPartition("orders", 0),
        None,
        pieces,
        0,
        end,
        end,
        tuple(sorted(epochs.values())),
        None,
        "",
        None,
        0,
        seen=(seen,),
    )


class Leader:
    """A leader with a log, and a later epoch. `failure` is what it answers when it is asked for epochs."""

    def __init__(self, log: Log, failure: Exception | None = None, leader_epoch: int = 9) -> None:
        self.log = log
        self.failure = failure
        self.leader = PartitionLeader(1, leader_epoch)
        self.asked = 0

    def epoch_end(self, epoch: int) -> EpochEnd:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        below = [each for each in self.log if each[0] <= epoch]
        if not below:
            return EpochEnd(epoch, self.log[0][1])
        return EpochEnd(below[-1][0], below[-1][2])

    def fetch(self, offset: int) -> FetchedBatches:
        data = b"".join(batch(first, end - first) for _, first, end in self.log if end > offset)
        return FetchedBatches(PartitionFetched(0, 0, self.log[-1][2], records=memoryview(data)))


def kept_end(backup: Log, leader: Leader, log_start_offset: int = 0) -> int | None:
    kept = kept_of(state_of(backup), cast(PartitionReader, leader), log_start_offset, leader.log[-1][2])
    return None if kept is None else kept.end_offset


@pytest.mark.parametrize(
    ("backup", "leader", "end"),
    [
        ([(0, 0, 10)], [(0, 0, 25)], 10),  # it has grown
        ([(0, 0, 10)], [(0, 0, 10), (3, 10, 20)], 10),
        ([(0, 0, 10), (0, 10, 20)], [(0, 0, 10), (1, 10, 40)], 10),  # lost 10 to 20 and wrote others
        ([(0, 0, 10), (2, 10, 20)], [(0, 0, 10), (1, 10, 40)], 10),  # does not know epoch 2
        ([(0, 0, 10), (2, 10, 20), (2, 20, 30)], [(0, 0, 10), (2, 10, 20), (3, 20, 50)], 20),
        ([(1, 0, 10), (3, 10, 20)], [(0, 0, 5), (2, 5, 40)], None),  # nothing in common
        ([(0, 0, 10), (1, 10, 20)], [(0, 0, 4), (2, 4, 40)], None),  # the first piece is not whole
    ],
)
def test_epochs_say_where_logs_part(backup: Log, leader: Log, end: int | None) -> None:
    assert kept_end(backup, Leader(leader)) == end


def test_what_lies_below_the_log_start_is_not_kept() -> None:
    assert kept_end([(0, 0, 10)], Leader([(0, 10, 25)]), log_start_offset=10) is None


def test_epochs_whose_records_were_deleted_do_not_matter() -> None:
    backup = [(0, 0, 10), (1, 10, 20)]
    assert kept_end(backup, Leader([(1, 15, 20), (2, 20, 30)]), log_start_offset=15) == 20


def test_a_leader_whose_own_epoch_the_last_batch_has_is_not_asked() -> None:
    backup = [(0, 0, 10), (2, 10, 20)]
    leader = Leader([*backup, (2, 20, 30)], leader_epoch=2)
    assert kept_end(backup, leader) == 20
    assert leader.asked == 0
    elected = Leader([(0, 0, 10), (2, 10, 15), (3, 15, 30)], leader_epoch=3)
    assert kept_end(backup, elected) == 10
    assert elected.asked


NO_EPOCHS = [
    UnsupportedApiError("an old broker"),
    RefusedError("epochs", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
]


@pytest.mark.parametrize("failure", NO_EPOCHS, ids=str)
def test_without_epochs_the_last_batch_is_looked_for(failure: Exception) -> None:
    backup = [(0, 0, 10), (0, 10, 20)]
    assert kept_end(backup, Leader([(0, 0, 10), (0, 10, 20), (0, 20, 30)], failure)) == 20
    assert kept_end(backup, Leader([(0, 0, 10), (0, 10, 25)], failure)) is None
    assert kept_end(backup, Leader([(0, 0, 12)], failure)) == 10


def test_formats_without_epochs_are_compared_by_their_last_batch() -> None:
    backup = [(UNKNOWN, 0, 10)]
    assert kept_end(backup, Leader([(UNKNOWN, 0, 10), (UNKNOWN, 10, 20)])) == 10
    assert kept_end(backup, Leader([(UNKNOWN, 0, 11)])) is None
