"""Lets DeleteRecords requests wait until every live follower has moved its log start offset, too.

Rules: Kafka's `DelayedDeleteRecords`. A partition is done when its low watermark has reached the offset. It
fails if leadership is lost. What is still pending at the timeout is answered REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from dataclasses import dataclass

from klog.protocol.error_codes import ErrorCode
from klog.replication.partition import Partition
from klog.replication.replica_waits import PartitionWait, ReplicaOperation

INVALID_LOW_WATERMARK = -1


@dataclass(slots=True)
class Deletion(PartitionWait):
    """One partition whose low watermark must reach the required offset.

    `low_watermark` is what the partition is answered if the wait ends now.
    """

    low_watermark: int = INVALID_LOW_WATERMARK

    def end(self, error: ErrorCode) -> None:
        """Wait no longer, and answer this; an error is answered without a low watermark."""
        PartitionWait.end(self, error)  # a dataclass with slots has no super()
        if error:
            self.low_watermark = INVALID_LOW_WATERMARK


class DelayedDeleteRecords(ReplicaOperation[Deletion]):
    """A DeleteRecords request that waits for followers."""

    __slots__ = ()

    def check(self, partition: Partition, wait: Deletion) -> None:
        """Done when the low watermark has reached the offset."""
        low_watermark = partition.low_watermark()
        if low_watermark >= wait.required_offset:
            wait.low_watermark = low_watermark
            wait.end(ErrorCode.NONE)
