"""Sends the requests with which tools look at consumer groups and change their offsets.

Rules: KIP-222 (list, describe, delete), KIP-496 (delete offsets), KIP-709 (several groups at once).
Every broker lists the groups that it coordinates; all other requests go to the coordinator of the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from klog.client.cluster import Cluster
from klog.client.connection import Connection
from klog.client.consumer_protocol import partitions_by_topic
from klog.client.coordinators import CoordinatorType, ask_coordinators
from klog.client.errors import ClientError, RefusedError
from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode, error_code
from klog.protocol.messages import build, request_class, request_struct

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
    for broker_id in sorted(int(broker.node_id) for broker in cluster.metadata(()).brokers):
        for group in _listed(cluster, broker_id):
            found[group.group_id] = group
    return sorted(found.values())


def _listed(cluster: Cluster, broker_id: int) -> list[ListedGroup]:
    """The groups that a broker coordinates; waits while it loads some."""
    retry = cluster.new_retry()
    while True:
        connection = cluster.connection(broker_id)
        version = connection.version_of(ApiKey.LIST_GROUPS)
        answer = connection.send(
            build(request_class(ApiKey.LIST_GROUPS, version), states_filter=(), types_filter=())
        )
        code = error_code(answer.error_code)
        if code is ErrorCode.NONE:
            return [
                ListedGroup(
                    each.group_id,
                    each.protocol_type,
                    getattr(each, "group_state", ""),
                    getattr(each, "group_type", ""),
                )
                for each in answer.groups
            ]
        error = RefusedError(f"groups of broker {broker_id}", code)
        if not code.retriable:
            raise error
        retry.failed(error)


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

    def ask(connection: Connection, groups: Sequence[str]) -> dict[str, RefusedError | None]:
        version = connection.version_of(ApiKey.DELETE_GROUPS)
        request = build(request_class(ApiKey.DELETE_GROUPS, version), groups_names=tuple(groups))
        return {
            each.group_id: refused(each.group_id, each.error_code)
            for each in connection.send(request).results
        }

    return ask_groups(cluster, group_ids, ask)


def fetch_offsets(
    cluster: Cluster, group_ids: Iterable[str], *, stable: bool = False
) -> dict[str, dict[TopicPartition, CommittedOffset] | KlogError]:
    """All offsets that each group has committed. Raises ChannelError.

    `stable` lets the client wait for the end of transactions that commit offsets (KIP-447).
    """

    def ask(
        connection: Connection, groups: Sequence[str]
    ) -> dict[str, dict[TopicPartition, CommittedOffset] | RefusedError]:
        version = connection.version_of(ApiKey.OFFSET_FETCH)
        if version < _ALL_TOPICS_FROM:
            raise ClientError(f"{connection} does not tell all offsets of a group", cure="it is too old")
        kind = request_class(ApiKey.OFFSET_FETCH, version)
        if version < _SEVERAL_GROUPS_FROM:
            return {
                group: _offsets(
                    group,
                    connection.send(build(kind, group_id=group, topics=None, require_stable=stable)),
                )
                for group in groups
            }
        wanted = request_struct(ApiKey.OFFSET_FETCH, version, "OffsetFetchRequestGroup")
        request = build(
            kind,
            groups=tuple(
                build(wanted, group_id=group, topics=None, member_id=None, member_epoch=-1)
                for group in groups
            ),
            require_stable=stable,
        )
        return {each.group_id: _offsets(each.group_id, each) for each in connection.send(request).groups}

    return ask_groups(cluster, group_ids, ask)


def _offsets(group: str, answer: Entity) -> dict[TopicPartition, CommittedOffset] | RefusedError:
    if error := refused(group, answer.error_code, "offsets of group"):
        return error
    found = {}
    for topic in answer.topics:
        for part in topic.partitions:
            partition = TopicPartition(topic.name, part.partition_index)
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
    version = connection.version_of(ApiKey.OFFSET_COMMIT, _LAST_CLASSIC_COMMIT)
    topic_kind, kind = (
        request_struct(ApiKey.OFFSET_COMMIT, version, name)
        for name in ("OffsetCommitRequestTopic", "OffsetCommitRequestPartition")
    )
    topics = tuple(
        build(
            topic_kind,
            name=topic,
            partitions=tuple(
                build(
                    kind,
                    partition_index=number,
                    committed_offset=offsets[TopicPartition(topic, number)].offset,
                    committed_leader_epoch=offsets[TopicPartition(topic, number)].leader_epoch,
                    commit_timestamp=-1,
                    committed_metadata=offsets[TopicPartition(topic, number)].metadata,
                )
                for number in numbers
            ),
        )
        for topic, numbers in partitions_by_topic(offsets).items()
    )
    request = build(
        request_class(ApiKey.OFFSET_COMMIT, version),
        group_id=group,
        generation_id_or_member_epoch=membership.generation,
        member_id=membership.member_id,
        group_instance_id=membership.instance_id,
        topics=topics,
    )
    return _partition_errors(connection.send(request))


def _partition_errors(answer: Entity) -> dict[TopicPartition, ErrorCode]:
    return {
        TopicPartition(topic.name, part.partition_index): error_code(part.error_code)
        for topic in answer.topics
        for part in topic.partitions
    }


def commit_offsets(
    cluster: Cluster, group: str, offsets: Mapping[TopicPartition, CommittedOffset]
) -> dict[TopicPartition, ErrorCode]:
    """Set the offsets of a group that has no members; gives the error of each partition.

    Raises ClientError, ChannelError.
    """

    def ask(
        connection: Connection, groups: Sequence[str]
    ) -> dict[str, dict[TopicPartition, ErrorCode] | RefusedError]:
        (name,) = groups
        return {name: _whole(name, commit_request(connection, name, offsets))}

    return _only(group, ask_groups(cluster, [group], ask))


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
    by_topic = partitions_by_topic(partitions)

    def ask(
        connection: Connection, groups: Sequence[str]
    ) -> dict[str, dict[TopicPartition, ErrorCode] | RefusedError]:
        (name,) = groups
        version = connection.version_of(ApiKey.OFFSET_DELETE)
        topic_kind, kind = (
            request_struct(ApiKey.OFFSET_DELETE, version, struct)
            for struct in ("OffsetDeleteRequestTopic", "OffsetDeleteRequestPartition")
        )
        topics = tuple(
            build(
                topic_kind,
                name=topic,
                partitions=tuple(build(kind, partition_index=number) for number in numbers),
            )
            for topic, numbers in by_topic.items()
        )
        answer = connection.send(
            build(request_class(ApiKey.OFFSET_DELETE, version), group_id=name, topics=topics)
        )
        return {name: refused(name, answer.error_code) or _partition_errors(answer)}

    return _only(group, ask_groups(cluster, [group], ask))


def _only(group: str, found: Mapping[str, _Answer | KlogError]) -> _Answer:
    answer = found[group]
    if isinstance(answer, KlogError):
        raise answer
    return answer
