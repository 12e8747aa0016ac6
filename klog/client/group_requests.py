"""The requests of a member of a consumer group: one function for each, which sends it once.

Rules: JoinGroup, SyncGroup, Heartbeat and LeaveGroup of the classic protocol; KIP-345 (static members),
KIP-394 (a member id is given before the member joins).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from klog.client.connection import Connection
from klog.client.consumer_protocol import PROTOCOL_TYPE
from klog.client.groups import Membership
from klog.client.requests import ask
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode, error_code

_SEVERAL_LEAVE_FROM: Final = 3


class JoinRequest(NamedTuple):
    """A member that wants to join; `protocols` are pairs of an assignor and its metadata, the best first."""

    group_id: str
    member_id: str
    instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Sequence[tuple[str, bytes]]
    reason: str


class Joined(NamedTuple):
    """The answer to a join. Only the leader is told the `members`: id, instance id and metadata."""

    error: ErrorCode
    generation: int
    member_id: str
    leader_id: str
    protocol: str
    members: Sequence[tuple[str, str | None, bytes]]
    skip_assignment: bool


def join(connection: Connection, wanted: JoinRequest, timeout_ms: int) -> Joined:
    """Join, and wait until all members have joined. Raises ChannelError."""
    answer = ask(
        connection,
        ApiKey.JOIN_GROUP,
        wait_ms=wanted.rebalance_timeout_ms + timeout_ms,
        group_id=wanted.group_id,
        session_timeout=wanted.session_timeout_ms,
        rebalance_timeout=wanted.rebalance_timeout_ms,
        member_id=wanted.member_id,
        group_instance_id=wanted.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=[{"name": name, "metadata": data} for name, data in wanted.protocols],
        reason=wanted.reason,
    )
    return Joined(
        error_code(answer.error_code),
        answer.generation_id,
        answer.member_id,
        answer.leader,
        answer.protocol_name or "",
        [
            (each.member_id, getattr(each, "group_instance_id", None), bytes(each.metadata))
            for each in answer.members
        ],
        bool(getattr(answer, "skip_assignment", False)),
    )


def sync(
    connection: Connection,
    group_id: str,
    member: Membership,
    protocol: str,
    assignments: Mapping[str, bytes],
    timeout_ms: int,
) -> tuple[ErrorCode, bytes]:
    """Send the leader's assignments, none from other members, and wait for one's own. Raises ChannelError."""
    answer = ask(
        connection,
        ApiKey.SYNC_GROUP,
        wait_ms=timeout_ms,
        group_id=group_id,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=protocol,
        assignments=[{"member_id": each, "assignment": data} for each, data in assignments.items()],
    )
    return error_code(answer.error_code), bytes(answer.assignment)


def heartbeat(connection: Connection, group_id: str, member: Membership) -> ErrorCode:
    """Say that the member lives. Raises ChannelError."""
    answer = ask(
        connection,
        ApiKey.HEARTBEAT,
        group_id=group_id,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
    )
    return error_code(answer.error_code)


def leave(connection: Connection, group_id: str, member_ids: Iterable[str], reason: str) -> None:
    """Leave the group; errors of the members do not matter any more. Raises ChannelError."""
    key = ApiKey.LEAVE_GROUP
    if connection.version_of(key) < _SEVERAL_LEAVE_FROM:
        for member_id in member_ids:
            ask(connection, key, group_id=group_id, member_id=member_id)
        return
    members = [{"member_id": each, "group_instance_id": None, "reason": reason} for each in member_ids]
    ask(connection, key, group_id=group_id, members=members)
