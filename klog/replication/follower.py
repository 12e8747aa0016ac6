"""The state of one follower as its leader knows it. Each fetch of the follower changes it.

Rules: Kafka's `Replica` and `ReplicaState`. Times are milliseconds of a clock that is never set back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

UNKNOWN_OFFSET: Final = -1
UNKNOWN_EPOCH: Final = -1
NEVER_MS: Final = -(1 << 62)
"""A time before any that a clock shows."""


class FollowerState(NamedTuple):
    """The progress of one follower, as its fetches show it to the leader.

    `leader_end_at_last_fetch` is the leader's log end offset at the time of the follower's last fetch.
    `last_caught_up_ms` is the last time at which the follower is known to have had all records of the leader.
    """

    end_offset: int = UNKNOWN_OFFSET
    start_offset: int = UNKNOWN_OFFSET
    last_fetch_ms: int = NEVER_MS
    leader_end_at_last_fetch: int = 0
    last_caught_up_ms: int = NEVER_MS
    broker_epoch: int = UNKNOWN_EPOCH


class FollowerFetch(NamedTuple):
    """What one fetch request shows of the follower that sent it."""

    replica_id: int
    broker_epoch: int
    now_ms: int


def after_fetch(
    follower: FollowerState, fetch: FollowerFetch, offset: int, start_offset: int, leader_end_offset: int
) -> FollowerState:
    """The follower after it has fetched from `offset`; `leader_end_offset` is the leader's at this fetch.

    A follower that fetches from the leader's end is caught up now. One that fetches from where the leader's
    log ended at the fetch before was caught up then: under steady writes a follower never sees the present
    end.
    """
    caught_up_ms = follower.last_caught_up_ms
    if offset >= leader_end_offset:
        caught_up_ms = max(caught_up_ms, fetch.now_ms)
    elif offset >= follower.leader_end_at_last_fetch:
        caught_up_ms = max(caught_up_ms, follower.last_fetch_ms)
    return FollowerState(
        offset,
        start_offset,
        fetch.now_ms,
        max(follower.leader_end_at_last_fetch, leader_end_offset),
        caught_up_ms,
        fetch.broker_epoch,
    )


def is_caught_up(follower: FollowerState, leader_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
    """Whether a follower has all records, or had all of them less than `replica.lag.time.max.ms` ago."""
    return follower.end_offset == leader_end_offset or now_ms - follower.last_caught_up_ms <= max_lag_ms


def at_epoch_start(
    replica_ids: Iterable[int],
    isr: Collection[int],
    known: Mapping[int, FollowerState],
    epoch_start_offset: int,
    now_ms: int,
) -> dict[int, FollowerState]:
    """The followers at the start of a leader epoch.

    `known` is what the same leader knew of them in the epoch just before; their offsets are kept. Members of
    the ISR count as caught up now, so that none is removed before it had time to fetch. Others count as never
    caught up, so that none joins before it has fetched.
    """
    followers: dict[int, FollowerState] = {}
    for replica_id in replica_ids:
        seen_ms = now_ms if replica_id in isr else NEVER_MS
        follower = known.get(replica_id)
        if follower is None:
            followers[replica_id] = FollowerState(last_caught_up_ms=seen_ms)
        else:
            followers[replica_id] = follower._replace(
                last_fetch_ms=seen_ms,
                leader_end_at_last_fetch=epoch_start_offset,
                last_caught_up_ms=seen_ms,
            )
    return followers
