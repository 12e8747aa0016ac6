"""The fast readers and writers of group records equal the definitions."""

from __future__ import annotations

import construct as c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.coordinator.groups import records
from klog.coordinator.groups.records import GroupMetadata, MemberMetadata, RecordKey
from klog.coordinator.groups.values import NO_LEADER_EPOCH, NO_TIMESTAMP, CommittedOffset
from klog.formats import binary, consumer_offsets
from klog.formats.consumer_offsets import GroupMetadataValue, Key, OffsetCommitValue
from klog.formats.errors import FormatError

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
NULLABLE = st.none() | TEXT
DATA = st.binary(max_size=20)
# 4 is read through the definition, 3 and 1 are also written.
VERSIONS = st.integers(0, 4)

COMMITS = st.builds(CommittedOffset, INT64, INT32, TEXT, INT64, INT64)
MEMBERS = st.builds(MemberMetadata, TEXT, NULLABLE, TEXT, TEXT, INT32, INT32, DATA, DATA)
GROUPS = st.builds(
    GroupMetadata, TEXT, INT32, NULLABLE, NULLABLE, INT64, st.lists(MEMBERS, max_size=3).map(tuple)
)


def defined_commit(commit: CommittedOffset, version: int) -> bytes:
    fields = c.Container(
        version=version,
        offset=commit.offset,
        leaderEpoch=commit.leader_epoch,
        metadata=commit.metadata,
        commitTimestamp=commit.commit_timestamp_ms,
        expireTimestamp=commit.expire_timestamp_ms,
        taggedFields=[],
    )
    return binary.build(OffsetCommitValue, fields, "value")


def defined_group(group: GroupMetadata, version: int) -> bytes:
    members = [
        c.Container(
            memberId=member.member_id,
            groupInstanceId=member.instance_id,
            clientId=member.client_id,
            clientHost=member.client_host,
            rebalanceTimeout=member.rebalance_timeout_ms,
            sessionTimeout=member.session_timeout_ms,
            subscription=member.subscription,
            assignment=member.assignment,
            taggedFields=[],
        )
        for member in group.members
    ]
    fields = c.Container(
        version=version,
        protocolType=group.protocol_type,
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader_id,
        currentStateTimestamp=group.state_timestamp_ms,
        members=members,
        taggedFields=[],
    )
    return binary.build(GroupMetadataValue, fields, "value")


@given(COMMITS, VERSIONS)
def test_committed_offsets_are_read_as_defined(commit: CommittedOffset, version: int) -> None:
    expected = commit._replace(
        leader_epoch=commit.leader_epoch if version >= 3 else NO_LEADER_EPOCH,
        expire_timestamp_ms=commit.expire_timestamp_ms if version == 1 else NO_TIMESTAMP,
    )
    assert records.read_offset_value(defined_commit(commit, version)) == expected


@given(COMMITS, st.integers(1, 3))
def test_committed_offsets_are_written_in_older_versions(commit: CommittedOffset, wanted: int) -> None:
    version = wanted if commit.expire_timestamp_ms == NO_TIMESTAMP else 1
    assert records.offset_value(commit, wanted) == defined_commit(commit, version)


@given(GROUPS, st.integers(0, 3))
def test_groups_are_written_in_older_versions(group: GroupMetadata, version: int) -> None:
    assert records.group_value(group, version) == defined_group(group, version)


@given(COMMITS)
def test_committed_offsets_are_written_as_defined(commit: CommittedOffset) -> None:
    version = 3 if commit.expire_timestamp_ms == NO_TIMESTAMP else 1
    assert records.offset_value(commit) == defined_commit(commit, version)
    lasting = commit._replace(expire_timestamp_ms=NO_TIMESTAMP)
    assert records.offset_value(lasting) == defined_commit(lasting, 3)


@given(GROUPS, VERSIONS)
def test_groups_are_read_as_defined(group: GroupMetadata, version: int) -> None:
    expected = GroupMetadata(
        group.protocol_type,
        group.generation_id,
        group.protocol_name,
        group.leader_id,
        group.state_timestamp_ms if version >= 2 else NO_TIMESTAMP,
        tuple(
            member._replace(
                instance_id=member.instance_id if version >= 3 else None,
                rebalance_timeout_ms=member.rebalance_timeout_ms if version else member.session_timeout_ms,
            )
            for member in group.members
        ),
    )
    assert records.read_group_value(defined_group(group, version)) == expected


@given(GROUPS)
def test_groups_are_written_as_defined(group: GroupMetadata) -> None:
    assert records.group_value(group) == defined_group(group, 3)


@given(TEXT, TEXT, INT32)
def test_keys_are_written_and_read_as_defined(group_id: str, topic: str, partition: int) -> None:
    offset = records.offset_key(group_id, (topic, partition))
    fields = {"group": group_id, "topic": topic, "partition": partition}
    assert offset == binary.build(Key, c.Container(version=1, **fields), "key")
    assert records.read_key(offset) == RecordKey(group_id, (topic, partition))
    assert records.read_key(b"\0\0" + offset[2:]) == RecordKey(group_id, (topic, partition))
    group = records.group_key(group_id)
    assert group == binary.build(Key, c.Container(version=2, group=group_id), "key")
    assert records.read_key(group) == RecordKey(group_id)


@pytest.mark.parametrize("kind", [-1, 3, 24, 500])
def test_records_of_other_kinds_of_groups_are_not_read(kind: int) -> None:
    assert records.read_key(kind.to_bytes(2, "big", signed=True) + b"anything") is None


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (records.read_key, records.read_offset_value, records.read_group_value):
        try:
            read(data)
        except FormatError:
            continue


@given(GROUPS, st.data())
def test_a_cut_record_is_refused(group: GroupMetadata, data: st.DataObject) -> None:
    whole = records.group_value(group)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(FormatError):
        records.read_group_value(whole[:cut])


def test_a_string_that_does_not_fit_is_refused() -> None:
    with pytest.raises(FormatError):
        records.group_key("x" * 0x8000)
    assert consumer_offsets.parse(records.group_key("x" * 0x7FFF), None).key["group"] == "x" * 0x7FFF
