"""The requests of groups, in any version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from klog.protocol.apis import ApiKey
from tests.comparison.messages import Ask, Part

LONG: Final = timedelta(seconds=300)
NO_TIME: Final = timedelta(milliseconds=-1)

Protocols = Sequence[tuple[str, bytes]]


class Commit(NamedTuple):
    """One partition of a commit."""

    topic: str
    partition: int
    offset: int
    metadata: str | None = ""
    leader_epoch: int = -1


class Identity(NamedTuple):
    """Who sends a request."""

    member_id: str = ""
    generation_id: int = -1
    instance_id: str | None = None


def join(
    version: int,
    group: str,
    member_id: str = "",
    protocols: Protocols = (("range", b""),),
    *,
    instance_id: str | None = None,
    protocol_type: str = "consumer",
    session: timedelta = LONG,
    rebalance: timedelta = LONG,
) -> Ask:
    parts = tuple(
        Part("JoinGroupRequestProtocol", {"name": name, "metadata": metadata}) for name, metadata in protocols
    )
    values = {
        "group_id": group,
        "session_timeout": session,
        "rebalance_timeout": rebalance,
        "member_id": member_id,
        "group_instance_id": instance_id,
        "protocol_type": protocol_type,
        "protocols": parts,
        "reason": "because",
    }
    return Ask(ApiKey.JOIN_GROUP, version, values)


def sync(
    version: int,
    group: str,
    who: Identity,
    assignments: Mapping[str, bytes],
    protocol_type: str | None = "consumer",
    protocol_name: str | None = "range",
) -> Ask:
    parts = tuple(
        Part("SyncGroupRequestAssignment", {"member_id": member_id, "assignment": assignment})
        for member_id, assignment in assignments.items()
    )
    protocol = {"protocol_type": protocol_type, "protocol_name": protocol_name}
    return Ask(ApiKey.SYNC_GROUP, version, {**_identity(group, who), **protocol, "assignments": parts})


def _identity(group: str, who: Identity) -> dict[str, object]:
    return {
        "group_id": group,
        "generation_id": who.generation_id,
        "member_id": who.member_id,
        "group_instance_id": who.instance_id,
    }


def heartbeat(version: int, group: str, who: Identity) -> Ask:
    return Ask(ApiKey.HEARTBEAT, version, _identity(group, who))


def leave(version: int, group: str, *leaving: tuple[str, str | None]) -> Ask:
    """Versions before 3 have room for the first id only."""
    members = tuple(
        Part("MemberIdentity", {"member_id": member_id, "group_instance_id": instance_id, "reason": "bye"})
        for member_id, instance_id in leaving
    )
    return Ask(
        ApiKey.LEAVE_GROUP, version, {"group_id": group, "member_id": leaving[0][0], "members": members}
    )


def commit(
    version: int, group: str, who: Identity, commits: Sequence[Commit], retention: timedelta = NO_TIME
) -> Ask:
    values = {
        "group_id": group,
        "generation_id_or_member_epoch": who.generation_id,
        "member_id": who.member_id,
        "group_instance_id": who.instance_id,
        "retention_time": retention,
        "topics": committed_topics("OffsetCommit", commits),
    }
    return Ask(ApiKey.OFFSET_COMMIT, version, values)


def committed_topics(api: str, commits: Sequence[Commit]) -> tuple[Part, ...]:
    by_topic: dict[str, list[Part]] = {}
    for each in commits:
        values = {
            "partition_index": each.partition,
            "committed_offset": each.offset,
            "committed_leader_epoch": each.leader_epoch,
            "committed_metadata": each.metadata,
        }
        by_topic.setdefault(each.topic, []).append(Part(f"{api}RequestPartition", values))
    return tuple(
        Part(f"{api}RequestTopic", {"name": topic, "partitions": tuple(parts)})
        for topic, parts in by_topic.items()
    )


Wanted = Mapping[str, tuple[int, ...]]


def fetch(version: int, groups: Mapping[str, Wanted | None], *, require_stable: bool = False) -> Ask:
    """Versions before 8 have room for the first group only; None asks for all partitions."""
    several = version >= 8
    name = "OffsetFetchRequestTopics" if several else "OffsetFetchRequestTopic"
    topics = {
        group: None
        if wanted is None
        else tuple(
            Part(name, {"name": topic, "partition_indexes": numbers}) for topic, numbers in wanted.items()
        )
        for group, wanted in groups.items()
    }
    if not several:
        group, of_group = next(iter(topics.items()))
        values = {"group_id": group, "topics": of_group, "require_stable": require_stable}
        return Ask(ApiKey.OFFSET_FETCH, version, values)
    parts = tuple(
        Part(
            "OffsetFetchRequestGroup",
            {"group_id": group, "topics": of_group, "member_id": None, "member_epoch": -1},
        )
        for group, of_group in topics.items()
    )
    return Ask(ApiKey.OFFSET_FETCH, version, {"groups": parts, "require_stable": require_stable})


def delete_offsets(group: str, wanted: Wanted) -> Ask:
    topics = tuple(
        Part(
            "OffsetDeleteRequestTopic",
            {
                "name": topic,
                "partitions": tuple(
                    Part("OffsetDeleteRequestPartition", {"partition_index": number}) for number in numbers
                ),
            },
        )
        for topic, numbers in wanted.items()
    )
    return Ask(ApiKey.OFFSET_DELETE, 0, {"group_id": group, "topics": topics})


def describe(version: int, *groups: str, operations: bool = False) -> Ask:
    return Ask(
        ApiKey.DESCRIBE_GROUPS, version, {"groups": groups, "include_authorized_operations": operations}
    )


def list_groups(version: int, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> Ask:
    return Ask(ApiKey.LIST_GROUPS, version, {"states_filter": states, "types_filter": types})


def delete_groups(version: int, *groups: str) -> Ask:
    return Ask(ApiKey.DELETE_GROUPS, version, {"groups_names": groups})


def find_coordinator(version: int, kind: int, *keys: str) -> Ask:
    """Versions before 4 have room for the first key only; 0 asks for a group always."""
    return Ask(
        ApiKey.FIND_COORDINATOR,
        version,
        {"key": keys[0] if keys else "", "key_type": kind, "coordinator_keys": keys},
    )
