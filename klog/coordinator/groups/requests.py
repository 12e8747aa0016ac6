"""Checks the requests of clients of the group coordinator, and gives each to its group.

Rules: Kafka's `GroupCoordinator`. The checks that all requests share are in `owner`: the group id, and
whether this broker coordinates the group now.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from klog.coordinator.groups.classic.group import Group
from klog.coordinator.groups.classic.rebalance import JoinReply, SyncReply
from klog.coordinator.groups.commit_run import CommitRun
from klog.coordinator.groups.consumer.group import ConsumerGroup
from klog.coordinator.groups.coordinator import GroupCoordinator
from klog.coordinator.groups.group_partition import GroupPartition
from klog.coordinator.groups.offsets.offsets import Commits
from klog.coordinator.groups.services import Wait
from klog.coordinator.groups.values import (
    CONSUMER_PROTOCOL,
    NO_MEMBER,
    CommittedOffset,
    DescribedGroup,
    FetchedOffset,
    GroupState,
    Identity,
    JoinRequest,
    JoinResult,
    LeavingMember,
    ListedGroup,
    SyncRequest,
    SyncResult,
)
from klog.formats.names import PartitionKey
from klog.protocol.error_codes import ErrorCode

_UTF16: Final = "utf-16-le"

NOBODY: Final = Identity()

CommitErrors = Mapping[PartitionKey, ErrorCode]


@dataclass(frozen=True, slots=True)
class GroupRequests:
    """The requests of clients, without their bytes. Safe for threads."""

    coordinator: GroupCoordinator

    def owner(self, group_id: str | None, *, may_be_empty: bool = False) -> GroupPartition | ErrorCode:
        """The partition that holds the group, or the error that all its requests are answered."""
        if group_id is None or not (group_id or may_be_empty):
            return ErrorCode.INVALID_GROUP_ID
        return self.coordinator.owner_of(group_id)

    def _refuses(self, instance_id: str | None) -> bool:
        """Whether the cluster's older brokers would lose a static member's instance id."""
        return instance_id is not None and not self.coordinator.settings.has_static_members

    # -- members ---------------------------------------------------------------------------------------------

    def join(self, group_id: str, asked: JoinRequest, reply: JoinReply) -> None:
        """JoinGroup: `reply` is called when the group's members are together."""
        settings = self.coordinator.settings
        if self._refuses(asked.instance_id):
            reply(JoinResult(ErrorCode.UNSUPPORTED_VERSION, NO_MEMBER))
            return
        owner = self.owner(group_id)
        if isinstance(owner, ErrorCode):
            reply(JoinResult(owner, asked.member_id))
            return
        if not (
            settings.min_session_timeout_ms <= asked.session_timeout_ms <= settings.max_session_timeout_ms
        ):
            reply(JoinResult(ErrorCode.INVALID_SESSION_TIMEOUT, asked.member_id))
            return
        with owner.lock():
            entry = owner.get(group_id)
            if entry is None:
                if asked.member_id:
                    owner.put(lambda: reply(JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, asked.member_id)))
                    return
                entry = owner.get_or_create(group_id)
            elif isinstance(entry.group, ConsumerGroup) and entry.group.is_empty:
                owner.make_classic(entry, entry.group)
            entry.group.join(asked, reply, owner.now())
            owner.put_effects(entry)

    def sync(self, group_id: str, asked: SyncRequest, reply: SyncReply) -> None:
        """SyncGroup: `reply` is called when the leader's assignments are written."""
        if self._refuses(asked.identity.instance_id):
            reply(SyncResult(ErrorCode.UNSUPPORTED_VERSION))
            return
        owner = self.owner(group_id)
        if isinstance(owner, ErrorCode):
            loading = owner is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            # While the group is loaded nobody knows its state. The member joins again.
            reply(SyncResult(ErrorCode.REBALANCE_IN_PROGRESS if loading else owner))
            return
        with owner.lock():
            entry = owner.get(group_id)
            if entry is None:
                owner.put(lambda: reply(SyncResult(ErrorCode.UNKNOWN_MEMBER_ID)))
                return
            entry.group.sync(asked, reply, owner.now())
            owner.put_effects(entry)

    def heartbeat(self, group_id: str, identity: Identity) -> ErrorCode:
        """Heartbeat: the member is alive."""
        if self._refuses(identity.instance_id):
            return ErrorCode.UNSUPPORTED_VERSION
        owner = self.owner(group_id)
        if isinstance(owner, ErrorCode):
            # Sessions start when the group is loaded.
            loading = owner is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return ErrorCode.NONE if loading else owner
        with owner.lock():
            entry = owner.get(group_id)
            if entry is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            error = entry.group.heartbeat(identity, owner.now())
            owner.put_effects(entry)
            return error

    def leave(self, group_id: str, leaving: Sequence[LeavingMember]) -> tuple[ErrorCode, Sequence[ErrorCode]]:
        """LeaveGroup: the error of the request, and that of each member if the request has none."""
        owner = self.owner(group_id)
        if isinstance(owner, ErrorCode):
            return owner, ()
        with owner.lock():
            entry = owner.get(group_id)
            if entry is None:
                return ErrorCode.NONE, [ErrorCode.UNKNOWN_MEMBER_ID] * len(leaving)
            errors = entry.group.leave(leaving, owner.now())
            owner.put_effects(entry)
            return ErrorCode.NONE, errors

    # -- offsets ---------------------------------------------------------------------------------------------

    def commit(
        self,
        group_id: str,
        identity: Identity,
        commits: Mapping[PartitionKey, CommittedOffset],
        reply: Callable[[CommitErrors], None],
    ) -> None:
        """OffsetCommit: `reply` gets the error of each partition when the offsets are replicated."""
        if self._refuses(identity.instance_id):
            reply(dict.fromkeys(commits, ErrorCode.UNSUPPORTED_VERSION))
            return
        owner = self.owner(group_id, may_be_empty=True)
        if isinstance(owner, ErrorCode):
            reply(dict.fromkeys(commits, owner))
            return
        with owner.lock():
            entry = owner.get(group_id)
            if entry is None:
                if identity.generation_id >= 0:
                    owner.put(lambda: reply(dict.fromkeys(commits, ErrorCode.ILLEGAL_GENERATION)))
                    return
                entry = owner.get_or_create(group_id)
            error = entry.group.commit_error(identity)
            if error:
                owner.put(lambda: reply(dict.fromkeys(commits, error)))
                return
            entry.group.renew_session(identity.member_id, owner.now())
            owner.put_effects(entry)
            self.store(owner, commits, reply, partial(owner.put_commits, entry))

    def commit_run(self, run: CommitRun, keys: Sequence[PartitionKey]) -> Wait | bool:
        """Take commits of the usual kind where they were read, as `GroupPartition.commit_run`.

        The effect is that of `commit` for each of them. What is not usual is left to it, and so are errors.
        """
        if run.largest_metadata_bytes > self.coordinator.settings.max_metadata_bytes:
            return False
        group_id = run.group
        owner = self.coordinator.owner_of(group_id)
        return False if isinstance(owner, ErrorCode) else owner.commit_run(run, group_id, keys)

    def store(
        self,
        owner: GroupPartition,
        commits: Mapping[PartitionKey, CommittedOffset],
        reply: Callable[[CommitErrors], None],
        put: Callable[[Commits, Callable[[ErrorCode], None]], None],
    ) -> None:
        """Let `put` write the offsets whose metadata is not too long. The caller holds the owner's lock."""
        limit = self.coordinator.settings.max_metadata_bytes
        stored = {key: commit for key, commit in commits.items() if utf16_units(commit.metadata) <= limit}
        errors = {
            key: ErrorCode.NONE if key in stored else ErrorCode.OFFSET_METADATA_TOO_LARGE for key in commits
        }
        if not stored:
            owner.put(lambda: reply(errors))
            return

        def done(error: ErrorCode) -> None:
            reply({key: error if key in stored else refused for key, refused in errors.items()})

        put(stored, done)

    def fetch_offsets(
        self,
        group_id: str,
        keys: Collection[PartitionKey] | None,
        *,
        require_stable: bool,
        member: Identity = NOBODY,
    ) -> tuple[ErrorCode, Mapping[PartitionKey, FetchedOffset]]:
        """OffsetFetch: the error of the group, or its offsets for these partitions (None: for all).

        If a member of a consumer group says who it is, it must be up to date.
        """
        owner = self.owner(group_id, may_be_empty=True)
        if isinstance(owner, ErrorCode):
            return owner, {}
        with owner.lock():
            entry = owner.get(group_id)
            if entry is None:
                return ErrorCode.NONE, dict.fromkeys(keys or (), FetchedOffset())
            if isinstance(entry.group, ConsumerGroup):
                error = entry.group.fetch_error(member)
                if error:
                    return error, {}
            return ErrorCode.NONE, entry.offsets.fetch(keys, require_stable=require_stable)

    # -- administration --------------------------------------------------------------------------------------

    def describe(self, group_id: str) -> DescribedGroup:
        """DescribeGroups: a group that does not exist is Dead."""
        owner = self.owner(group_id, may_be_empty=True)
        if isinstance(owner, ErrorCode):
            return DescribedGroup(owner, group_id)
        with owner.lock():
            entry = owner.get(group_id)
            # Consumer groups have a request of their own.
            if entry is None or not isinstance(entry.group, Group):
                return DescribedGroup(ErrorCode.NONE, group_id, GroupState.DEAD.value)
            return entry.group.described()

    def list(self) -> tuple[ErrorCode, list[ListedGroup]]:
        """ListGroups: the groups of this broker; an error if it is still loading some."""
        loading = self.coordinator.is_loading
        listed: list[ListedGroup] = []
        for owner in self.coordinator.owned():
            with owner.lock():
                listed += (entry.group.listed() for entry in owner.entries.values())
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NONE, listed

    def delete(self, group_ids: Iterable[str]) -> dict[str, ErrorCode]:
        """DeleteGroups: removes empty groups with their offsets."""
        return {group_id: self._delete(group_id) for group_id in group_ids}

    def _delete(self, group_id: str) -> ErrorCode:
        owner = self.owner(group_id, may_be_empty=True)
        if isinstance(owner, ErrorCode):
            return owner
        with owner.lock():
            entry = owner.get(group_id)
            if entry is None:
                return ErrorCode.GROUP_ID_NOT_FOUND
            if not entry.group.is_empty:
                return ErrorCode.NON_EMPTY_GROUP
            owner.put_removals(entry, entry.offsets.remove_all(), with_group=True)
            owner.forget(entry, ErrorCode.UNKNOWN_MEMBER_ID)
            return ErrorCode.NONE

    def delete_offsets(
        self, group_id: str, keys: Collection[PartitionKey]
    ) -> tuple[ErrorCode, Mapping[PartitionKey, ErrorCode]]:
        """OffsetDelete: the error of the group, or that of each partition."""
        owner = self.owner(group_id)
        if isinstance(owner, ErrorCode):
            return owner, {}
        with owner.lock():
            entry = owner.get(group_id)
            if entry is None:
                return ErrorCode.GROUP_ID_NOT_FOUND, {}
            group = entry.group
            if not group.is_empty and group.protocol_type != CONSUMER_PROTOCOL:
                return ErrorCode.NON_EMPTY_GROUP, {}
            removable = [key for key in keys if not group.uses(key[0])]
            owner.remove_committed(entry, removable)
            refused = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            return ErrorCode.NONE, {key: ErrorCode.NONE if key in removable else refused for key in keys}


def utf16_units(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(_UTF16, "surrogatepass")) // 2
