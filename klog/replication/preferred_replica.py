"""Chooses the replica that a consumer reads from: the nearest one that has what it asks for (KIP-392).

Rules: Kafka's `ReplicaManager.findPreferredReadReplica` and `RackAwareReplicaSelector`. A leader chooses. The
functions are pure: values in, a broker id out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from klog.replication.partition import Partition


class ReplicaView(NamedTuple):
    """A replica from which a consumer could read. The leader is caught up at all times."""

    broker_id: int
    rack: str | None
    end_offset: int
    last_caught_up_ms: int


def candidates(partition: Partition, offset: int, racks: Mapping[int, str | None]) -> list[ReplicaView]:
    """The followers from which a consumer can read at `offset`: in sync, alive, and with that offset.

    `racks` are those of the brokers that are alive.
    """
    followers, in_sync = partition.followers, partition.state.isr.committed
    return [
        ReplicaView(replica_id, racks[replica_id], follower.end_offset, follower.last_caught_up_ms)
        for replica_id, follower in list(followers.items())
        if replica_id in in_sync
        and replica_id in racks
        and follower.start_offset <= offset <= follower.end_offset
    ]


def in_rack(rack: str, leader_rack: str | None, followers: Iterable[ReplicaView]) -> int | None:
    """The follower in a consumer's rack from which it reads; None if it reads from the leader.

    The leader is preferred if it is in the rack, too. Among several followers it is the one with the most
    records, then the one that was caught up last, then the highest broker id.
    """
    if not rack or rack == leader_rack:
        return None
    near = [follower for follower in followers if follower.rack == rack]
    if not near:
        return None
    return max(near, key=lambda each: (each.end_offset, each.last_caught_up_ms, each.broker_id)).broker_id
