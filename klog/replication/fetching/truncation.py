"""Decides where a follower truncates its log, from what its leader says about the end of a leader epoch.

Rules: KIP-101, KIP-279, Kafka's `AbstractFetcherThread.getOffsetTruncationState`. The same decision serves
the diverging epoch of a Fetch answer (KIP-595) and the answer to OffsetForLeaderEpoch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from klog.formats.epochs import UNDEFINED_EPOCH, UNDEFINED_OFFSET, EpochEnd


class Truncation(NamedTuple):
    """Truncate to `offset`. If it is not complete, the leader is asked again from there."""

    offset: int
    is_complete: bool


def truncation(
    leader: EpochEnd, own_end_of: Callable[[int], EpochEnd], log_end_offset: int, fetch_offset: int
) -> Truncation:
    """Where to truncate a log that ends at `log_end_offset`.

    `leader` is the leader's largest epoch at or below the one asked for, with its end. `own_end_of` answers
    the same for this log. `fetch_offset` is where the follower would fetch, the high watermark at first.
    """
    if leader.end_offset == UNDEFINED_OFFSET:
        return Truncation(min(fetch_offset, log_end_offset), True)
    own = EpochEnd() if leader.epoch == UNDEFINED_EPOCH else own_end_of(leader.epoch)
    if own.end_offset == UNDEFINED_OFFSET:
        # One side has no epochs, or has only later ones than the leader knows: the leader's end decides.
        return Truncation(min(leader.end_offset, log_end_offset), True)
    if own.epoch != leader.epoch:
        # This log does not have the leader's epoch. Its next lower one has to be compared.
        return Truncation(min(own.end_offset, log_end_offset), False)
    return Truncation(min(own.end_offset, leader.end_offset, log_end_offset), True)
