"""How far a partition is replicated: its high watermark, and its low watermark.

Rules: Kafka's `Partition.maybeIncrementLeaderHW` and `lowWatermarkIfLeader`. Both are pure functions.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from klog.replication.follower import FollowerState, is_caught_up
from klog.replication.isr import IsrState


def next_high_watermark(
    high_watermark: int,
    leader_end_offset: int,
    isr: IsrState,
    followers: Mapping[int, FollowerState],
    *,
    min_in_sync_replicas: int,
    alive: Container[int],
    now_ms: int,
    max_lag_ms: int,
) -> int:
    """The high watermark of a leader: what every replica that counts has, and never less than before.

    Members of the maximal ISR count. So does a live follower that is caught up: it is about to join the ISR,
    and would never reach a high watermark that runs ahead of it. While the ISR is too small for acks=all the
    high watermark stays where it is.
    """
    if len(isr.committed) < min_in_sync_replicas:
        return high_watermark
    lowest = leader_end_offset
    for replica_id, follower in followers.items():
        if follower.end_offset < lowest and (
            replica_id in isr.maximal
            or (replica_id in alive and is_caught_up(follower, leader_end_offset, now_ms, max_lag_ms))
        ):
            lowest = follower.end_offset
    return max(high_watermark, lowest)


def low_watermark(
    leader_start_offset: int, followers: Mapping[int, FollowerState], alive: Container[int]
) -> int:
    """The smallest log start offset of a leader and of its followers on live brokers."""
    starts = [follower.start_offset for replica_id, follower in followers.items() if replica_id in alive]
    return min(leader_start_offset, min(starts, default=leader_start_offset))
