"""The records of KRaft's metadata log by type: names, versions and fields (KIP-631; as of 3.9 and 4.1).

`cluster_metadata` reads the frames around them. Fields with a tag are written only if they differ from their
default.
"""

from __future__ import annotations

from typing import Final

from klog.formats.frames import RecordType
from klog.formats.frames import record_type as _record
from klog.formats.schema import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    Field,
    WireType,
    array,
    struct,
)


def _changed(name: str, wire_type: WireType, meaning: str, tag: int, since: int = 0) -> Field:
    # A list of a change record. If it is absent, the value is unchanged.
    return Field(name, wire_type, meaning, since=since, null_since=since, tag=tag)


_BROKER: Final = Field("brokerId", INT32, "of the broker")
_BROKER_EPOCH: Final = Field("brokerEpoch", INT64, "of the broker's registration")
_TOPIC_ID: Final = Field("topicId", UUID, "of the topic")
_ENDPOINTS: Final = array(
    struct(
        Field("name", STRING, "of the listener"),
        Field("host", STRING, "to connect to"),
        Field("port", UINT16, "to connect to"),
        Field("securityProtocol", INT16, "0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL"),
    )
)
_FEATURES: Final = array(
    struct(
        Field("name", STRING, "of the feature"),
        Field("minSupportedVersion", INT16, "that it understands"),
        Field("maxSupportedVersion", INT16, "that it understands"),
    )
)
_IDS: Final = array(INT32)
_SCRAM: Final = (
    Field("name", STRING, "of the user"),
    Field("mechanism", INT8, "1 SCRAM-SHA-256, 2 SCRAM-SHA-512"),
)

RECORDS: Final[dict[int, RecordType]] = {
    0: _record(
        "RegisterBrokerRecord",
        3,
        _BROKER,
        Field("isMigratingZkBroker", BOOL, "still a ZooKeeper broker", since=2),
        Field("incarnationId", UUID, "of the broker process"),
        _BROKER_EPOCH,
        Field("endPoints", _ENDPOINTS, "where it listens"),
        Field("features", _FEATURES, "it supports"),
        Field("rack", STRING, "of the broker", null_since=0),
        Field("fenced", BOOL, "may not lead or serve"),
        Field("inControlledShutdown", BOOL, "is going down", since=1),
        Field("logDirs", array(UUID), "its log directories (KIP-858)", since=3, tag=0),
    ),
    1: _record("UnregisterBrokerRecord", 0, _BROKER, _BROKER_EPOCH),
    2: _record("TopicRecord", 0, Field("name", STRING, "of the topic"), _TOPIC_ID),
    3: _record(
        "PartitionRecord",
        2,
        Field("partitionId", INT32, "number of the partition"),
        _TOPIC_ID,
        Field("replicas", _IDS, "brokers, the preferred leader first"),
        Field("isr", _IDS, "in-sync replicas"),
        Field("removingReplicas", _IDS, "of a reassignment"),
        Field("addingReplicas", _IDS, "of a reassignment"),
        Field("leader", INT32, "-1 for none"),
        Field("leaderRecoveryState", INT8, "1 after an unclean election", tag=0),
        Field("leaderEpoch", INT32, "counts leaders"),
        Field("partitionEpoch", INT32, "counts changes"),
        Field("directories", array(UUID), "log directory of each replica", since=1),
        Field("eligibleLeaderReplicas", _IDS, "KIP-966", since=2, null_since=2, tag=1),
        Field("lastKnownElr", _IDS, "KIP-966", since=2, null_since=2, tag=2),
    ),
    4: _record(
        "ConfigRecord",
        0,
        Field("resourceType", INT8, "2 topic, 4 broker, 16 client metrics, 32 group"),
        Field("resourceName", STRING, "empty for the default"),
        Field("name", STRING, "of the config"),
        Field("value", STRING, "null removes it", null_since=0),
    ),
    5: _record(
        "PartitionChangeRecord",
        2,
        Field("partitionId", INT32, "number of the partition"),
        _TOPIC_ID,
        _changed("isr", _IDS, "in-sync replicas", 0),
        Field("leader", INT32, "-1 for none; absent (-2): unchanged", tag=1),
        _changed("replicas", _IDS, "brokers", 2),
        _changed("removingReplicas", _IDS, "of a reassignment", 3),
        _changed("addingReplicas", _IDS, "of a reassignment", 4),
        Field("leaderRecoveryState", INT8, "1 after an unclean election", tag=5),
        _changed("directories", array(UUID), "log directory of each replica", 8, since=1),
        _changed("eligibleLeaderReplicas", _IDS, "KIP-966", 6, since=2),
        _changed("lastKnownElr", _IDS, "KIP-966", 7, since=2),
    ),
    7: _record("FenceBrokerRecord", 0, Field("id", INT32, "of the broker"), Field("epoch", INT64, "of it")),
    8: _record("UnfenceBrokerRecord", 0, Field("id", INT32, "of the broker"), Field("epoch", INT64, "of it")),
    9: _record("RemoveTopicRecord", 0, _TOPIC_ID),
    10: _record(
        "DelegationTokenRecord",
        0,
        Field("owner", STRING, "of the token"),
        Field("requester", STRING, "of the token"),
        Field("renewers", array(STRING), "who may renew it"),
        Field("issueTimestamp", INT64, "ms"),
        Field("maxTimestamp", INT64, "ms"),
        Field("expirationTimestamp", INT64, "ms"),
        Field("tokenId", STRING, "of the token"),
    ),
    11: _record(
        "UserScramCredentialRecord",
        0,
        *_SCRAM,
        Field("salt", BYTES, "of the credential"),
        Field("storedKey", BYTES, "of the credential"),
        Field("serverKey", BYTES, "of the credential"),
        Field("iterations", INT32, "of the credential"),
    ),
    12: _record(
        "FeatureLevelRecord",
        0,
        Field("name", STRING, "of the feature, e.g. metadata.version"),
        Field("featureLevel", INT16, "finalized level"),
    ),
    14: _record(
        "ClientQuotaRecord",
        0,
        Field(
            "entity",
            array(
                struct(
                    Field("entityType", STRING, "user, client-id or ip"),
                    Field("entityName", STRING, "null for the default", null_since=0),
                )
            ),
            "whom it limits",
        ),
        Field("key", STRING, "which quota"),
        Field("value", FLOAT64, "of the quota"),
        Field("remove", BOOL, "take the quota away"),
    ),
    15: _record(
        "ProducerIdsRecord",
        0,
        _BROKER,
        _BROKER_EPOCH,
        Field("nextProducerId", INT64, "first id not given out"),
    ),
    17: _record(
        "BrokerRegistrationChangeRecord",
        2,
        _BROKER,
        _BROKER_EPOCH,
        Field("fenced", INT8, "-1 unfence, 1 fence; absent: unchanged", tag=0),
        Field("inControlledShutdown", INT8, "1 when it goes down; absent: unchanged", since=1, tag=1),
        Field("logDirs", array(UUID), "absent: unchanged", since=2, tag=2),
    ),
    18: _record(
        "AccessControlEntryRecord",
        0,
        Field("id", UUID, "of the entry"),
        Field("resourceType", INT8, "of the resource"),
        Field("resourceName", STRING, "of the resource"),
        Field("patternType", INT8, "3 literal, 4 prefixed"),
        Field("principal", STRING, "to whom it applies"),
        Field("host", STRING, "`*` for all"),
        Field("operation", INT8, "allowed or denied"),
        Field("permissionType", INT8, "2 deny, 3 allow"),
    ),
    19: _record("RemoveAccessControlEntryRecord", 0, Field("id", UUID, "of the entry")),
    20: _record("NoOpRecord", 0),
    21: _record("ZkMigrationStateRecord", 0, Field("zkMigrationState", INT8, "of the migration")),
    22: _record("RemoveUserScramCredentialRecord", 0, *_SCRAM),
    23: _record(
        "BeginTransactionRecord", 0, Field("name", STRING, "of the transaction", null_since=0, tag=0)
    ),
    24: _record("EndTransactionRecord", 0),
    25: _record("AbortTransactionRecord", 0, Field("reason", STRING, "for the log", null_since=0, tag=0)),
    26: _record("RemoveDelegationTokenRecord", 0, Field("tokenId", STRING, "of the token")),
    27: _record(
        "RegisterControllerRecord",
        0,
        Field("controllerId", INT32, "of the controller"),
        Field("incarnationId", UUID, "of the controller process"),
        Field("zkMigrationReady", BOOL, "may start the migration"),
        Field("endPoints", _ENDPOINTS, "where it listens"),
        Field("features", _FEATURES, "it supports"),
    ),
    28: _record("ClearElrRecord", 0, Field("topicName", STRING, "empty for all topics (4.x, KIP-966)")),
}
