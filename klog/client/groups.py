"""Sends the requests with which tools look at consumer groups and change their offsets.

Rules: KIP-222 (list, describe, delete), KIP-496 (delete offsets), KIP-709 (several groups at once).
Every broker lists the groups that it coordinates; all other requests go to the coordinator of the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from klog.client.asking import ask_every_broker
from klog.client.cluster import Cluster
from klog.client.connection import Connection
from klog.client.coordinators import CoordinatorType, ask_coordinators
from klog.client.errors import ClientError, RefusedError
from klog.client.requests import ask, by_partition, by_topic
from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity, Value
from klog.protocol.error_codes import ErrorCode, error_code

NO_OFFSET: Final = -1
_SEVERAL_GROUPS_FROM: Final = 8
_ALL_TOPICS_FROM: Final = 2
_LAST_CLASSIC_COMMIT: Final = 9

_Answer = TypeVar("_Answer")


class ListedGroup(NamedTuple):
    """A group as a broker lists it; state and type are empty if the broker is too old to tell them."""

    group_id: str
    protocol_type: str
    state: str
    type: str


class CommittedOffset(NamedTuple):
    """The offset that a group has committed for a partition; `metadata` is the client's text."""

    offset: int
    leader_epoch: int = NO_OFFSET
    metadata: str = ""


def list_groups(cluster: Cluster) -> list[ListedGroup]:
    """All groups of all brokers. Raises ClientError, ChannelError."""
    found: dict[str, ListedGroup] = {}
    for _, answer in ask_every_broker(cluster, "groups", _list):
        for each in answer.groups:
            found[each.group_id] = ListedGroup(
                each.group_id,
                each.protocol_type,
                getattr(each, "group_state", ""),
                getattr(each, "group_type", ""),
            )
    return sorted(found.values())


def _list(connection: Connection) -> Entity:
    return ask(connection, ApiKey.LIST_GROUPS, states_filter=(), types_filter=())


def ask_groups(
    cluster: Cluster,
    groups: Iterable[str],
    ask: Callable[[Connection, Sequence[str]], Mapping[str, _Answer | RefusedError]],
    brokers: dict[str, int] | None = None,
) -> dict[str, _Answer | KlogError]:
    """What the coordinators of groups answer, as `ask_coordinators` gives it."""
    return ask_coordinators(cluster, CoordinatorType.GROUP, groups, ask, brokers)


def refused(group: str, code: int, what: str = "group") -> RefusedError | None:
    """The error of a group, None if there is none."""
    found = error_code(code)
    return None if found is ErrorCode.NONE else RefusedError(f"{what} {group}", found)


def delete_groups(cluster: Cluster, group_ids: Iterable[str]) -> dict[str, KlogError | None]:
    """Delete groups without members; None for each that was deleted. Raises ChannelError."""

    def ask_coordinator(connection: Connection, groups: Sequence[str]) -> dict[str, RefusedError | None]:
        answer = ask(connection, ApiKey.DELETE_GROUPS, groups_names=groups)
        return {each.group_id: refused(each.group_id, each.error_code) for each in answer.results}

    return ask_groups(cluster, group_ids, ask_coordinator)


def fetch_offsets(
    cluster: Cluster, group_ids: Iterable[str], *, stable: bool = False
) -> dict[str, dict[TopicPartition, CommittedOffset] | KlogError]:
    """All offsets that each group has committed. Raises ChannelError.

    `stable` lets the client wait for the end of transactions that commit offsets (KIP-447).
    """

    def ask_coordinator(
        connection: Connection, groups: Sequence[str]
    ) -> dict[str, dict[TopicPartition, CommittedOffset] | RefusedError]:
        key = ApiKey.OFFSET_FETCH
        version = connection.version_of(key)
        if version < _ALL_TOPICS_FROM:
            raise ClientError(f"{connection} does not tell all offsets of a group", cure="it is too old")
        if version < _SEVERAL_GROUPS_FROM:
            return {
                group: _offsets(
                    group, ask(connection, key, group_id=group, topics=None, require_stable=stable)
                )
                for group in groups
            }
        wanted = [
            {"group_id": group, "topics": None, "member_id": None, "member_epoch": -1} for group in groups
        ]
        answer = ask(connection, key, groups=wanted, require_stable=stable)
        return {each.group_id: _offsets(each.group_id, each) for each in answer.groups}

    return ask_groups(cluster, group_ids, ask_coordinator)


def _offsets(group: str, answer: Entity) -> dict[TopicPartition, CommittedOffset] | RefusedError:
    if error := refused(group, answer.error_code, "offsets of group"):
        return error
    found = {}
    for partition, part in by_partition(answer.topics):
        if error := refused(f"{group} for {partition}", part.error_code, "offset of group"):
            return error
        if part.committed_offset != NO_OFFSET:
            epoch = getattr(part, "committed_leader_epoch", NO_OFFSET)
            found[partition] = CommittedOffset(part.committed_offset, epoch, part.metadata or "")
    return found


class Membership(NamedTuple):
    """Who commits: a member in a generation, or nobody, which only groups without members accept."""

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


NOBODY: Final = Membership()


def commit_request(
    connection: Connection,
    group: str,
    offsets: Mapping[TopicPartition, CommittedOffset],
    membership: Membership = NOBODY,
) -> dict[TopicPartition, ErrorCode]:
    """Commit offsets at the coordinator of the group; gives the error of each partition.

    Raises ChannelError.
    """

    def part(partition: TopicPartition) -> dict[str, Value]:
        committed = offsets[partition]
        return {
            "partition_index": partition.partition,
            "committed_offset": committed.offset,
            "committed_leader_epoch": committed.leader_epoch,
            "commit_timestamp": -1,
            "committed_metadata": committed.metadata,
        }

    answer = ask(
        connection,
        ApiKey.OFFSET_COMMIT,
        at_most=_LAST_CLASSIC_COMMIT,
        group_id=group,
        generation_id_or_member_epoch=membership.generation,
        member_id=membership.member_id,
        group_instance_id=membership.instance_id,
        topics=by_topic(offsets, part),
    )
    return _partition_errors(answer)


def _partition_errors(answer: Entity) -> dict[TopicPartition, ErrorCode]:
    return {partition: error_code(part.error_code) for partition, part in by_partition(answer.topics)}


def commit_offsets(
    cluster: Cluster, group: str, offsets: Mapping[TopicPartition, CommittedOffset]
) -> dict[TopicPartition, ErrorCode]:
    """Set the offsets of a group that has no members; gives the error of each partition.

    Raises ClientError, ChannelError.
    """

    return _ask_group(cluster, group, lambda asked: _whole(group, commit_request(asked, group, offsets)))


def _whole(
    group: str, errors: dict[TopicPartition, ErrorCode]
) -> dict[TopicPartition, ErrorCode] | RefusedError:
    """The error of the group, if the coordinator gives it for every partition."""
    codes = set(errors.values())
    if len(codes) == 1 and ErrorCode.NONE not in codes:
        return RefusedError(f"group {group}", codes.pop())
    return errors


def delete_offsets(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Delete committed offsets of topics that the group does not read; gives the error of each partition.

    Raises ClientError, ChannelError.
    """
    topics = by_topic(partitions, lambda each: {"partition_index": each.partition})

    def ask_coordinator(connection: Connection) -> dict[TopicPartition, ErrorCode] | RefusedError:
        answer = ask(connection, ApiKey.OFFSET_DELETE, group_id=group, topics=topics)
        return refused(group, answer.error_code) or _partition_errors(answer)

    return _ask_group(cluster, group, ask_coordinator)


def _ask_group(
    cluster: Cluster, group: str, ask_coordinator: Callable[[Connection], _Answer | RefusedError]
) -> _Answer:
    answer = ask_groups(cluster, [group], lambda asked, _: {group: ask_coordinator(asked)})[group]
    if isinstance(answer, KlogError):
        raise answer
    return answer
