"""The in-sync replicas (ISR) of a partition, and when a leader proposes to change them.

Rules: Kafka's `Partition` and KIP-497. Only the controller changes the ISR. A leader proposes a change, and
until the answer comes both the old and the proposed members count. The functions are pure: values and a time
in, values out.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from klog.replication.follower import FollowerState, is_caught_up


@dataclass(frozen=True, slots=True)
class IsrState:
    """The ISR that the controller confirmed last, and the one that this leader has proposed, if any.

    `maximal` holds every replica that may be in the ISR now. The high watermark waits for all of them: the
    controller may have accepted the proposal already, or may never do so.
    """

    committed: tuple[int, ...] = ()
    pending: tuple[int, ...] | None = None
    maximal: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        joining = () if self.pending is None else tuple(set(self.pending) - set(self.committed))
        object.__setattr__(self, "maximal", (*self.committed, *sorted(joining)))


def shrunk(
    isr: IsrState,
    leader_id: int,
    followers: Mapping[int, FollowerState],
    leader_end_offset: int,
    now_ms: int,
    max_lag_ms: int,
) -> IsrState | None:
    """The ISR with a proposal to remove the followers that are not caught up; None if all are.

    No proposal is made while another one waits for its answer. A member that the leader knows nothing of is
    not caught up.
    """
    if isr.pending is not None:
        return None
    kept = tuple(
        replica_id
        for replica_id in isr.committed
        if replica_id == leader_id
        or is_caught_up(followers.get(replica_id, FollowerState()), leader_end_offset, now_ms, max_lag_ms)
    )
    return None if kept == isr.committed else IsrState(isr.committed, kept)


def expanded(
    isr: IsrState,
    replica_id: int,
    follower: FollowerState,
    *,
    high_watermark: int,
    epoch_start_offset: int,
    eligible: Container[int],
) -> IsrState | None:
    """The ISR with a proposal to add a follower; None if it may not join.

    A follower joins when it has all committed records and all that were in the log when the leader's epoch
    began. `eligible` holds the brokers that are alive, and neither fenced nor shutting down.
    """
    if isr.pending is not None or replica_id in isr.committed or replica_id not in eligible:
        return None
    if follower.end_offset < max(high_watermark, epoch_start_offset):
        return None
    return IsrState(isr.committed, (*isr.committed, replica_id))
