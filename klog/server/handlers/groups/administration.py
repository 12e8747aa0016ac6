"""Answers DescribeGroups, ListGroups and DeleteGroups.

Rules: Kafka's `KafkaApis`; KIP-430 (authorized operations), KIP-518 (states), KIP-848 (types of groups).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from klog.coordinator.groups.requests import GroupRequests
from klog.coordinator.groups.values import DescribedGroup, ListedGroup
from klog.server.handlers.answers import Struct, entity_of, send_answer
from klog.server.handlers.topics.topic_metadata import OPERATIONS_NOT_ASKED_FOR
from klog.server.network.request import Request

# Bit fields of AclOperation codes (KIP-430): READ 3, DELETE 6, DESCRIBE 8.
GROUP_OPERATIONS: Final = sum(1 << code for code in (3, 6, 8))


@dataclass(frozen=True, slots=True)
class GroupsHandler:
    """Answers the requests of administrators about groups."""

    groups: GroupRequests

    def describe(self, request: Request) -> None:
        """DescribeGroups."""
        asked = entity_of(request)
        wants_operations = getattr(asked, "include_authorized_operations", False)
        operations = GROUP_OPERATIONS if wants_operations else OPERATIONS_NOT_ASKED_FOR
        described = (self.groups.describe(group_id) for group_id in asked.groups)
        send_answer(request, groups=[_described(each, operations) for each in described])

    def list(self, request: Request) -> None:
        """ListGroups."""
        asked = entity_of(request)
        states = {state.lower() for state in getattr(asked, "states_filter", ())}
        types = {kind.lower() for kind in getattr(asked, "types_filter", ())}
        error, groups = self.groups.list()
        wanted = (
            group
            for group in groups
            if (not states or group.state.lower() in states) and (not types or group.kind in types)
        )
        send_answer(request, error_code=error, groups=map(_listed, wanted))

    def delete(self, request: Request) -> None:
        """DeleteGroups."""
        errors = self.groups.delete(dict.fromkeys(entity_of(request).groups_names))
        results = [{"group_id": group_id, "error_code": error} for group_id, error in errors.items()]
        send_answer(request, results=results)


def _described(group: DescribedGroup, operations: int) -> Struct:
    members = [
        {
            "member_id": member.member_id,
            "group_instance_id": member.instance_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "member_metadata": member.metadata,
            "member_assignment": member.assignment,
        }
        for member in group.members
    ]
    return {
        "error_code": group.error,
        "group_id": group.group_id,
        "group_state": group.state,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol_data,
        "members": members,
        "authorized_operations": operations,
    }


def _listed(group: ListedGroup) -> Struct:
    return {**group._asdict(), "group_state": group.state, "group_type": group.kind}
