"""What a follower does when its leader answers an error for one partition.

Rules: Kafka's `AbstractFetcherThread.processFetchRequest` and `onPartitionFenced`. Every error is temporary,
except that the follower's present epoch is fenced: the controller will send a newer one.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from klog.protocol.error_codes import ErrorCode


class Reaction(Enum):
    """What to do with the partition."""

    FAIL = "stop fetching it until the controller says who leads"
    LOOK_UP = "ask the leader for its first and last offsets"
    RETRY = "fetch it again after the back-off"
    RETRY_EXPECTED = "fetch it again after the back-off; that is usual while leaders change"


_REACTIONS: Final[Mapping[ErrorCode, Reaction]] = {
    ErrorCode.OFFSET_OUT_OF_RANGE: Reaction.LOOK_UP,
    # The leader has not heard of the epoch yet, or of having become the leader.
    ErrorCode.UNKNOWN_LEADER_EPOCH: Reaction.RETRY_EXPECTED,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: Reaction.RETRY_EXPECTED,
    # The leader has not heard of the topic yet, or it is being deleted.
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Reaction.RETRY_EXPECTED,
    ErrorCode.UNKNOWN_TOPIC_ID: Reaction.RETRY_EXPECTED,
    ErrorCode.INCONSISTENT_TOPIC_ID: Reaction.RETRY_EXPECTED,
}


def reaction(error: ErrorCode, requested_epoch: int, present_epoch: int) -> Reaction:
    """The reaction to an error.

    `requested_epoch` is the leader epoch in the request, `present_epoch` the one in which the partition is
    fetched now. They differ if the controller has named a newer one meanwhile.
    """
    if error is ErrorCode.FENCED_LEADER_EPOCH:
        return Reaction.FAIL if requested_epoch == present_epoch else Reaction.RETRY_EXPECTED
    return _REACTIONS.get(error, Reaction.RETRY)
