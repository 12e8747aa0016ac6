"""Checks the requests of clients of consumer groups, and gives each to its group.

Rules: KIP-848; Kafka's `GroupCoordinatorService`. A classic group becomes a consumer group with the first
member of the consumer protocol, if it is empty or `group.consumer.migration.policy` allows it.
"""

from __future__ import annotations

from dataclasses import dataclass

from klog.coordinator.groups.classic.group import Group
from klog.coordinator.groups.consumer.conversion import upgrade
from klog.coordinator.groups.consumer.group import ConsumerGroup
from klog.coordinator.groups.consumer.regexes import check_regex
from klog.coordinator.groups.consumer.values import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    NOT_GIVEN,
    STATIC_LEAVE_EPOCH,
    DescribedConsumerGroup,
    HeartbeatReply,
    HeartbeatRequest,
    HeartbeatResult,
    RefusedError,
)
from klog.coordinator.groups.entries import GroupEntry
from klog.coordinator.groups.group_partition import GroupPartition
from klog.coordinator.groups.requests import GroupRequests
from klog.coordinator.groups.values import CONSUMER_PROTOCOL
from klog.protocol.error_codes import ErrorCode


@dataclass(frozen=True, slots=True)
class ConsumerGroupRequests:
    """The requests of clients, without their bytes. Safe for threads."""

    groups: GroupRequests

    def heartbeat(self, group_id: str, asked: HeartbeatRequest, reply: HeartbeatReply) -> None:
        """ConsumerGroupHeartbeat: `reply` is called when the group's new state is replicated."""
        try:
            self._check(group_id, asked)
        except RefusedError as refused:
            reply(HeartbeatResult(refused.error, refused.message))
            return
        owner = self.groups.owner(group_id)
        if isinstance(owner, ErrorCode):
            reply(HeartbeatResult(owner))
            return
        with owner.lock():
            try:
                entry, group = _consumer_group(owner, group_id, asked)
            except RefusedError as refused:
                result = HeartbeatResult(refused.error, refused.message)
                owner.put(lambda: reply(result))
                return
            group.consumer_heartbeat(asked, reply, owner.now())
            owner.put_effects(entry)

    def _check(self, group_id: str, asked: HeartbeatRequest) -> None:
        """Raises `RefusedError` for a request that is invalid whatever the group is."""
        if not self.groups.coordinator.settings.accepts_consumer_protocol:
            raise RefusedError(ErrorCode.UNSUPPORTED_VERSION, "The consumer protocol is not enabled.")
        for name, text in (
            ("GroupId", group_id),
            ("InstanceId", asked.instance_id),
            ("RackId", asked.rack_id),
        ):
            _require(text != "", f"{name} can't be empty.")
        lacks_id = not asked.member_id and not (asked.may_lack_id and asked.member_epoch == JOIN_EPOCH)
        _require(not lacks_id, "MemberId can't be empty.")
        if asked.member_epoch == JOIN_EPOCH:
            given = asked.rebalance_timeout_ms != NOT_GIVEN
            _require(given, "RebalanceTimeoutMs must be provided in first request.")
            _require(asked.owned == frozenset(), "TopicPartitions must be empty when (re-)joining.")
            subscribes = asked.topics is not None or asked.regex is not None
            message = (
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
            )
            _require(subscribes, message)
        elif asked.member_epoch == STATIC_LEAVE_EPOCH:
            _require(asked.instance_id is not None, "InstanceId can't be null.")
        else:
            _require(asked.member_epoch >= LEAVE_EPOCH, "MemberEpoch is invalid.")
        offered = self.groups.coordinator.services.consumer_groups(group_id).assignors
        if asked.assignor is not None and asked.assignor not in offered:
            message = f"ServerAssignor {asked.assignor} is not supported. Supported assignors: "
            raise RefusedError(ErrorCode.UNSUPPORTED_ASSIGNOR, f"{message}{', '.join(offered)}.")
        if asked.regex:
            check_regex(asked.regex)

    def describe(self, group_id: str) -> DescribedConsumerGroup:
        """ConsumerGroupDescribe."""
        owner = self.groups.owner(group_id)
        if isinstance(owner, ErrorCode):
            return DescribedConsumerGroup(owner, group_id)
        with owner.lock():
            entry = owner.get(group_id)
            if entry is None or not isinstance(entry.group, ConsumerGroup):
                message = f"Group {group_id} not found."
                if entry is not None:
                    message = f"Group {group_id} is not a consumer group."
                return DescribedConsumerGroup(ErrorCode.GROUP_ID_NOT_FOUND, group_id, message)
            return entry.group.described()


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise RefusedError(ErrorCode.INVALID_REQUEST, message)


def _consumer_group(
    owner: GroupPartition, group_id: str, asked: HeartbeatRequest
) -> tuple[GroupEntry, ConsumerGroup]:
    """The group of a heartbeat, made or changed to a consumer group if need be. Raises `RefusedError`."""
    entry = owner.get(group_id)
    if entry is not None and isinstance(entry.group, ConsumerGroup):
        return entry, entry.group
    if asked.member_epoch != JOIN_EPOCH:
        what = "not found" if entry is None else "is not a consumer group"
        raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
    new = owner.new_consumer_group(group_id)
    if entry is None:
        entry = owner.get_or_create(group_id)
    if isinstance(entry.group, Group):
        _require_upgradable(entry.group, new)
        if not upgrade(entry.group, new, new.topics(), owner.now()):
            message = (
                f"Cannot upgrade classic group {group_id} to consumer group: a member's bytes are invalid."
            )
            raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, message)
    owner.change_kind(entry, new)
    return entry, new


def _require_upgradable(classic: Group, new: ConsumerGroup) -> None:
    """Raises `RefusedError` if a group with members cannot change while it has them."""
    if classic.is_empty:
        return
    settings = new.settings
    message = f"Group {classic.group_id} is not a consumer group."
    if not settings.may_upgrade or classic.protocol_type != CONSUMER_PROTOCOL:
        raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, message)
    if len(classic.members) > settings.max_size:
        raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, message)
    if len(classic.members) == settings.max_size:
        message = f"The consumer group has reached its maximum capacity of {settings.max_size} members."
        raise RefusedError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)
