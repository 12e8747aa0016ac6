"""Asks coordinators to describe consumer groups: their states, members and assignments.

Rules: DescribeGroups for classic groups, ConsumerGroupDescribe for those of Kafka 4 (KIP-848), which brokers
that know them are asked first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from klog.client.cluster import Cluster
from klog.client.connection import Connection
from klog.client.consumer_protocol import PROTOCOL_TYPE, encode_assignment
from klog.client.errors import RefusedError
from klog.client.groups import ask_groups, refused
from klog.client.requests import ask
from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode, error_code
from klog.protocol.errors import UnsupportedApiError

_NO_CONSUMER_GROUP: Final = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


class GroupMember(NamedTuple):
    """A member of a described group; `metadata` and `assignment` are there while the group is stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(NamedTuple):
    """A group as its coordinator describes it."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[GroupMember, ...]


def describe_groups(
    cluster: Cluster, group_ids: Iterable[str]
) -> dict[str, tuple[DescribedGroup, int] | KlogError]:
    """Each group with the id of its coordinator, or the error of that group.

    Until version 5 an unknown group is described as Dead. Raises ChannelError if no broker can be reached.
    """
    brokers: dict[str, int] = {}

    def ask(connection: Connection, groups: Sequence[str]) -> dict[str, DescribedGroup | RefusedError]:
        found = _described_consumer_groups(connection, groups)
        classic = [group for group in groups if group not in found]
        return found | (_described_classic_groups(connection, classic) if classic else {})

    found = ask_groups(cluster, group_ids, ask, brokers)
    return {
        group: each if isinstance(each, KlogError) else (each, brokers[group])
        for group, each in found.items()
    }


def _described_consumer_groups(
    connection: Connection, groups: Sequence[str]
) -> dict[str, DescribedGroup | RefusedError]:
    """Those of the groups that are of the protocol of Kafka 4 (KIP-848)."""
    try:
        answer = ask(
            connection,
            ApiKey.CONSUMER_GROUP_DESCRIBE,
            group_ids=groups,
            include_authorized_operations=False,
        )
    except UnsupportedApiError:
        return {}
    return {
        each.group_id: refused(each.group_id, each.error_code) or _consumer_group(each)
        for each in answer.groups
        if error_code(each.error_code) not in _NO_CONSUMER_GROUP
    }


def _consumer_group(answer: Entity) -> DescribedGroup:
    members = (
        GroupMember(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            b"",
            encode_assignment(
                TopicPartition(topic.topic_name, number)
                for topic in each.assignment.topic_partitions
                for number in topic.partitions
            ),
        )
        for each in answer.members
    )
    return DescribedGroup(
        answer.group_id, answer.group_state, PROTOCOL_TYPE, answer.assignor_name, tuple(members)
    )


def _described_classic_groups(
    connection: Connection, groups: Sequence[str]
) -> dict[str, DescribedGroup | RefusedError]:
    answer = ask(connection, ApiKey.DESCRIBE_GROUPS, groups=groups, include_authorized_operations=False)
    return {each.group_id: _described(each) for each in answer.groups}


def _described(answer: Entity) -> DescribedGroup | RefusedError:
    if error := refused(answer.group_id, answer.error_code):
        return error
    members = (
        GroupMember(
            each.member_id,
            getattr(each, "group_instance_id", None),
            each.client_id,
            each.client_host,
            bytes(each.member_metadata),
            bytes(each.member_assignment),
        )
        for each in answer.members
    )
    return DescribedGroup(
        answer.group_id,
        answer.group_state,
        answer.protocol_type,
        answer.protocol_data,
        tuple(members),
    )
