"""Changes a group between the classic protocol and the consumer protocol, with or without members.

Rules: KIP-848, "Online migration", `group.consumer.migration.policy`. The offsets stay as they are. All
records of a change are in one batch.
"""

from __future__ import annotations

from klog.client.consumer_protocol import decode_assignment, decode_subscription
from klog.coordinator.groups.classic.group import Group
from klog.coordinator.groups.classic.members import Member
from klog.coordinator.groups.classic.rebalance import GroupLimits
from klog.coordinator.groups.consumer.embedded_protocol import assignment_of, by_id
from klog.coordinator.groups.consumer.group import ConsumerGroup
from klog.coordinator.groups.consumer.records import ConsumerRecord, GroupEpoch, RecordKind
from klog.coordinator.groups.consumer.topics import Topics
from klog.coordinator.groups.consumer.values import (
    ClassicMember,
    CurrentAssignment,
    MemberSubscription,
    Partitions,
)
from klog.coordinator.groups.records import GroupMetadata
from klog.coordinator.groups.values import CONSUMER_PROTOCOL, Now
from klog.formats.errors import FormatError


def upgrade(classic: Group, new: ConsumerGroup, topics: Topics, now: Now) -> bool:
    """Take the members of a classic group into a consumer group that has none.

    Returns False, without a change, if a member's subscription or assignment cannot be read.
    """
    try:
        members = [_subscription(member, classic.protocol_name) for member in classic.members]
        assigned = {
            member.member_id: by_id(decode_assignment(member.assignment), topics)
            for member in classic.members
        }
    except FormatError:
        return False
    records = new.records
    if classic.generation_id > 0:
        records.put(RecordKind.CLASSIC)
    for member in members:
        records.put(RecordKind.MEMBER, member.member_id, member)
    if members:
        epoch = classic.generation_id
        records.put(RecordKind.EPOCH, value=GroupEpoch(epoch, topics.hash_of(records.subscribed)))
        for member_id, partitions in assigned.items():
            records.put(RecordKind.TARGET, member_id, partitions)
        records.put(RecordKind.ASSIGNMENT_EPOCH, value=epoch)
        for member_id, partitions in assigned.items():
            current = CurrentAssignment(epoch, epoch, assigned=partitions)
            records.put(RecordKind.CURRENT, member_id, current)
    new.start_loaded(now)
    return True


def _subscription(member: Member, protocol_name: str | None) -> MemberSubscription:
    protocols = member.protocols
    metadata = member.metadata(protocol_name) or (protocols[0][1] if protocols else b"")
    subscription = decode_subscription(metadata)
    return MemberSubscription(
        member.member_id,
        member.instance_id,
        subscription.rack_id,
        member.client_id,
        member.client_host,
        tuple(sorted(set(subscription.topics))),
        "",
        member.rebalance_timeout_ms,
        None,
        ClassicMember(member.session_timeout_ms, protocols),
    )


def may_downgrade(group: ConsumerGroup, limits: GroupLimits) -> bool:
    """Whether all members use the classic protocol, and the group may become classic with them."""
    records = group.records
    return (
        not records.consumer_members
        and 0 < len(records.members) <= limits.max_size
        and group.settings.may_downgrade
        and not group.is_dead
    )


def downgrade(
    group: ConsumerGroup, limits: GroupLimits, topics: Topics, now: Now
) -> tuple[Group, list[ConsumerRecord]]:
    """A classic group with the members of a consumer group, and the records that change the one to the other.

    The members are of the present epoch as their generation. They are told to join again.
    """
    removed = [ConsumerRecord(kind, name) for kind, name in group.records.written_keys()]
    classic = Group(group.group_id, limits, now)
    if group.is_empty:
        metadata = GroupMetadata("", 0, None, None, now.wall_ms)
        return classic, [*removed, ConsumerRecord(RecordKind.CLASSIC, "", metadata)]
    classic.protocol_type = CONSUMER_PROTOCOL
    classic.generation_id = group.records.epoch
    for member in group.records.members.values():
        if member.classic is not None:
            assigned = group.records.current_of(member.member_id).assigned
            classic.members.add(_classic(member, member.classic, assigned, topics))
    classic.protocol_name = classic.members.select_protocol()
    classic.start_loaded(None, now)
    record = ConsumerRecord(RecordKind.CLASSIC, "", classic.metadata())
    classic.rebalance(now)
    return classic, [*removed, record]


def _classic(
    member: MemberSubscription, classic: ClassicMember, assigned: Partitions, topics: Topics
) -> Member:
    return Member(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        classic.session_timeout_ms,
        classic.protocols,
        assignment_of(classic, assigned, topics),
    )
