"""The state of a consumer group as its records state it: epochs, members, targets, assignments, regexes.

A record that is put changes the state and is remembered, to be written. A record that is read from the log
changes the state alone. A log that was compacted may lack records that others refer to.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from klog.coordinator.groups.consumer.records import ConsumerRecord, GroupEpoch, RecordKind, Value
from klog.coordinator.groups.consumer.values import (
    AssignedPartition,
    CurrentAssignment,
    MemberSubscription,
    Partitions,
    ResolvedRegex,
)


class GroupRecords:
    """The present value of every record of one group. Not safe for threads."""

    def __init__(self) -> None:
        self.members: dict[str, MemberSubscription] = {}
        self.targets: dict[str, Partitions] = {}
        self.current: dict[str, CurrentAssignment] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        # All of them, by kind and name, in the order in which Kafka removes them.
        self._values: dict[RecordKind, dict[str, Any]] = {
            RecordKind.CURRENT: self.current,
            RecordKind.TARGET: self.targets,
            RecordKind.ASSIGNMENT_EPOCH: {},
            RecordKind.MEMBER: self.members,
            RecordKind.PARTITION_METADATA: {},  # of Kafka 4.0 and older
            RecordKind.REGEX: self.regexes,
            RecordKind.EPOCH: {},
        }
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
        values = self._values.get(kind)
        if values is None:
            return  # a record of the classic group
        if kind is RecordKind.MEMBER:
            self._note_member(name, values.get(name), value)
        elif kind is RecordKind.CURRENT:
            self._note_owner(name, values.get(name), value)
        if kind in (RecordKind.MEMBER, RecordKind.REGEX):
            self._subscribed = None
        if value is None:
            values.pop(name, None)
        else:
            values[name] = value

    def _note_member(self, member_id: str, old: MemberSubscription | None, new: Any) -> None:  # noqa: ANN401
        if old is not None and old.instance_id is not None and self._static.get(old.instance_id) == member_id:
            del self._static[old.instance_id]
        self.consumer_members -= old is not None and old.classic is None
        if new is not None:
            self.consumer_members += new.classic is None
            if new.instance_id is not None:
                self._static[new.instance_id] = member_id

    def _note_owner(self, member_id: str, old: CurrentAssignment | None, new: Any) -> None:  # noqa: ANN401
        before, now = old or CurrentAssignment(), new or CurrentAssignment()
        held = now.assigned | now.revoking
        for partition in (before.assigned | before.revoking) - held:
            if self._owners.get(partition) == member_id:
                del self._owners[partition]
        for partition in held:
            self._owners[partition] = member_id

    # -- views -----------------------------------------------------------------------------------------------

    @property
    def _group_epoch(self) -> GroupEpoch:
        found: GroupEpoch = self._values[RecordKind.EPOCH].get("", GroupEpoch())
        return found

    @property
    def exists(self) -> bool:
        """Whether the group has the record that every consumer group has."""
        return bool(self._values[RecordKind.EPOCH])

    @property
    def epoch(self) -> int:
        """The group's epoch; 0 if the group is new."""
        return self._group_epoch.epoch

    @property
    def metadata_hash(self) -> int:
        """The hash of the topics for which the epoch was set."""
        return self._group_epoch.metadata_hash

    @property
    def assignment_epoch(self) -> int:
        """The epoch of the target assignment; 0 if there is none."""
        found: int = self._values[RecordKind.ASSIGNMENT_EPOCH].get("", 0)
        return found

    @property
    def has_partition_metadata(self) -> bool:
        """Whether there is a record of Kafka 4.0 or older about the partitions."""
        return bool(self._values[RecordKind.PARTITION_METADATA])

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
        found: Value | None = self._values.get(kind, {}).get(name)
        return found

    def written_keys(self) -> Collection[tuple[RecordKind, str]]:
        """The keys of all records that have a value, in the order in which Kafka removes them."""
        return [(kind, name) for kind, values in self._values.items() for name in values]
