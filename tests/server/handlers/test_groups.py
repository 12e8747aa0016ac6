"""Requests of groups, by every version of their messages, on a broker with a real log."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from klog.coordinator.groups.records import group_key, offset_key, offset_value, read_group_value, read_key
from klog.coordinator.groups.values import CommittedOffset
from klog.formats.names import CONSUMER_OFFSETS
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.protocol.apis import SERVED, ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.server.handlers.groups.offsets import OFFSETS_IN_GROUPS_FROM, commits_of
from klog.server.handlers.topics.topic_metadata import INTERNAL_TOPICS
from klog.storage.log.append_values import Origin
from tests.server.handlers.group_parts import PARTITIONS, TOPIC_ID, GroupBroker
from tests.server.handlers.parts import OTHER_BROKER, TOPIC, answer_of, part_of
from tests.waiting import eventually

GROUP = "readers"
SESSION = timedelta(seconds=10)
NONE = ErrorCode.NONE


def versions(api: ApiKey) -> range:
    return range(SERVED[api].min_version, SERVED[api].max_version + 1)


@pytest.fixture
def broker(tmp_path: Path) -> GroupBroker:
    return GroupBroker(tmp_path)


def join(broker: GroupBroker, version: int = 9, member_id: str = "", **values: Any):
    protocol = part_of(ApiKey.JOIN_GROUP, version, "JoinGroupRequestProtocol", name="range", metadata=b"r")
    return broker.send(
        ApiKey.JOIN_GROUP,
        version,
        **{
            "group_id": GROUP,
            "session_timeout": SESSION,
            "rebalance_timeout": SESSION,
            "member_id": member_id,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": (protocol,),
            "reason": None,
            **values,
        },
    )


def joined(broker: GroupBroker, version: int = 9, **values: Any):
    request = join(broker, version, **values)
    if request.answered:
        told = answer_of(request)
        assert told.error_code == ErrorCode.MEMBER_ID_REQUIRED
        request = join(broker, version, told.member_id, **values)
    for _ in range(10):
        if not request.answered:
            broker.pass_time(1_000)
    return answer_of(request)


def sync(broker: GroupBroker, member, version: int = 5, **values: Any):
    assignment = part_of(
        ApiKey.SYNC_GROUP,
        version,
        "SyncGroupRequestAssignment",
        member_id=member.member_id,
        assignment=b"mine",
    )
    return broker.ask(
        ApiKey.SYNC_GROUP,
        version,
        group_id=GROUP,
        generation_id=member.generation_id,
        member_id=member.member_id,
        group_instance_id=None,
        **{"protocol_type": "consumer", "protocol_name": "range", **values},
        assignments=(assignment,),
    )


def heartbeat(broker: GroupBroker, member, version: int = 4) -> int:
    return broker.ask(
        ApiKey.HEARTBEAT,
        version,
        group_id=GROUP,
        generation_id=member.generation_id,
        member_id=member.member_id,
        group_instance_id=None,
    ).error_code


def commit(broker: GroupBroker, version: int = 9, member=None, topics=((TOPIC, 0, 5),), **values: Any):
    entities = tuple(
        part_of(
            ApiKey.OFFSET_COMMIT,
            version,
            "OffsetCommitRequestTopic",
            name=topic,
            partitions=(
                part_of(
                    ApiKey.OFFSET_COMMIT,
                    version,
                    "OffsetCommitRequestPartition",
                    partition_index=partition,
                    committed_offset=offset,
                    committed_leader_epoch=2,
                    committed_metadata=values.get("metadata", "note"),
                ),
            ),
        )
        for topic, partition, offset in topics
    )
    return broker.send(
        ApiKey.OFFSET_COMMIT,
        version,
        group_id=values.get("group_id", GROUP),
        generation_id_or_member_epoch=-1 if member is None else member.generation_id,
        member_id="" if member is None else member.member_id,
        group_instance_id=values.get("instance"),
        retention_time=values.get("retention", timedelta(milliseconds=-1)),
        topics=entities,
    )


def errors_of(request) -> dict[tuple[str, int], int]:
    return {
        (topic.name, each.partition_index): each.error_code
        for topic in answer_of(request).topics
        for each in topic.partitions
    }


def fetch(
    broker: GroupBroker,
    version: int = 7,
    topics=((TOPIC, 0),),
    *,
    stable: bool = False,
    group_id: str = GROUP,
):
    """The answer's group, in the shape of the version."""
    several = version >= 8
    name = "OffsetFetchRequestTopics" if several else "OffsetFetchRequestTopic"
    entities = None
    if topics is not None:
        entities = tuple(
            part_of(ApiKey.OFFSET_FETCH, version, name, name=topic, partition_indexes=(partition,))
            for topic, partition in topics
        )
    if not several:
        return broker.ask(
            ApiKey.OFFSET_FETCH, version, group_id=group_id, topics=entities, require_stable=stable
        )
    group = part_of(
        ApiKey.OFFSET_FETCH, version, "OffsetFetchRequestGroup", group_id=group_id, topics=entities
    )
    answer = broker.ask(ApiKey.OFFSET_FETCH, version, groups=(group,), require_stable=stable)
    return answer.groups[0]


def offset_of(answer) -> tuple[int, str, int]:
    (topic,) = answer.topics
    (partition,) = topic.partitions
    return partition.committed_offset, partition.metadata, partition.error_code


# -- every version -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
def test_a_member_joins_in_every_version(broker, version: int) -> None:
    answer = joined(broker, version)
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (NONE, 1, "range")
    assert answer.leader == answer.member_id == "test-1"
    assert [(each.member_id, each.metadata) for each in answer.members] == [(answer.member_id, b"r")]


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
def test_a_refused_member_names_no_protocol(broker, version: int) -> None:
    answer = answer_of(join(broker, version, session_timeout=timedelta(milliseconds=1)))
    assert (answer.error_code, answer.generation_id) == (ErrorCode.INVALID_SESSION_TIMEOUT, -1)
    assert (answer.protocol_name, answer.leader, answer.members) == (None if version >= 7 else "", "", ())


@pytest.mark.parametrize("version", versions(ApiKey.SYNC_GROUP))
def test_a_member_gets_its_assignment_in_every_version(broker, version: int) -> None:
    answer = sync(broker, joined(broker), version)
    assert (answer.error_code, answer.assignment) == (NONE, b"mine")


@pytest.mark.parametrize("left_out", ["protocol_type", "protocol_name"])
def test_from_version_5_a_member_must_name_its_protocol(broker, left_out: str) -> None:
    member = joined(broker)
    answer = sync(broker, member, **{left_out: None})
    assert (answer.error_code, answer.assignment) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, b"")
    assert sync(broker, member, 4).error_code == NONE


@pytest.mark.parametrize("version", versions(ApiKey.HEARTBEAT))
def test_a_member_shows_that_it_is_alive_in_every_version(broker, version: int) -> None:
    member = joined(broker)
    assert heartbeat(broker, member, version) == NONE


@pytest.mark.parametrize("version", versions(ApiKey.LEAVE_GROUP))
def test_a_member_leaves_in_every_version(broker, version: int) -> None:
    member = joined(broker)
    leaving = {"member_id": member.member_id}
    if version >= 3:
        identity = part_of(
            ApiKey.LEAVE_GROUP, version, "MemberIdentity", group_instance_id=None, reason=None, **leaving
        )
        leaving = {"members": (identity,)}
    answer = broker.ask(ApiKey.LEAVE_GROUP, version, group_id=GROUP, **leaving)
    assert answer.error_code == NONE
    if version >= 3:
        assert [each.error_code for each in answer.members] == [NONE]
    again = broker.ask(ApiKey.LEAVE_GROUP, version, group_id=GROUP, **leaving)
    of_member = again.members[0].error_code if version >= 3 else again.error_code
    assert of_member == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT)[OFFSETS_IN_GROUPS_FROM:])
def test_offsets_are_committed_in_every_version(broker, version: int) -> None:
    assert errors_of(commit(broker, version)) == {(TOPIC, 0): NONE}
    assert offset_of(fetch(broker)) == (5, "note", NONE)
    assert fetch(broker).topics[0].partitions[0].committed_leader_epoch == (2 if version >= 6 else -1)


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH)[OFFSETS_IN_GROUPS_FROM:])
def test_offsets_are_fetched_in_every_version(broker, version: int) -> None:
    commit(broker)
    assert offset_of(fetch(broker, version)) == (5, "note", NONE)
    assert offset_of(fetch(broker, version, [("other", 9)])) == (-1, "", NONE)
    if version >= 2:
        assert offset_of(fetch(broker, version, None)) == (5, "note", NONE)


def test_only_version_1_says_when_an_offset_was_committed() -> None:
    now_ms = 1_000
    partition = part_of(
        ApiKey.OFFSET_COMMIT,
        1,
        "OffsetCommitRequestPartition",
        partition_index=0,
        committed_offset=5,
        commit_timestamp=77,
        committed_metadata=None,
    )
    topic = part_of(ApiKey.OFFSET_COMMIT, 1, "OffsetCommitRequestTopic", name=TOPIC, partitions=(partition,))
    (commit,) = commits_of(SimpleNamespace(topics=(topic,)), now_ms).values()
    assert commit.commit_timestamp_ms == 77
    unsaid = replace(topic, partitions=(replace(partition, commit_timestamp=-1),))
    (commit,) = commits_of(SimpleNamespace(topics=(unsaid,)), now_ms).values()
    assert commit.commit_timestamp_ms == now_ms


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH)[OFFSETS_IN_GROUPS_FROM:])
def test_the_groups_error_is_never_lost(tmp_path, version: int) -> None:
    answer = fetch(GroupBroker(tmp_path, lead=False), version)
    if version >= 2:
        assert (answer.error_code, answer.topics) == (ErrorCode.NOT_COORDINATOR, ())
    else:
        assert offset_of(answer) == (-1, "", ErrorCode.NOT_COORDINATOR)


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_GROUPS))
def test_groups_are_described_in_every_version(broker, version: int) -> None:
    sync(broker, joined(broker))
    wanted = {"groups": (GROUP, "unknown"), "include_authorized_operations": True}
    known, unknown = broker.ask(ApiKey.DESCRIBE_GROUPS, version, **wanted).groups
    assert (known.group_state, known.protocol_type, known.protocol_data) == ("Stable", "consumer", "range")
    (member,) = known.members
    assert (member.client_id, member.client_host) == ("test", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (b"r", b"mine")
    assert (unknown.error_code, unknown.group_state, unknown.members) == (NONE, "Dead", ())
    if version >= 3:
        assert known.authorized_operations == 1 << 3 | 1 << 6 | 1 << 8


@pytest.mark.parametrize("version", versions(ApiKey.LIST_GROUPS))
def test_groups_are_listed_in_every_version(broker, version: int) -> None:
    joined(broker)
    commit(broker, group_id="simple")
    answer = broker.ask(ApiKey.LIST_GROUPS, version)
    assert answer.error_code == NONE
    assert {(each.group_id, each.protocol_type) for each in answer.groups} == {
        (GROUP, "consumer"),
        ("simple", ""),
    }


@pytest.mark.parametrize(
    ("states", "types", "found"),
    [
        (("empty",), (), ["simple"]),
        (("COMPLETINGREBALANCE",), (), [GROUP]),
        (("nonsense",), (), []),
        ((), ("Classic",), [GROUP, "simple"]),
        ((), ("consumer",), []),
    ],
)
def test_lists_are_filtered(broker, states, types, found) -> None:
    joined(broker)
    commit(broker, group_id="simple")
    answer = broker.ask(ApiKey.LIST_GROUPS, 5, states_filter=states, types_filter=types)
    assert sorted(each.group_id for each in answer.groups) == found
    assert {each.group_type for each in answer.groups} <= {"classic"}


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_GROUPS))
def test_empty_groups_are_deleted_in_every_version(broker, version: int) -> None:
    joined(broker)
    commit(broker, group_id="simple")
    wanted = {"groups_names": (GROUP, "simple", "simple", "unknown")}
    answer = broker.ask(ApiKey.DELETE_GROUPS, version, **wanted)
    assert {each.group_id: each.error_code for each in answer.results} == {
        GROUP: ErrorCode.NON_EMPTY_GROUP,
        "simple": NONE,
        "unknown": ErrorCode.GROUP_ID_NOT_FOUND,
    }


def delete_offsets(broker: GroupBroker, *keys: tuple[str, int]):
    topics = tuple(
        part_of(
            ApiKey.OFFSET_DELETE,
            0,
            "OffsetDeleteRequestTopic",
            name=topic,
            partitions=(
                part_of(ApiKey.OFFSET_DELETE, 0, "OffsetDeleteRequestPartition", partition_index=number),
            ),
        )
        for topic, number in keys
    )
    return broker.send(ApiKey.OFFSET_DELETE, 0, group_id=GROUP, topics=topics)


def test_offsets_are_deleted(broker) -> None:
    commit(broker)
    broker.tell("other")
    request = delete_offsets(broker, (TOPIC, 0), ("other", 0), ("unknown", 0))
    assert answer_of(request).error_code == NONE
    assert errors_of(request) == {
        (TOPIC, 0): NONE,
        ("other", 0): NONE,
        ("unknown", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    # A group without members and offsets is gone.
    again = answer_of(delete_offsets(broker, (TOPIC, 0)))
    assert (again.error_code, again.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, ())


# -- commits -------------------------------------------------------------------------------------------------


def test_each_partition_has_its_own_error(broker) -> None:
    topics = (TOPIC, 0, 1), ("unknown", 0, 1), (TOPIC, 7, 1)
    assert errors_of(commit(broker, topics=topics)) == {
        (TOPIC, 0): NONE,
        ("unknown", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (TOPIC, 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ("é" * 4096, NONE),
        ("x" * 4097, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("\U0001f600" * 2049, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        (None, NONE),
    ],
)
def test_metadata_is_limited_in_utf_16_units(broker, metadata, error) -> None:
    assert errors_of(commit(broker, metadata=metadata)) == {(TOPIC, 0): error}


def test_a_member_of_an_older_generation_is_fenced(broker) -> None:
    member = joined(broker)
    assert errors_of(commit(broker, member=member)) == {(TOPIC, 0): ErrorCode.REBALANCE_IN_PROGRESS}
    sync(broker, member)
    assert errors_of(commit(broker, member=member)) == {(TOPIC, 0): NONE}
    assert errors_of(commit(broker)) == {(TOPIC, 0): ErrorCode.UNKNOWN_MEMBER_ID}


def test_a_generation_of_a_group_that_is_gone_is_illegal(broker) -> None:
    class Gone:
        member_id, generation_id = "m", 3

    assert errors_of(commit(broker, member=Gone)) == {(TOPIC, 0): ErrorCode.ILLEGAL_GENERATION}


def test_a_commit_is_acknowledged_when_it_is_replicated(tmp_path) -> None:
    broker = GroupBroker(tmp_path, lead=False)
    broker.lead_offsets(replicas=(1, OTHER_BROKER))
    request = commit(broker)
    assert not request.answered
    assert offset_of(fetch(broker, stable=True)) == (-1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert offset_of(fetch(broker)) == (-1, "", NONE)
    broker.follow(1, topic=CONSUMER_OFFSETS, partition=broker.coordinator.partition_for(GROUP))
    assert errors_of(request) == {(TOPIC, 0): NONE}
    assert offset_of(fetch(broker, stable=True)) == (5, "note", NONE)


def test_a_commit_that_is_not_replicated_in_time_is_answered_so(tmp_path) -> None:
    broker = GroupBroker(tmp_path, lead=False)
    broker.lead_offsets(replicas=(1, OTHER_BROKER))
    request = commit(broker)
    broker.pass_time(5_000)
    assert errors_of(request) == {(TOPIC, 0): ErrorCode.REQUEST_TIMED_OUT}


def test_an_offset_with_a_retention_of_its_own_expires_at_its_time(broker) -> None:
    commit(broker, 4, retention=timedelta(milliseconds=500))
    broker.pass_time(499)
    broker.coordinator.remove_expired_offsets()
    assert offset_of(fetch(broker)) == (5, "note", NONE)
    broker.pass_time(1)
    broker.coordinator.remove_expired_offsets()
    assert offset_of(fetch(broker)) == (-1, "", NONE)
    assert broker.ask(ApiKey.LIST_GROUPS, 5).groups == ()


def test_offsets_of_deleted_partitions_are_forgotten(broker) -> None:
    broker.tell("other")
    commit(broker, topics=((TOPIC, 0, 5), ("other", 0, 6)))
    broker.coordinator.partitions_deleted([("other", 0)])
    assert [topic.name for topic in fetch(broker, topics=None).topics] == [TOPIC]


# -- the internal topic --------------------------------------------------------------------------------------


def test_this_topic_is_internal() -> None:
    assert CONSUMER_OFFSETS in INTERNAL_TOPICS


def log_of(broker: GroupBroker):
    return broker.replicas.partitions[CONSUMER_OFFSETS, broker.coordinator.partition_for(GROUP)].log


def restarted(broker: GroupBroker, epoch: int = 2) -> None:
    """The broker loses the leadership and gets it back: everything is read from the log again."""
    for number in range(PARTITIONS):
        broker.lead(CONSUMER_OFFSETS, number, leader=OTHER_BROKER, epoch=epoch - 1, topic_id=TOPIC_ID)
    eventually(lambda: not broker.coordinator.owned())
    assert fetch(broker).error_code == ErrorCode.NOT_COORDINATOR
    broker.lead_offsets(epoch=epoch)


def test_groups_and_offsets_outlive_a_change_of_leadership(broker) -> None:
    member = joined(broker)
    sync(broker, member)
    commit(broker, member=member)
    commit(broker, group_id="simple")
    restarted(broker)
    assert offset_of(fetch(broker)) == (5, "note", NONE)
    assert heartbeat(broker, member) == NONE
    assert sync(broker, member).assignment == b"mine"
    states = {each.group_id: each.group_state for each in broker.ask(ApiKey.LIST_GROUPS, 5).groups}
    assert states == {GROUP: "Stable", "simple": "Empty"}


def test_what_was_removed_stays_removed_after_a_change_of_leadership(broker) -> None:
    member = joined(broker)
    sync(broker, member)
    commit(broker, member=member)
    delete_me = part_of(
        ApiKey.LEAVE_GROUP,
        5,
        "MemberIdentity",
        member_id=member.member_id,
        group_instance_id=None,
        reason=None,
    )
    broker.ask(ApiKey.LEAVE_GROUP, 5, group_id=GROUP, members=(delete_me,))
    broker.ask(ApiKey.DELETE_GROUPS, 2, groups_names=(GROUP,))
    restarted(broker)
    assert broker.ask(ApiKey.LIST_GROUPS, 5).groups == ()


def test_offsets_of_an_open_transaction_are_pending_after_a_change_of_leadership(broker) -> None:
    record = offset_key(GROUP, (TOPIC, 0)), offset_value(CommittedOffset(5, -1, "", 1))
    fields = BatchFields(producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)
    data = build_batch([RecordData(0, broker.clock(), *record)], fields)
    number = broker.coordinator.partition_for(GROUP)
    replica = broker.replicas.partitions[CONSUMER_OFFSETS, number]
    replica.append(memoryview(data), -1, broker.clock(), Origin.COORDINATOR)
    restarted(broker)
    assert offset_of(fetch(broker, stable=True)) == (-1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)


def test_whoever_waits_learns_that_the_coordinator_has_changed(broker) -> None:
    request = join(broker, 3)
    assert not request.answered
    restarted(broker)
    assert answer_of(request).error_code == ErrorCode.NOT_COORDINATOR


def test_an_append_in_an_older_epoch_is_refused(broker) -> None:
    (partition,) = [
        each for each in broker.coordinator.owned() if each.number == broker.coordinator.partition_for(GROUP)
    ]
    partition.leader_epoch = -7
    broker.lead_offsets(epoch=3)
    partition.leader_epoch = 1
    assert errors_of(commit(broker)) == {(TOPIC, 0): ErrorCode.NOT_COORDINATOR}


def test_requests_are_answered_while_the_groups_are_loaded(tmp_path) -> None:
    broker = GroupBroker(tmp_path, lead=False)
    broker.coordinator._loading[broker.coordinator.partition_for(GROUP)] = 0
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    class Member:
        member_id, generation_id = "m", 1

    assert answer_of(join(broker)).error_code == loading
    assert sync(broker, Member).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert heartbeat(broker, Member) == NONE
    assert errors_of(commit(broker)) == {(TOPIC, 0): loading}
    assert fetch(broker).error_code == loading
    assert broker.ask(ApiKey.LIST_GROUPS, 5).error_code == loading


def test_a_group_needs_a_name_to_be_joined_but_not_to_commit(broker) -> None:
    assert answer_of(join(broker, group_id="")).error_code == ErrorCode.INVALID_GROUP_ID
    assert errors_of(commit(broker, group_id="")) == {(TOPIC, 0): NONE}


def test_the_groups_record_is_kafkas(broker) -> None:
    member = joined(broker)
    sync(broker, member)
    log = log_of(broker)
    raw = Path(log.segments.active.file.path).read_bytes()
    key = b"\0\2" + len(GROUP).to_bytes(2, "big") + GROUP.encode()
    at = raw.index(key)
    assert read_key(raw[at : at + len(key)]).group_id == GROUP
    value = raw.index(b"\0\3\0\x08consumer", at)
    assert read_group_value(raw[value:-1]).generation_id == 1


def test_an_older_protocol_has_older_records_and_no_static_members(tmp_path: Path) -> None:
    old = GroupBroker(tmp_path, {"inter.broker.protocol.version": "2.0"})
    refused = ErrorCode.UNSUPPORTED_VERSION
    assert answer_of(join(old, group_instance_id="one")).error_code == refused
    member = joined(old)
    assert sync(old, member).error_code == NONE
    assert errors_of(commit(old, member=member)) == {(TOPIC, 0): NONE}
    assert errors_of(commit(old, member=member, instance="one")) == {(TOPIC, 0): refused}
    raw = Path(log_of(old).segments.active.file.path).read_bytes()
    written = CommittedOffset(5, -1, "note", old.clock())
    assert offset_value(written, 1) in raw
    value = raw.index(b"\0\1\0\x08consumer", raw.index(group_key(GROUP)))
    assert read_group_value(raw[value:]).members[0].session_timeout_ms == 10_000
    restarted(old)
    assert offset_of(fetch(old)) == (5, "note", NONE)
    assert heartbeat(old, member) == NONE
