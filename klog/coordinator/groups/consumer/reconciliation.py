"""Brings a member from the partitions that it has to its target: it gives up first, then takes free ones.

Rules: Kafka's `CurrentAssignmentBuilder` (KIP-848). A partition has at most one owner: a member that may read
it, or that has not confirmed yet that it gave it up.
"""

from __future__ import annotations

from collections.abc import Callable

from klog.coordinator.groups.consumer.values import (
    NO_PARTITIONS,
    AssignedPartition,
    CurrentAssignment,
    MemberState,
    Partitions,
    RefusedError,
)
from klog.protocol.error_codes import ErrorCode

IsFree = Callable[[AssignedPartition], bool]


def reconcile(
    current: CurrentAssignment,
    target: Partitions,
    target_epoch: int,
    owned: Partitions | None,
    is_free: IsFree,
) -> CurrentAssignment:
    """The member's next assignment; the same object if nothing changes.

    `owned` is what the member says it has (None: as before); `is_free` says whether no other member owns a
    partition. Raises `RefusedError` if the member's state is not known and it still owns partitions.
    """
    if current.state is MemberState.STABLE:
        if current.epoch == target_epoch:
            return current
        return _advance(current, current.epoch, target, target_epoch, owned, is_free)
    if current.state is MemberState.UNREVOKED_PARTITIONS:
        if owned is None or owned & current.revoking:
            return current
        # It has given up what it was asked to: it may go on to the next epoch.
        return _advance(current, current.epoch + 1, target, target_epoch, owned, is_free)
    if current.state is MemberState.UNRELEASED_PARTITIONS:
        return _advance(current, current.epoch, target, target_epoch, owned, is_free)
    if owned is None or owned & current.revoking:
        message = "The coordinator does not know the state of the member. It must give up all partitions."
        raise RefusedError(ErrorCode.FENCED_MEMBER_EPOCH, message)
    return _advance(current, target_epoch, target, target_epoch, owned, is_free)


def _advance(
    current: CurrentAssignment,
    epoch: int,
    target: Partitions,
    target_epoch: int,
    owned: Partitions | None,
    is_free: IsFree,
) -> CurrentAssignment:
    kept = current.assigned & target
    revoking = current.assigned - target
    if revoking and (owned is None or owned & revoking):
        return _changed(current, epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    wanted = target - kept
    free = frozenset(filter(is_free, wanted))
    state = MemberState.STABLE if free == wanted else MemberState.UNRELEASED_PARTITIONS
    return _changed(current, target_epoch, state, kept | free, NO_PARTITIONS)


def _changed(
    current: CurrentAssignment, epoch: int, state: MemberState, assigned: Partitions, revoking: Partitions
) -> CurrentAssignment:
    previous_epoch = current.epoch if epoch != current.epoch else current.previous_epoch
    return CurrentAssignment(epoch, previous_epoch, state, assigned, revoking)
