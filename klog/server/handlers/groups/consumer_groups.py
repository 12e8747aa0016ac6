"""Answers ConsumerGroupHeartbeat and ConsumerGroupDescribe.

Rules: Kafka's `KafkaApis` and the message schemas (KIP-848); the decisions are in `coordinator.consumer`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from klog.coordinator.groups.consumer.topics import Topics
from klog.coordinator.groups.consumer.values import (
    Describable,
    DescribedConsumer,
    DescribedConsumerGroup,
    HeartbeatRequest,
    HeartbeatResult,
    Partitions,
    TopicId,
    by_topic,
    every_topic,
)
from klog.coordinator.groups.consumer_requests import ConsumerGroupRequests
from klog.formats.names import encode_uuid
from klog.metadata.control_requests import topic_uuid
from klog.protocol.acls import AclOperation, AclResourceType
from klog.protocol.entity_fields import Entity
from klog.server.handlers.access import Access
from klog.server.handlers.answers import Struct, entity_of, milliseconds, send_answer
from klog.server.handlers.groups.administration import GROUP_OPERATIONS
from klog.server.handlers.topics.topic_metadata import OPERATIONS_NOT_ASKED_FOR
from klog.server.network.request import Request

_MEMBER_ID_REQUIRED_FROM: Final = 1
_MEMBER_ID_BYTES: Final = 16
_CLASSIC_MEMBER: Final = 0
_CONSUMER_MEMBER: Final = 1


def random_member_id() -> str:
    """A member id that no other member has, in the form of Kafka's ids."""
    return encode_uuid(secrets.token_bytes(_MEMBER_ID_BYTES))


@dataclass(frozen=True, slots=True)
class ConsumerGroupsHandler:
    """Answers the requests about consumer groups. `member_id` makes a new id. Without `access` clients may
    describe all topics.
    """

    groups: ConsumerGroupRequests
    member_id: Callable[[], str] = random_member_id
    access: Access | None = None

    def heartbeat(self, request: Request) -> None:
        """ConsumerGroupHeartbeat: answered when the group's new state is replicated."""
        asked = entity_of(request)
        names = asked.subscribed_topic_names
        beat = HeartbeatRequest(
            asked.member_id,
            asked.member_epoch,
            asked.instance_id,
            asked.rack_id,
            milliseconds(asked.rebalance_timeout),
            None if names is None else tuple(names),
            getattr(asked, "subscribed_topic_regex", None),
            asked.server_assignor,
            _owned(asked),
            request.client_id or "",
            f"/{request.peer_address}",
            may_lack_id=request.api_version < _MEMBER_ID_REQUIRED_FROM,
            new_member_id=asked.member_id or self.member_id(),
            describable=self._describable(request),
        )
        self.groups.heartbeat(asked.group_id, beat, lambda result: _answer_heartbeat(request, result))

    def _describable(self, request: Request) -> Describable:
        access = self.access
        if access is None:
            return every_topic

        def described(names: Collection[str]) -> Collection[str]:
            # Nobody has named them, so nothing was refused.
            return access.allowed(
                request, AclOperation.DESCRIBE, AclResourceType.TOPIC, names, logs_denial=False
            )

        return described

    def describe(self, request: Request) -> None:
        """ConsumerGroupDescribe."""
        asked = entity_of(request)
        operations = GROUP_OPERATIONS if asked.include_authorized_operations else OPERATIONS_NOT_ASKED_FOR
        topics = self.groups.groups.coordinator.services.topics()
        described = (self.groups.describe(group_id) for group_id in asked.group_ids)
        send_answer(request, groups=[_described(each, topics, operations) for each in described])


def _owned(asked: Entity) -> Partitions | None:
    if asked.topic_partitions is None:
        return None
    return frozenset(
        (encode_uuid(topic.topic_id.bytes), number)
        for topic in asked.topic_partitions
        if topic.topic_id is not None
        for number in topic.partitions
    )


def _answer_heartbeat(request: Request, result: HeartbeatResult) -> None:
    assignment = None
    if result.assignment is not None:
        topics = by_topic(result.assignment).items()
        assignment = {
            "topic_partitions": [
                {"topic_id": topic_uuid(topic_id), "partitions": numbers} for topic_id, numbers in topics
            ]
        }
    send_answer(
        request,
        error_code=result.error,
        error_message=result.message,
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval=result.heartbeat_interval_ms,
        assignment=assignment,
    )


def _described(group: DescribedConsumerGroup, topics: Topics, operations: int) -> Struct:
    return {
        "error_code": group.error,
        "error_message": group.message,
        "group_id": group.group_id,
        "group_state": group.state,
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": group.assignor,
        "members": [_member(each, topics) for each in group.members],
        "authorized_operations": operations,
    }


def _member(member: DescribedConsumer, topics: Topics) -> Struct:
    subscription = member.subscription
    return {
        "member_id": subscription.member_id,
        "instance_id": subscription.instance_id,
        "rack_id": subscription.rack_id,
        "member_epoch": member.epoch,
        "client_id": subscription.client_id,
        "client_host": subscription.client_host,
        "subscribed_topic_names": subscription.topics,
        "subscribed_topic_regex": subscription.regex or None,
        "assignment": _assignment(member.assigned, topics),
        "target_assignment": _assignment(member.target, topics),
        "member_type": _CONSUMER_MEMBER if subscription.classic is None else _CLASSIC_MEMBER,
    }


def _assignment(assigned: Mapping[TopicId, Sequence[int]], topics: Topics) -> Struct:
    """Partitions with the names of their topics; topics that are deleted are left out."""
    named = ((topic_id, topics.name_of(topic_id), numbers) for topic_id, numbers in assigned.items())
    return {
        "topic_partitions": [
            {"topic_id": topic_uuid(topic_id), "topic_name": name, "partitions": numbers}
            for topic_id, name, numbers in named
            if name is not None
        ]
    }
