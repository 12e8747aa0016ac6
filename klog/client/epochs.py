"""Asks leaders where a leader epoch ends in their logs (OffsetForLeaderEpoch, KIP-101, KIP-279, KIP-320).

A client with records of an earlier epoch learns by it whether the leader still has them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from klog.client.connection import Connection
from klog.client.requests import accepted, ask, by_partition, by_topic
from klog.formats.names import TopicPartition
from klog.protocol.apis import ApiKey

_CONSUMER: Final = -1
UNKNOWN: Final = -1


class EpochEnd(NamedTuple):
    """The largest epoch of the leader's log that is not above the one asked for, and where it ends.

    Both are UNKNOWN if there is none. Kafka 0.11 to 1.1 do not name the epoch.
    """

    leader_epoch: int
    end_offset: int


def epoch_end(
    connection: Connection, partition: TopicPartition, epoch: int, current_epoch: int = UNKNOWN
) -> EpochEnd:
    """Where an epoch ends at the leader of a partition. `current_epoch` is that of the leader, if known.

    Raises RefusedError, ChannelError, UnsupportedApiError.
    """
    wanted = {"partition": partition.partition, "current_leader_epoch": current_epoch, "leader_epoch": epoch}
    answer = ask(
        connection,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        replica_id=_CONSUMER,
        topics=by_topic([partition], lambda _each: wanted, topic="topic"),
    )
    [(_, part)] = by_partition(answer.topics, topic="topic", number="partition")
    accepted(part, f"the end of epoch {epoch} of {partition}")
    return EpochEnd(int(getattr(part, "leader_epoch", UNKNOWN)), int(part.end_offset))
