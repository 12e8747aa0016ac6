"""The role of this broker for a partition, and the event that the role has changed.

Listeners of the replica manager are given these values: fetchers, coordinators and others that act for the
partitions which this broker leads or follows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from klog.formats.names import TopicPartition


class Role(Enum):
    """What this broker does for a partition."""

    ABSENT = "has no replica"
    LEADER = "leads"
    FOLLOWER = "follows"
    STOPPED = "has stopped, and keeps the replica"
    DELETED = "has given up the replica: its log is deleted, or out of use"
    FAILED = "has a replica in a log directory that is offline"


@dataclass(frozen=True, slots=True)
class RoleChange:
    """A partition's role has changed, or its leader epoch within the same role.

    `leader_epoch` is the new one, or the last one known if the broker no longer leads or follows (-1: none).
    A replica that has stopped copies nothing any more. Otherwise it is what it was, a leader even: Kafka's
    controller stops a leader only before it deletes it.
    """

    partition: TopicPartition
    old: Role
    new: Role
    leader_epoch: int


RoleListener: TypeAlias = Callable[[Sequence[RoleChange]], None]
"""Is given the changes of one request or one failure, in the order in which they happened. It runs with the
replica manager's lock held: it takes note and leaves the work to a thread of its own."""
