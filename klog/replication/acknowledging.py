"""Lets Produce requests wait until all in-sync replicas have their records (acks=all).

Rules: Kafka's `DelayedProduce`. A partition is acknowledged when its high watermark has passed the records.
If too few replicas are in sync by then, the answer is NOT_ENOUGH_REPLICAS_AFTER_APPEND. It fails if
leadership is lost. What is still pending at the timeout is answered REQUEST_TIMED_OUT, and the records stay.
"""

from __future__ import annotations

from klog.protocol.error_codes import ErrorCode
from klog.replication.partition import Partition
from klog.replication.replica_waits import PartitionWait, ReplicaOperation


class DelayedProduce(ReplicaOperation[PartitionWait]):
    """A produce request that waits for replication: the high watermark must reach the required offset."""

    __slots__ = ()

    def check(self, partition: Partition, wait: PartitionWait) -> None:
        """Done when the high watermark has passed the records."""
        if partition.log.high_watermark >= wait.required_offset:
            enough = len(partition.state.isr.maximal) >= partition.min_in_sync_replicas
            wait.end(ErrorCode.NONE if enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
