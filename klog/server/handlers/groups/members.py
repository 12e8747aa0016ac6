"""Answers JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

Rules: Kafka's `KafkaApis` and the message schemas; the decisions are in `coordinator.group`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from klog.coordinator.groups.requests import GroupRequests
from klog.coordinator.groups.values import (
    Identity,
    JoinRequest,
    JoinResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.server.handlers.answers import entity_of, milliseconds, send_answer
from klog.server.network.request import Request

# The first versions with a change of meaning.
_MEMBER_ID_REQUIRED_FROM: Final = 4
_NULL_PROTOCOL_FROM: Final = 7
_SKIP_ASSIGNMENT_FROM: Final = 9
_SYNC_PROTOCOL_FROM: Final = 5
_SEVERAL_LEAVE_FROM: Final = 3


def random_member_id(prefix: str) -> str:
    """A member id that no other member has: the client's name and a random UUID."""
    return f"{prefix}-{uuid.uuid4()}"


def identity_of(asked: Entity) -> Identity:
    """The member that sends a request."""
    return Identity(asked.member_id, asked.generation_id, getattr(asked, "group_instance_id", None))


@dataclass(frozen=True, slots=True)
class MembersHandler:
    """Answers the requests of members. `member_id` makes a new id from a prefix."""

    groups: GroupRequests
    member_id: Callable[[str], str] = random_member_id

    def join(self, request: Request) -> None:
        """JoinGroup: answered when the members of the next generation are known."""
        asked = entity_of(request)
        instance_id = getattr(asked, "group_instance_id", None)
        client_id = request.client_id or ""
        session_timeout_ms = milliseconds(asked.session_timeout)
        rebalance_timeout = getattr(asked, "rebalance_timeout", None)
        join = JoinRequest(
            asked.member_id,
            self.member_id(client_id if instance_id is None else instance_id),
            client_id,
            f"/{request.peer_address}",
            session_timeout_ms,
            session_timeout_ms if rebalance_timeout is None else milliseconds(rebalance_timeout),
            asked.protocol_type,
            tuple((each.name, bytes(each.metadata)) for each in asked.protocols),
            instance_id,
            knows_required_ids=request.api_version >= _MEMBER_ID_REQUIRED_FROM,
            may_skip_assignment=request.api_version >= _SKIP_ASSIGNMENT_FROM,
        )
        self.groups.join(asked.group_id, join, lambda result: _answer_join(request, result))

    def sync(self, request: Request) -> None:
        """SyncGroup: answered when the leader's assignments are known."""
        asked = entity_of(request)
        protocol_type = getattr(asked, "protocol_type", None)
        protocol_name = getattr(asked, "protocol_name", None)
        if request.api_version >= _SYNC_PROTOCOL_FROM and None in (protocol_type, protocol_name):
            _answer_sync(request, SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
            return
        sync = SyncRequest(
            identity_of(asked),
            {each.member_id: bytes(each.assignment) for each in asked.assignments},
            protocol_type,
            protocol_name,
        )
        self.groups.sync(asked.group_id, sync, lambda result: _answer_sync(request, result))

    def heartbeat(self, request: Request) -> None:
        """Heartbeat: answered at once."""
        asked = entity_of(request)
        send_answer(request, error_code=self.groups.heartbeat(asked.group_id, identity_of(asked)))

    def leave(self, request: Request) -> None:
        """LeaveGroup: answered at once."""
        asked = entity_of(request)
        if request.api_version < _SEVERAL_LEAVE_FROM:
            error, errors = self.groups.leave(asked.group_id, [LeavingMember(asked.member_id)])
            send_answer(request, error_code=error or errors[0])
            return
        leaving = [LeavingMember(each.member_id, each.group_instance_id) for each in asked.members]
        error, errors = self.groups.leave(asked.group_id, leaving)
        members = [
            {"member_id": member.member_id, "group_instance_id": member.instance_id, "error_code": each}
            for member, each in zip(leaving, errors, strict=False)
        ]
        send_answer(request, error_code=error, members=members)


def _answer_join(request: Request, result: JoinResult) -> None:
    members = [
        {"member_id": member.member_id, "group_instance_id": member.instance_id, "metadata": member.metadata}
        for member in result.members
    ]
    name = result.protocol_name
    send_answer(
        request,
        error_code=result.error,
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        protocol_name=name if request.api_version >= _NULL_PROTOCOL_FROM else name or "",
        leader=result.leader_id,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=members,
    )


def _answer_sync(request: Request, result: SyncResult) -> None:
    send_answer(request, error_code=result.error, **result._asdict())
