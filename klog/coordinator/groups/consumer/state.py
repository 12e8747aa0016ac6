"""The state of a consumer group as its records state it: epochs, members, targets, assignments, regexes.

A record that is put changes the state and is remembered, to be written. A record that is read from the log
changes the state alone. A log that was compacted may lack records that others refer to.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

from klog.coordinator.groups.consumer.records import ConsumerRecord, GroupEpoch, RecordKind, Value
from klog.coordinator.groups.consumer.values import (
    AssignedPartition,
    CurrentAssignment,
    MemberSubscription,
    Partitions,
    ResolvedRegex,
)

T = TypeVar("T")


class GroupRecords:
    """The present value of every record of one group. Not safe for threads."""

    def __init__(self) -> None:
        self.group_epoch: GroupEpoch | None = None
        self.assignment_epoch = 0
        self.members: dict[str, MemberSubscription] = {}
        self.targets: dict[str, Partitions] = {}
        self.current: dict[str, CurrentAssignment] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.has_partition_metadata = False  # of Kafka 4.0 and older
        self._has_assignment_epoch = False
        self.consumer_members = 0  # those that do not use the classic protocol
        self._static: dict[str, str] = {}
        self._owners: dict[AssignedPartition, str] = {}
        self._subscribed: frozenset[str] | None = None
        self._changes: list[ConsumerRecord] = []

    # -- changes ---------------------------------------------------------------------------------------------

    def put(self, kind: RecordKind, name: str = "", value: Value | None = None) -> None:
        """Change the state by a record that is to be written; without a value, by a tombstone."""
        record = ConsumerRecord(kind, name, value)
        self.apply(record)
        self._changes.append(record)

    def take_changes(self) -> list[ConsumerRecord]:
        """The records that were put since the last call."""
        taken, self._changes = self._changes, []
        return taken

    def apply(self, record: ConsumerRecord) -> None:
        """Change the state by a record."""
        kind, name, value = record
        if kind is RecordKind.EPOCH:
            self.group_epoch = value if isinstance(value, GroupEpoch) else None
        elif kind is RecordKind.ASSIGNMENT_EPOCH:
            self._has_assignment_epoch = isinstance(value, int)
            self.assignment_epoch = value if isinstance(value, int) else 0
        elif kind is RecordKind.MEMBER:
            self._apply_member(name, value if isinstance(value, MemberSubscription) else None)
        elif kind is RecordKind.TARGET:
            _set(self.targets, name, value if isinstance(value, frozenset) else None)
        elif kind is RecordKind.CURRENT:
            self._apply_current(name, value if isinstance(value, CurrentAssignment) else None)
        elif kind is RecordKind.REGEX:
            _set(self.regexes, name, value if isinstance(value, ResolvedRegex) else None)
            self._subscribed = None
        elif kind is RecordKind.PARTITION_METADATA:
            self.has_partition_metadata = value is not None

    def _apply_member(self, member_id: str, member: MemberSubscription | None) -> None:
        old = self.members.get(member_id)
        if old is not None and old.instance_id is not None and self._static.get(old.instance_id) == member_id:
            del self._static[old.instance_id]
        self.consumer_members -= old is not None and old.classic is None
        if member is not None:
            self.consumer_members += member.classic is None
            if member.instance_id is not None:
                self._static[member.instance_id] = member_id
        _set(self.members, member_id, member)
        self._subscribed = None

    def _apply_current(self, member_id: str, current: CurrentAssignment | None) -> None:
        old = self.current.get(member_id, CurrentAssignment())
        new = current or CurrentAssignment()
        held = new.assigned | new.revoking
        for partition in (old.assigned | old.revoking) - held:
            if self._owners.get(partition) == member_id:
                del self._owners[partition]
        for partition in held:
            self._owners[partition] = member_id
        _set(self.current, member_id, current)

    # -- views -----------------------------------------------------------------------------------------------

    @property
    def exists(self) -> bool:
        """Whether the group has the record that every consumer group has."""
        return self.group_epoch is not None

    @property
    def epoch(self) -> int:
        """The group's epoch; 0 if the group is new."""
        return 0 if self.group_epoch is None else self.group_epoch.epoch

    @property
    def metadata_hash(self) -> int:
        """The hash of the topics for which the epoch was set."""
        return 0 if self.group_epoch is None else self.group_epoch.metadata_hash

    @property
    def subscribed(self) -> frozenset[str]:
        """The names of all topics that members subscribe to, by name or by a regular expression."""
        if self._subscribed is None:
            every = {member.topics for member in self.members.values()}
            names = set().union(*every, *(regex.topics for regex in self.regexes.values()))
            self._subscribed = frozenset(names)
        return self._subscribed

    def subscription_of(self, member: MemberSubscription) -> frozenset[str]:
        """The names of the topics that one member subscribes to."""
        resolved = self.regexes.get(member.regex or "")
        return frozenset(member.topics if resolved is None else (*member.topics, *resolved.topics))

    def static_member(self, instance_id: str) -> MemberSubscription | None:
        """The member that has this instance id."""
        return self.members.get(self._static.get(instance_id, ""))

    def current_of(self, member_id: str) -> CurrentAssignment:
        """What a member has; nothing, in epoch 0, if that is not recorded."""
        return self.current.get(member_id) or CurrentAssignment()

    def owner_of(self, partition: AssignedPartition) -> str | None:
        """The member that reads a partition, or has not confirmed that it gave it up."""
        return self._owners.get(partition)

    def value_of(self, kind: RecordKind, name: str) -> Value | None:
        """The present value of a record; None if it is removed."""
        if kind is RecordKind.EPOCH:
            return self.group_epoch
        if kind is RecordKind.ASSIGNMENT_EPOCH:
            return self.assignment_epoch if self._has_assignment_epoch else None
        values = {
            RecordKind.MEMBER: self.members,
            RecordKind.TARGET: self.targets,
            RecordKind.CURRENT: self.current,
            RecordKind.REGEX: self.regexes,
        }.get(kind, {})
        found: Value | None = values.get(name)  # type: ignore[attr-defined]
        return found

    def written_keys(self) -> Collection[tuple[RecordKind, str]]:
        """The keys of all records that have a value, in the order in which Kafka removes them."""
        keys = [(RecordKind.CURRENT, name) for name in self.current]
        keys += ((RecordKind.TARGET, name) for name in self.targets)
        if self._has_assignment_epoch:
            keys.append((RecordKind.ASSIGNMENT_EPOCH, ""))
        keys += ((RecordKind.MEMBER, name) for name in self.members)
        if self.has_partition_metadata:
            keys.append((RecordKind.PARTITION_METADATA, ""))
        keys += ((RecordKind.REGEX, name) for name in self.regexes)
        if self.exists:
            keys.append((RecordKind.EPOCH, ""))
        return keys


def _set(values: dict[str, T], name: str, value: T | None) -> None:
    if value is None:
        values.pop(name, None)
    else:
        values[name] = value
