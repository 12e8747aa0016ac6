"""Answers OffsetCommit, OffsetFetch and OffsetDelete.

Rules: Kafka's `KafkaApis` and the message schemas; the decisions are in `coordinator.group`. Version 0 of
OffsetCommit and OffsetFetch is about offsets in the metadata tree (`tree_offsets`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from klog.coordinator.groups.requests import GroupRequests
from klog.coordinator.groups.values import (
    EPOCHS_FROM,
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    CommittedOffset,
    FetchedOffset,
    Identity,
)
from klog.formats.names import PartitionKey
from klog.protocol.entity_fields import Entity, Value
from klog.protocol.error_codes import ErrorCode
from klog.server.handlers.answers import (
    Struct,
    by_topic,
    entity_of,
    milliseconds,
    partition_error,
    send_answer,
)
from klog.server.handlers.groups.tree_offsets import TreeOffsets
from klog.server.network.request import Request

_NO_RETENTION_MS: Final = -1
OFFSETS_IN_GROUPS_FROM: Final = 1
_GROUP_ERROR_FROM: Final = 2
_SEVERAL_GROUPS_FROM: Final = 8


@dataclass(frozen=True, slots=True)
class OffsetsHandler:
    """Answers requests about committed offsets.

    `known` says whether the cluster has a partition; `clock_ms` is the wall clock.
    """

    groups: GroupRequests
    tree: TreeOffsets
    known: Callable[[PartitionKey], bool]
    clock_ms: Callable[[], int]

    def commit(self, request: Request) -> None:
        """OffsetCommit: answered when the offsets are replicated, or in the tree."""
        asked = entity_of(request)
        if request.api_version < OFFSETS_IN_GROUPS_FROM:
            send_answer(request, topics=by_topic(self.tree.commit(asked), partition_error))
            return
        retention = getattr(asked, "retention_time", None)
        retention_ms = _NO_RETENTION_MS if retention is None else milliseconds(retention)
        now_ms = self.clock_ms()
        expires_ms = NO_TIMESTAMP if retention_ms == _NO_RETENTION_MS else now_ms + retention_ms
        wanted = commits_of(asked, now_ms, expires_ms)
        commits = {key: commit for key, commit in wanted.items() if self.known(key)}

        def answer(errors: Mapping[PartitionKey, ErrorCode]) -> None:
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answer_errors(request, {key: errors.get(key, unknown) for key in wanted})

        if not commits:
            answer({})
            return
        identity = Identity(
            asked.member_id,
            asked.generation_id_or_member_epoch,
            getattr(asked, "group_instance_id", None),
            knows_epochs=request.api_version >= EPOCHS_FROM,
        )
        self.groups.commit(asked.group_id, identity, commits, answer)

    def fetch(self, request: Request) -> None:
        """OffsetFetch: answered at once."""
        asked = entity_of(request)
        require_stable = getattr(asked, "require_stable", False)
        if request.api_version >= _SEVERAL_GROUPS_FROM:
            send_answer(request, groups=[self._group(each, require_stable) for each in asked.groups])
            return
        keys = _keys_of(asked.topics)
        if request.api_version < OFFSETS_IN_GROUPS_FROM:
            in_tree = self.tree.fetch(asked.group_id, keys or ())
            send_answer(request, topics=by_topic(in_tree.items(), _offset))
            return
        error, offsets = self.groups.fetch_offsets(asked.group_id, keys, require_stable=require_stable)
        if error and request.api_version < _GROUP_ERROR_FROM:
            # The version has no place for the group's error but the partitions.
            offsets = dict.fromkeys(keys or (), FetchedOffset(error=error))
        send_answer(request, error_code=error, topics=by_topic(offsets.items(), _offset))

    def _group(self, asked: Entity, require_stable: bool) -> Struct:
        error, offsets = self.groups.fetch_offsets(
            asked.group_id,
            _keys_of(asked.topics),
            require_stable=require_stable,
            member=Identity(getattr(asked, "member_id", None) or "", getattr(asked, "member_epoch", -1)),
        )
        topics = by_topic(offsets.items(), _offset)
        return {"group_id": asked.group_id, "topics": topics, "error_code": error}

    def delete(self, request: Request) -> None:
        """OffsetDelete: answered at once."""
        asked = entity_of(request)
        wanted = {
            (topic.name, each.partition_index): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for topic in asked.topics
            for each in topic.partitions
        }
        error, errors = self.groups.delete_offsets(asked.group_id, [key for key in wanted if self.known(key)])
        answer_errors(request, {} if error else {**wanted, **errors}, error_code=error)


def commits_of(
    asked: Entity, now_ms: int, expires_ms: int = NO_TIMESTAMP
) -> dict[PartitionKey, CommittedOffset]:
    """The offsets that a request commits. If it names a partition twice, the last offset counts."""
    return {
        (topic.name, each.partition_index): CommittedOffset(
            each.committed_offset,
            getattr(each, "committed_leader_epoch", NO_LEADER_EPOCH),
            each.committed_metadata or "",
            _time_of(each, now_ms),
            expires_ms,
        )
        for topic in asked.topics
        for each in topic.partitions
    }


def _time_of(asked: Entity, now_ms: int) -> int:
    """When an offset counts as committed. Only OffsetCommit 1 may say so."""
    timestamp_ms: int = getattr(asked, "commit_timestamp", NO_TIMESTAMP)
    return now_ms if timestamp_ms == NO_TIMESTAMP else timestamp_ms


def _keys_of(topics: Iterable[Entity] | None) -> list[PartitionKey] | None:
    if topics is None:
        return None
    return [(topic.name, number) for topic in topics for number in topic.partition_indexes]


def _offset(number: int, fetched: FetchedOffset) -> Struct:
    return {
        "partition_index": number,
        "committed_offset": fetched.offset,
        "committed_leader_epoch": fetched.leader_epoch,
        "metadata": fetched.metadata,
        "error_code": fetched.error,
    }


def answer_errors(request: Request, errors: Mapping[PartitionKey, ErrorCode], **values: Value) -> None:
    """Answer with the error of each partition."""
    send_answer(request, topics=by_topic(errors.items(), partition_error), **values)
