"""How far a fetcher is with one partition."""

from __future__ import annotations

from enum import Enum
from typing import Final

from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode
from klog.replication.fetching.values import FetchStart
from klog.replication.partition import Partition

UNKNOWN_LAG: Final = -1


class Mode(Enum):
    """What has to be done next for a partition."""

    FETCHING = "fetch records"
    TRUNCATING = "find out where the logs diverge"
    LATEST = "ask where the leader's log ends"
    EARLIEST = "ask where the leader's log starts"


class PartitionFetch:
    """The state of one partition; only its fetcher changes it.

    `offset` is the next one to fetch, `last_epoch` the epoch before it (-1: none known). `lag` is the number
    of records below the leader's high watermark that this follower does not have, -1 before the first answer.
    `error` is the leader's last answer. `leader_end` is where the leader's log ends, in mode EARLIEST.
    """

    def __init__(self, key: TopicPartition, partition: Partition, start: FetchStart, mode: Mode) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = start.leader_epoch
        self.offset = start.offset
        self.last_epoch = partition.log.epochs.latest
        self.lag = UNKNOWN_LAG
        self.mode = mode
        self.error = ErrorCode.NONE
        self.leader_end = -1

    def __repr__(self) -> str:
        return f"{self.key} at {self.offset} in epoch {self.leader_epoch}: {self.mode.name}"

    def moved(self, offset: int, last_epoch: int) -> None:
        """Fetch from another offset from now on."""
        self.offset = offset
        self.last_epoch = last_epoch
        self.mode = Mode.FETCHING
