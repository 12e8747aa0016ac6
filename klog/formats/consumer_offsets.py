"""Records of `__consumer_offsets`: committed offsets and groups, of both group coordinators.

Rules: Kafka's message schemas of the group coordinator (KIP-848 for consumer groups, KIP-932 for share
groups, KIP-1071 for streams groups; as of 4.1, with 3.9's form of type 9). The key starts with the record's
type. The value is that type's message after its own version; it is null if the entry was removed. Types 0 and
1 are commits and differ only in the number; 2 is a classic group. Later versions may add tagged fields
without a new version.
"""

from __future__ import annotations

from typing import Final

import construct as c

from klog.formats import schema
from klog.formats.keyed import Keyed
from klog.formats.schema import (
    BYTES,
    INT8,
    INT16,
    INT32,
    INT64,
    NEVER,
    STRING,
    UINT16,
    UUID,
    Field,
    array,
    struct,
)
from klog.formats.structures import Versioned

_GROUP: Final = Field("group", STRING, "group id")
_MEMBER: Final = Field("memberId", STRING, "member id")
_COMMIT_KEY: Final = (
    _GROUP,
    Field("topic", STRING, "whose offset is committed"),
    Field("partition", INT32, "whose offset is committed"),
)
# The new coordinator has another name for the group.
_GROUP_ID: Final = Field("groupId", STRING, "group id")
_MEMBER_KEY: Final = (_GROUP_ID, _MEMBER)

OffsetCommitValue: Final = schema.message(
    "OffsetCommitValue",
    range(5),
    4,
    Field("offset", INT64, "next offset to read"),
    Field("leaderEpoch", INT32, "of the last record read, -1 if unknown", since=3),
    Field("metadata", STRING, "the client's own note"),
    Field("commitTimestamp", INT64, "when it was committed (ms)"),
    Field("expireTimestamp", INT64, "when it expires (ms), -1 for the broker's default", since=1, until=1),
    Field("topicId", UUID, "id of the topic (4.1)", since=4, tag=0),
)
GroupMetadataValue: Final = schema.message(
    "GroupMetadataValue",
    range(5),
    4,
    Field("protocolType", STRING, "`consumer`, or what the client calls it"),
    Field("generation", INT32, "counts rebalances"),
    Field("protocol", STRING, "assignor that the members agreed on", null_since=0),
    Field("leader", STRING, "member id of the leader", null_since=0),
    Field("currentStateTimestamp", INT64, "when the group came to this state (ms)", since=2),
    Field(
        "members",
        array(
            struct(
                _MEMBER,
                Field("groupInstanceId", STRING, "of a static member (KIP-345)", since=3, null_since=3),
                Field("clientId", STRING, "of the client"),
                Field("clientHost", STRING, "of the client"),
                Field("rebalanceTimeout", INT32, "ms", since=1),
                Field("sessionTimeout", INT32, "ms"),
                Field("subscription", BYTES, "as the member sent it"),
                Field("assignment", BYTES, "as the leader made it"),
            )
        ),
        "of the group",
    ),
)

_TOPIC_PARTITIONS: Final = array(
    struct(Field("topicId", UUID, "of the topic"), Field("partitions", array(INT32), "of the topic"))
)
_EPOCH: Final = Field("epoch", INT32, "of the group")
_ASSIGNMENT_EPOCH: Final = Field(
    "assignmentEpoch", INT32, "epoch of the group that the assignment was made for"
)
_MEMBER_STATE: Final = (
    Field("memberEpoch", INT32, "of the member"),
    Field("previousMemberEpoch", INT32, "before the last change"),
    Field("state", INT8, "of the member"),
)
_CLIENT: Final = (
    Field("rackId", STRING, "of the member", null_since=0),
    Field("clientId", STRING, "of the client"),
    Field("clientHost", STRING, "of the client"),
)
_INSTANCE: Final = Field("instanceId", STRING, "of a static member", null_since=0)
_METADATA_HASH: Final = Field("metadataHash", INT64, "of the topics that the group subscribes to")
_TOPIC_METADATA: Final = Field(
    "topics",
    array(
        struct(
            Field("topicId", UUID, "of the topic"),
            Field("topicName", STRING, "of the topic"),
            Field("numPartitions", INT32, "of the topic"),
            Field(
                "partitionMetadata",
                array(
                    struct(
                        Field("partition", INT32, "number"), Field("racks", array(STRING), "of its replicas")
                    )
                ),
                "racks, where known",
            ),
        )
    ),
    "that the group subscribes to",
)
_CLASSIC_MEMBER: Final = struct(
    Field("sessionTimeoutMs", INT32, "ms"),
    Field(
        "supportedProtocols",
        array(struct(Field("name", STRING, "assignor"), Field("metadata", BYTES, "subscription"))),
        "of the member",
    ),
)


def _flexible(name: str, *fields: Field) -> Versioned:
    return schema.message(f"{name}Value", range(1), 0, *fields)


def _topic_states(*names: tuple[str, bool]) -> tuple[Field, ...]:
    topic = (Field("topicId", UUID, "of the topic"), Field("topicName", STRING, "of the topic"))
    partitions = Field("partitions", array(INT32), "of the topic")
    return tuple(
        Field(name, array(struct(*topic, partitions) if detailed else struct(*topic)), "topics in this state")
        for name, detailed in names
    )


_TASKS: Final = array(
    struct(Field("subtopologyId", STRING, "of the task"), Field("partitions", array(INT32), "of the task"))
)
_TASK_LISTS: Final = tuple(
    Field(name, _TASKS, "tasks") for name in ("activeTasks", "standbyTasks", "warmupTasks")
)
_REVOKED_TASK_LISTS: Final = tuple(
    Field(f"{field.name}PendingRevocation", _TASKS, "tasks still to be given up") for field in _TASK_LISTS
)
_INTERNAL_TOPICS: Final = array(
    struct(
        Field("name", STRING, "of the topic"),
        Field("partitions", INT32, "0: decided by the broker"),
        Field("replicationFactor", INT16, "0: the broker's default"),
        Field(
            "topicConfigs",
            array(struct(Field("key", STRING, "config"), Field("value", STRING, "of it"))),
            "to create it with",
        ),
    )
)
_SUBTOPOLOGY: Final = struct(
    Field("subtopologyId", STRING, "of the subtopology"),
    Field("sourceTopics", array(STRING), "it reads"),
    Field("sourceTopicRegex", array(STRING), "it reads"),
    Field("stateChangelogTopics", _INTERNAL_TOPICS, "of its stores"),
    Field("repartitionSinkTopics", array(STRING), "it writes"),
    Field("repartitionSourceTopics", _INTERNAL_TOPICS, "it reads"),
    Field(
        "copartitionGroups",
        array(
            struct(
                Field("sourceTopics", array(INT16), "indexes into sourceTopics"),
                Field("sourceTopicRegex", array(INT16), "indexes into sourceTopicRegex"),
                Field("repartitionSourceTopics", array(INT16), "indexes into repartitionSourceTopics"),
            )
        ),
        "topics that must have equal partition counts",
    ),
)

VALUES: Final[dict[int, Versioned]] = {
    0: OffsetCommitValue,
    1: OffsetCommitValue,
    2: GroupMetadataValue,
    3: _flexible(
        "ConsumerGroupMetadata", _EPOCH, Field("metadataHash", INT64, "of the subscribed topics (4.1)", tag=0)
    ),
    4: _flexible("ConsumerGroupPartitionMetadata", _TOPIC_METADATA),
    5: _flexible(
        "ConsumerGroupMemberMetadata",
        _INSTANCE,
        *_CLIENT,
        Field("subscribedTopicNames", array(STRING), "by name"),
        Field("subscribedTopicRegex", STRING, "by pattern", null_since=0),
        Field("rebalanceTimeoutMs", INT32, "ms"),
        Field("serverAssignor", STRING, "that the member asks for", null_since=0),
        Field(
            "classicMemberMetadata",
            _CLASSIC_MEMBER,
            "of a member of the classic protocol",
            null_since=0,
            tag=0,
        ),
    ),
    6: _flexible("ConsumerGroupTargetAssignmentMetadata", _ASSIGNMENT_EPOCH),
    7: _flexible(
        "ConsumerGroupTargetAssignmentMember", Field("topicPartitions", _TOPIC_PARTITIONS, "assigned")
    ),
    8: _flexible(
        "ConsumerGroupCurrentMemberAssignment",
        *_MEMBER_STATE,
        Field("assignedPartitions", _TOPIC_PARTITIONS, "that it holds"),
        Field("partitionsPendingRevocation", _TOPIC_PARTITIONS, "that it must still give up"),
    ),
    # 3.9's form. Share groups were an early preview there; 4.x replaced the type by 15.
    9: _flexible(
        "ShareGroupPartitionMetadata", *_topic_states(("initializedTopics", True), ("deletingTopics", False))
    ),
    10: _flexible(
        "ShareGroupMemberMetadata", *_CLIENT, Field("subscribedTopicNames", array(STRING), "by name")
    ),
    # 3.9's preview ended after the epoch.
    11: _flexible("ShareGroupMetadata", _EPOCH, _METADATA_HASH),
    12: _flexible("ShareGroupTargetAssignmentMetadata", _ASSIGNMENT_EPOCH),
    13: _flexible(
        "ShareGroupTargetAssignmentMember", Field("topicPartitions", _TOPIC_PARTITIONS, "assigned")
    ),
    14: _flexible(
        "ShareGroupCurrentMemberAssignment",
        *_MEMBER_STATE,
        Field("assignedPartitions", _TOPIC_PARTITIONS, "that it holds"),
    ),
    15: _flexible(
        "ShareGroupStatePartitionMetadata",
        *_topic_states(("initializingTopics", True), ("initializedTopics", True), ("deletingTopics", False)),
    ),
    16: _flexible(
        "ConsumerGroupRegularExpression",
        Field("topics", array(STRING), "that match"),
        Field("metadataVersion", INT64, "version of the metadata image that it was resolved against"),
        Field("timestamp", INT64, "when it was resolved (ms)"),
    ),
    17: _flexible("StreamsGroupMetadata", _EPOCH, _METADATA_HASH),
    19: _flexible(
        "StreamsGroupMemberMetadata",
        _INSTANCE,
        *_CLIENT,
        Field("rebalanceTimeoutMs", INT32, "ms"),
        Field("topologyEpoch", INT32, "of the member's topology"),
        Field("processId", STRING, "of the streams instance"),
        Field(
            "userEndpoint",
            struct(Field("host", STRING, "of it"), Field("port", UINT16, "of it")),
            "for interactive queries",
            null_since=0,
        ),
        Field(
            "clientTags",
            array(struct(Field("key", STRING, "of the tag"), Field("value", STRING, "of the tag"))),
            "for rack-aware standby tasks",
        ),
    ),
    20: _flexible("StreamsGroupTargetAssignmentMetadata", _ASSIGNMENT_EPOCH),
    21: _flexible("StreamsGroupTargetAssignmentMember", *_TASK_LISTS),
    22: _flexible("StreamsGroupCurrentMemberAssignment", *_MEMBER_STATE, *_TASK_LISTS, *_REVOKED_TASK_LISTS),
    23: _flexible(
        "StreamsGroupTopology", _EPOCH, Field("subtopologies", array(_SUBTOPOLOGY), "of the application")
    ),
}
TYPE_NAMES: Final[dict[int, str]] = {
    kind: value.title.removesuffix("Value") for kind, value in VALUES.items()
}

_KEY_FIELDS: Final[dict[int, tuple[Field, ...]]] = {
    **dict.fromkeys(TYPE_NAMES, (_GROUP_ID,)),
    **dict.fromkeys((0, 1), _COMMIT_KEY),
    2: (_GROUP,),
    **dict.fromkeys((5, 7, 8, 10, 13, 14, 19, 21, 22), _MEMBER_KEY),
    16: (_GROUP_ID, Field("regularExpression", STRING, "that members subscribe by")),
}
# Kafka calls the key's int16 a version; it is the record's type.
Key: Final = Versioned(
    "type of the record", {kind: schema.fields_of(0, NEVER, *fields) for kind, fields in _KEY_FIELDS.items()}
)
GroupRecord: Final = Keyed(
    "group record",
    Key,
    lambda key: VALUES[key["version"]],
    {f"{kind} {TYPE_NAMES[kind]}": value for kind, value in VALUES.items()},
)

parse: Final = GroupRecord.parse
build: Final = GroupRecord.build


def group_of(key: c.Container) -> str:
    """The group that a record belongs to."""
    return str(key["group"] if "group" in key else key["groupId"])
