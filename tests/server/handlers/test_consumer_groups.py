"""Consumer groups on a broker: heartbeats, descriptions, offsets, and the change of a group's protocol."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from klog.client.consumer_protocol import encode_assignment
from klog.coordinator.groups.consumer_requests import ConsumerGroupRequests
from klog.coordinator.groups.requests import GroupRequests
from klog.formats.names import TopicPartition, decode_uuid
from klog.protocol.acls import (
    Acl,
    AclOperation,
    AclResourceType,
    PatternType,
    Permission,
    ResourcePattern,
)
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.security.authorization.acl_set import AclSet
from klog.server.handlers.access import Access
from klog.server.handlers.groups.consumer_groups import ConsumerGroupsHandler
from tests.coordinator.consumer.play import subscription
from tests.server.handlers.group_parts import GroupBroker
from tests.server.handlers.parts import TOPIC, answer_of, part_of
from tests.server.handlers.test_groups import restarted

HEARTBEAT, DESCRIBE = ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE
GROUP = "readers"
MINUTE = timedelta(minutes=1)
NONE = ErrorCode.NONE


def consumer_broker(
    path: Path, properties: dict[str, str] | None = None, access: Access | None = None
) -> GroupBroker:
    broker = GroupBroker(path, properties)
    ids = iter(f"made-{number}" for number in range(100))
    requests = ConsumerGroupRequests(GroupRequests(broker.coordinator))
    handler = ConsumerGroupsHandler(requests, lambda: next(ids), access)
    broker.handlers |= {HEARTBEAT: handler.heartbeat, DESCRIBE: handler.describe}
    return broker


@pytest.fixture
def broker(tmp_path: Path) -> GroupBroker:
    return consumer_broker(tmp_path)


def beat(broker: GroupBroker, member_id: str = "a", epoch: int = 0, version: int = 1, **values: Any) -> Any:
    full = {
        "rebalance_timeout": MINUTE,
        "subscribed_topic_names": (TOPIC,),
        "topic_partitions": (),
        "subscribed_topic_regex": None,
    }
    rest = dict.fromkeys(("subscribed_topic_names", "subscribed_topic_regex", "topic_partitions"))
    asked = {
        "group_id": GROUP,
        "member_id": member_id,
        "member_epoch": epoch,
        "instance_id": None,
        "rack_id": None,
        "server_assignor": None,
        "rebalance_timeout": timedelta(milliseconds=-1),
        **(rest if epoch else full),
        **values,
    }
    if version < 1:
        del asked["subscribed_topic_regex"]
    return broker.ask(HEARTBEAT, version, **asked)


def owned(broker: GroupBroker, *numbers: int, version: int = 1) -> tuple[Any, ...]:
    topic_id = UUID(bytes=decode_uuid(broker.lookup.metadata.snapshot.topic_ids[TOPIC]))
    topic = part_of(HEARTBEAT, version, "TopicPartitions", topic_id=topic_id, partitions=numbers)
    return (topic,) if numbers else ()


def assigned(answer: Any) -> list[int]:
    return [number for topic in answer.assignment.topic_partitions for number in topic.partitions]


def described(broker: GroupBroker, version: int = 1, group: str = GROUP) -> Any:
    answer = broker.ask(DESCRIBE, version, group_ids=(group,), include_authorized_operations=False)
    return answer.groups[0]


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_joins_beats_and_leaves_in_every_version(broker, version) -> None:
    joined = beat(broker, "" if version == 0 else "a", version=version)
    assert (joined.error_code, joined.error_message, joined.member_epoch) == (NONE, None, 1)
    assert joined.member_id == ("made-0" if version == 0 else "a")
    assert joined.heartbeat_interval == timedelta(seconds=5)
    assert assigned(joined) == [0]
    assert beat(broker, joined.member_id, 1, version).assignment is None
    left = beat(broker, joined.member_id, -1, version)
    assert (left.error_code, left.member_epoch) == (NONE, -1)


def test_configs_of_a_group_are_in_force_from_the_next_heartbeat_on(broker) -> None:
    beat(broker)
    broker.group_configs[GROUP] = {
        "consumer.heartbeat.interval.ms": 2_000,
        "consumer.session.timeout.ms": 50_000,
    }
    assert beat(broker, "a", 1).heartbeat_interval == timedelta(seconds=2)
    broker.pass_time(49_000)
    assert described(broker).group_state == "Stable"
    del broker.group_configs[GROUP]["consumer.heartbeat.interval.ms"]
    assert beat(broker, "a", 1).heartbeat_interval == timedelta(seconds=5)
    broker.pass_time(50_000)
    assert described(broker).group_state == "Empty"


@pytest.mark.parametrize("version", [0, 1])
def test_a_group_is_described_in_every_version(broker, version) -> None:
    beat(broker)
    group = described(broker, version)
    assert (group.error_code, group.group_state, group.assignor_name) == (NONE, "Stable", "uniform")
    assert (group.group_epoch, group.assignment_epoch) == (1, 1)
    (member,) = group.members
    assert (member.member_id, member.client_id, member.subscribed_topic_names) == ("a", "test", (TOPIC,))
    for assignment in (member.assignment, member.target_assignment):
        assert [(each.topic_name, each.partitions) for each in assignment.topic_partitions] == [(TOPIC, (0,))]
    if version:
        assert member.member_type == 1


def test_groups_of_the_other_kind_are_not_found(broker) -> None:
    beat(broker)
    (group,) = broker.ask(ApiKey.DESCRIBE_GROUPS, 2, groups=(GROUP,)).groups
    assert (group.error_code, group.group_state) == (NONE, "Dead")
    commit(broker, "classic", "", -1)
    for name in ("classic", "missing"):
        assert described(broker, group=name).error_code == ErrorCode.GROUP_ID_NOT_FOUND


REFUSED: list[tuple[dict[str, Any], ErrorCode, str]] = [
    ({"group_id": ""}, ErrorCode.INVALID_REQUEST, "GroupId can't be empty."),
    ({"member_id": ""}, ErrorCode.INVALID_REQUEST, "MemberId can't be empty."),
    ({"instance_id": ""}, ErrorCode.INVALID_REQUEST, "InstanceId can't be empty."),
    ({"rack_id": ""}, ErrorCode.INVALID_REQUEST, "RackId can't be empty."),
    (
        {"rebalance_timeout": timedelta(milliseconds=-1)},
        ErrorCode.INVALID_REQUEST,
        "RebalanceTimeoutMs must be provided in first request.",
    ),
    (
        {"topic_partitions": None},
        ErrorCode.INVALID_REQUEST,
        "TopicPartitions must be empty when (re-)joining.",
    ),
    (
        {"subscribed_topic_names": None},
        ErrorCode.INVALID_REQUEST,
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
    ),
    ({"epoch": -2}, ErrorCode.INVALID_REQUEST, "InstanceId can't be null."),
    ({"epoch": -3}, ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid."),
    (
        {"server_assignor": "x"},
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        "ServerAssignor x is not supported. Supported assignors: uniform, range.",
    ),
    (
        {"subscribed_topic_regex": "("},
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        "SubscribedTopicRegex `(` is not a valid regular expression: missing ): (.",
    ),
    ({"epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND, "Group readers not found."),
]


@pytest.mark.parametrize(("values", "error", "message"), REFUSED)
def test_an_invalid_heartbeat_is_refused_and_makes_no_group(broker, values, error, message) -> None:
    answer = beat(broker, **values)
    assert (answer.error_code, answer.error_message, answer.assignment) == (error, message, None)
    assert broker.ask(ApiKey.LIST_GROUPS, 5, states_filter=(), types_filter=()).groups == ()


def test_groups_are_listed_with_their_types(broker) -> None:
    beat(broker)
    commit(broker, "classic", "", -1)

    def listed(states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> set[tuple[str, str, str]]:
        answer = broker.ask(ApiKey.LIST_GROUPS, 5, states_filter=states, types_filter=types)
        return {(each.group_id, each.group_state, each.group_type) for each in answer.groups}

    consumer, classic = (GROUP, "Stable", "consumer"), ("classic", "Empty", "classic")
    assert listed() == {consumer, classic}
    assert listed(types=("Consumer",)) == {consumer}
    assert listed(types=("classic",)) == {classic}
    assert listed(states=("stable",)) == {consumer}


def commit(broker: GroupBroker, group: str, member_id: str, epoch: int, version: int = 9) -> ErrorCode:
    names = "OffsetCommitRequestTopic", "OffsetCommitRequestPartition"
    partition = part_of(
        ApiKey.OFFSET_COMMIT,
        version,
        names[1],
        partition_index=0,
        committed_offset=5,
        committed_leader_epoch=-1,
        committed_metadata="",
    )
    topic = part_of(ApiKey.OFFSET_COMMIT, version, names[0], name=TOPIC, partitions=(partition,))
    answer = broker.ask(
        ApiKey.OFFSET_COMMIT,
        version,
        group_id=group,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        group_instance_id=None,
        topics=(topic,),
    )
    error: ErrorCode = answer.topics[0].partitions[0].error_code
    return error


def fetch(broker: GroupBroker, member_id: str | None = None, epoch: int = -1) -> tuple[ErrorCode, list[int]]:
    asked = part_of(
        ApiKey.OFFSET_FETCH,
        9,
        "OffsetFetchRequestGroup",
        group_id=GROUP,
        member_id=member_id,
        member_epoch=epoch,
        topics=None,
    )
    (group,) = broker.ask(ApiKey.OFFSET_FETCH, 9, groups=(asked,), require_stable=False).groups
    return group.error_code, [each.committed_offset for topic in group.topics for each in topic.partitions]


def test_offsets_belong_to_members_of_the_present_epoch(broker) -> None:
    beat(broker)
    assert commit(broker, GROUP, "a", 1) == NONE
    assert commit(broker, GROUP, "a", 0) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(broker, GROUP, "b", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(broker, GROUP, "a", 1, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert fetch(broker) == fetch(broker, "a", 1) == (NONE, [5])
    assert fetch(broker, "a", 7) == (ErrorCode.STALE_MEMBER_EPOCH, [])
    assert fetch(broker, "b", 1) == (ErrorCode.UNKNOWN_MEMBER_ID, [])


def delete(broker: GroupBroker) -> ErrorCode:
    error: ErrorCode = broker.ask(ApiKey.DELETE_GROUPS, 2, groups_names=(GROUP,)).results[0].error_code
    return error


def test_a_group_with_members_is_not_deleted_and_an_empty_one_stays_away(broker) -> None:
    beat(broker)
    commit(broker, GROUP, "a", 1)
    assert delete(broker) == ErrorCode.NON_EMPTY_GROUP
    beat(broker, epoch=-1)
    assert described(broker).group_state == "Empty"
    assert delete(broker) == NONE
    assert described(broker).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    restarted(broker)
    assert fetch(broker) == (NONE, [])


def test_a_member_that_is_silent_is_removed(broker) -> None:
    beat(broker)
    broker.pass_time(45_000)
    assert described(broker).group_state == "Empty"
    assert beat(broker, epoch=1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_broker_without_the_protocol_says_so(tmp_path) -> None:
    broker = consumer_broker(tmp_path, {"group.coordinator.rebalance.protocols": "classic"})
    answer = beat(broker)
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.UNSUPPORTED_VERSION,
        "The consumer protocol is not enabled.",
    )


# -- the change of the protocol ------------------------------------------------------------------------------


def join(broker: GroupBroker, member_id: str = "", version: int = 3) -> Any:
    protocol = part_of(
        ApiKey.JOIN_GROUP, version, "JoinGroupRequestProtocol", name="range", metadata=subscription((TOPIC,))
    )
    request = broker.send(
        ApiKey.JOIN_GROUP,
        version,
        group_id=GROUP,
        session_timeout=MINUTE,
        rebalance_timeout=MINUTE,
        member_id=member_id,
        protocol_type="consumer",
        protocols=(protocol,),
    )
    if not request.answered:
        broker.pass_time(3_000)
    return answer_of(request)


def sync(broker: GroupBroker, joined: Any, assignment: bytes = b"") -> Any:
    given = part_of(
        ApiKey.SYNC_GROUP, 2, "SyncGroupRequestAssignment", member_id=joined.member_id, assignment=assignment
    )
    return broker.ask(
        ApiKey.SYNC_GROUP,
        2,
        group_id=GROUP,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=(given,),
    )


def heartbeat(broker: GroupBroker, joined: Any) -> ErrorCode:
    error: ErrorCode = broker.ask(
        ApiKey.HEARTBEAT,
        2,
        group_id=GROUP,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
    ).error_code
    return error


def classic_group(broker: GroupBroker) -> Any:
    joined = join(broker)
    assert (joined.error_code, joined.leader) == (NONE, joined.member_id)
    assert sync(broker, joined, encode_assignment([TopicPartition(TOPIC, 0)])).error_code == NONE
    return joined


def test_a_classic_group_becomes_a_consumer_group_while_it_has_members(broker) -> None:
    old = classic_group(broker)
    commit(broker, GROUP, old.member_id, old.generation_id)
    new = beat(broker)
    assert (new.error_code, new.member_epoch, assigned(new)) == (NONE, 2, [])
    assert {each.member_type for each in described(broker).members} == {0, 1}
    assert heartbeat(broker, old) == ErrorCode.REBALANCE_IN_PROGRESS
    again = join(broker, old.member_id)
    assert (again.error_code, again.leader, again.members) == (NONE, "", ())
    assert sync(broker, again).error_code == NONE
    restarted(broker)
    assert described(broker).group_epoch == 2
    assert fetch(broker) == (NONE, [5])


def test_the_policy_can_forbid_the_change(tmp_path) -> None:
    broker = consumer_broker(tmp_path, {"group.consumer.migration.policy": "downgrade"})
    old = classic_group(broker)
    answer = beat(broker)
    message = "Group readers is not a consumer group."
    assert (answer.error_code, answer.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, message)
    assert heartbeat(broker, old) == NONE


def test_a_consumer_group_becomes_classic_when_its_last_consumer_leaves(broker) -> None:
    old = classic_group(broker)
    beat(broker)
    again = join(broker, old.member_id)
    beat(broker, epoch=-1)
    (group,) = broker.ask(ApiKey.DESCRIBE_GROUPS, 2, groups=(GROUP,)).groups
    assert (group.error_code, group.group_state) == (NONE, "PreparingRebalance")
    assert heartbeat(broker, again) != NONE
    # It is classic also after a load, and what was written of it as a consumer group stays away.
    restarted(broker)
    once_more = join(broker, again.member_id)
    assert (once_more.error_code, once_more.leader) == (NONE, again.member_id)
    assert described(broker).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_an_empty_group_takes_the_protocol_of_whoever_comes_first(broker) -> None:
    commit(broker, GROUP, "", -1)
    assert beat(broker).error_code == NONE
    beat(broker, epoch=-1)
    assert classic_group(broker).generation_id == 1
    assert fetch(broker) == (NONE, [5])
    assert described(broker).error_code == ErrorCode.GROUP_ID_NOT_FOUND


class _Acls:
    """An ACL lets everybody describe one topic."""

    def __init__(self, topic: str) -> None:
        pattern = ResourcePattern(AclResourceType.TOPIC, topic, PatternType.LITERAL)
        acl = Acl(pattern, "User:*", "*", AclOperation.DESCRIBE, Permission.ALLOW)
        self.acls = AclSet({pattern: frozenset((acl,))})


@pytest.mark.parametrize(("described_topic", "expected"), [(TOPIC, [0]), ("another", [])])
def test_a_regular_expression_gives_no_topic_that_the_client_may_not_describe(
    tmp_path: Path, described_topic: str, expected: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    broker = consumer_broker(tmp_path, access=Access(_Acls(described_topic)))
    answer = beat(broker, subscribed_topic_regex=f"{TOPIC}.*", subscribed_topic_names=())
    assert (answer.error_code, assigned(answer)) == (NONE, expected)
    assert "Denied" not in caplog.text


def test_a_group_outlives_a_change_of_leadership(broker) -> None:
    beat(broker, instance_id="i", subscribed_topic_regex=f"{TOPIC}.*", subscribed_topic_names=())
    before = described(broker)
    restarted(broker)
    assert described(broker) == before
    assert beat(broker, epoch=1, instance_id="i", topic_partitions=owned(broker, 0)).assignment is None
    assert described(broker) == before
    broker.pass_time(45_000)
    assert described(broker).group_state == "Empty"
