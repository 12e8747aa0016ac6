"""Decides who may be a member of a consumer group, and what follows if a member joins or changes.

Rules: KIP-848; Kafka's `GroupMetadataManager`. Both protocols of members use this.
"""

from __future__ import annotations

from klog.coordinator.groups.consumer.epochs import GroupEpochs
from klog.coordinator.groups.consumer.records import RecordKind
from klog.coordinator.groups.consumer.values import (
    JOIN_EPOCH,
    NO_PARTITIONS,
    Describable,
    MemberSubscription,
    RefusedError,
)
from klog.coordinator.groups.values import Now
from klog.protocol.error_codes import ErrorCode


class Membership(GroupEpochs):
    """The checks and changes that the members of both protocols have in common."""

    def _require_space_for(self, member_id: str) -> None:
        members = self.records.members
        if member_id not in members and len(members) >= self.settings.max_size:
            message = (
                f"The consumer group has reached its maximum capacity of {self.settings.max_size} members."
            )
            raise RefusedError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)

    def _known(
        self, member_id: str, instance_id: str | None, *, may_be_new: bool = False
    ) -> MemberSubscription | None:
        """The member; None if it may be new and is. Raises `RefusedError`."""
        if instance_id is None:
            member = self.records.members.get(member_id)
        else:
            member = self.records.static_member(instance_id)
            if member is not None and member.member_id != member_id:
                message = (
                    f"Static member {member_id} with instance id {instance_id} was fenced by member "
                    f"{member.member_id}."
                )
                raise RefusedError(ErrorCode.FENCED_INSTANCE_ID, message)
        if member is None and not may_be_new:
            message = f"Member {member_id} is not a member of group {self.group_id}."
            raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID, message)
        return member

    def _replace(self, known: MemberSubscription, member_id: str) -> MemberSubscription:
        """A static member has started again: it takes its own place under a new member id."""
        records = self.records
        target = records.targets.get(known.member_id, NO_PARTITIONS)
        current = records.current_of(known.member_id)._replace(epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
        self._forget(known.member_id)
        replaced = known._replace(member_id=member_id)
        records.put(RecordKind.MEMBER, member_id, replaced)
        records.put(RecordKind.TARGET, member_id, target)
        records.put(RecordKind.CURRENT, member_id, current)
        return replaced

    def _refresh(
        self,
        known: MemberSubscription | None,
        member: MemberSubscription,
        now: Now,
        describable: Describable | None = None,
    ) -> None:
        """Set a new epoch if the members or the topics have changed, and assign for it. `describable` is that
        of a member that may have a regular expression.
        """
        topics = self.topics()
        changed = known is None or (known.topics, known.regex) != (member.topics, member.regex)
        is_due = describable is not None and self._matches_are_old(topics, now)
        if changed or topics is not self._topics or is_due:
            changed = self._topics_changed(topics, now, describable) or changed
        if changed:
            self._next_epoch()
        self._assign(topics)
