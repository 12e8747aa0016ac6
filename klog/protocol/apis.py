"""The requests that klog serves: their keys, the announced versions, and the modules of their messages.

Facts from the message schemas of Kafka 3.9 and 4. The announced ranges were chosen so:

- The upper ends are those of Kafka 3.9. Later versions (Produce 12, Fetch 18, ListOffsets 10, Metadata 13,
  DescribeCluster 2, DescribeLogDirs 5) need what only 4.x brokers do.
- So are the lower ends: `klog.protocol.legacy_versions` makes versions that Kafka 4 dropped (KIP-896).
  UpdateMetadata, LeaderAndIsr, StopReplica and ControlledShutdown, which Kafka 4 dropped, have one version
  each: the one that a Kafka 3.9 controller sends since inter.broker.protocol.version 3.4. A cluster with an
  older one must be brought to 3.4 before a klog broker joins it.
- An API is in the table if the broker serves it. ConsumerGroupHeartbeat and ConsumerGroupDescribe, which are
  Kafka 4's, are announced only where the broker accepts the consumer protocol.
- docs/broker.md has a table of both brokers' ranges, and says why some differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

_NEVER: Final = 1 << 15  # no version of the API is flexible


class ApiKey(IntEnum):
    """The keys of Kafka's requests that a broker with ZooKeeper knows."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75

    @property
    def title(self) -> str:
        """The name in Kafka's message classes: `ListOffsets`."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class Api(NamedTuple):
    """One API: its announced versions (both ends included), the first flexible one, and the modules of its
    messages.

    `package` is kio's package with one module for each version, or klog's own module for the only version. It
    is None if the messages are written by hand. Versions before `kio_from` are not in kio's package;
    `klog.protocol.legacy_versions` makes them.
    """

    key: ApiKey
    min_version: int
    max_version: int
    flexible_from: int
    package: str | None
    kio_from: int = 0

    def has(self, version: int) -> bool:
        """Whether the version is announced."""
        return self.min_version <= version <= self.max_version

    def flexible(self, version: int) -> bool:
        """Whether the version uses compact types, tagged fields, and the headers that belong to them."""
        return version >= self.flexible_from

    def module_name(self, version: int) -> str | None:
        """The module of a version's messages; None if they are written by hand."""
        if self.package is None or not self.package.startswith("kio."):
            return self.package
        return f"{self.package}.v{version}"


def _kio(key: ApiKey, min_version: int, max_version: int, flexible_from: int, *, kio_from: int = 0) -> Api:
    return Api(key, min_version, max_version, flexible_from, f"kio.schema.{key.name.lower()}", kio_from)


def _ours(key: ApiKey, version: int, flexible_from: int) -> Api:
    return Api(key, version, version, flexible_from, f"klog.protocol.interbroker.{key.name.lower()}")


SERVED: Final[Mapping[int, Api]] = {
    int(api.key): api
    for api in (
        Api(ApiKey.PRODUCE, 0, 11, 9, None),
        Api(ApiKey.FETCH, 0, 17, 12, None),
        _kio(ApiKey.LIST_OFFSETS, 0, 9, 6, kio_from=1),
        _kio(ApiKey.METADATA, 0, 12, 9),
        _ours(ApiKey.LEADER_AND_ISR, 7, 4),
        _ours(ApiKey.STOP_REPLICA, 4, 2),
        _ours(ApiKey.UPDATE_METADATA, 8, 6),
        _ours(ApiKey.CONTROLLED_SHUTDOWN, 3, 3),
        _kio(ApiKey.OFFSET_COMMIT, 0, 9, 8, kio_from=2),
        _kio(ApiKey.OFFSET_FETCH, 0, 9, 6, kio_from=1),
        _kio(ApiKey.FIND_COORDINATOR, 0, 6, 3),
        _kio(ApiKey.JOIN_GROUP, 0, 9, 6),
        _kio(ApiKey.HEARTBEAT, 0, 4, 4),
        _kio(ApiKey.LEAVE_GROUP, 0, 5, 4),
        _kio(ApiKey.SYNC_GROUP, 0, 5, 4),
        _kio(ApiKey.DESCRIBE_GROUPS, 0, 5, 5),
        _kio(ApiKey.LIST_GROUPS, 0, 5, 3),
        _kio(ApiKey.SASL_HANDSHAKE, 0, 1, _NEVER),
        _kio(ApiKey.API_VERSIONS, 0, 4, 3),
        _kio(ApiKey.CREATE_TOPICS, 0, 7, 5, kio_from=2),
        _kio(ApiKey.DELETE_TOPICS, 0, 6, 4, kio_from=1),
        _kio(ApiKey.DELETE_RECORDS, 0, 2, 2),
        _kio(ApiKey.INIT_PRODUCER_ID, 0, 5, 2),
        _kio(ApiKey.OFFSET_FOR_LEADER_EPOCH, 0, 4, 4, kio_from=2),
        _kio(ApiKey.WRITE_TXN_MARKERS, 0, 1, 1, kio_from=1),
        _kio(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, 3),
        _kio(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, 3),
        _kio(ApiKey.END_TXN, 0, 4, 3),
        _kio(ApiKey.TXN_OFFSET_COMMIT, 0, 4, 3),
        _kio(ApiKey.DESCRIBE_ACLS, 0, 3, 2, kio_from=1),
        _kio(ApiKey.CREATE_ACLS, 0, 3, 2, kio_from=1),
        _kio(ApiKey.DELETE_ACLS, 0, 3, 2, kio_from=1),
        _kio(ApiKey.DESCRIBE_CONFIGS, 0, 4, 4, kio_from=1),
        _kio(ApiKey.ALTER_CONFIGS, 0, 2, 2),
        _kio(ApiKey.ALTER_REPLICA_LOG_DIRS, 0, 2, 2, kio_from=1),
        _kio(ApiKey.DESCRIBE_LOG_DIRS, 0, 4, 2, kio_from=1),
        _kio(ApiKey.SASL_AUTHENTICATE, 0, 2, 2),
        _kio(ApiKey.CREATE_PARTITIONS, 0, 3, 2),
        _kio(ApiKey.CREATE_DELEGATION_TOKEN, 0, 3, 2, kio_from=1),
        _kio(ApiKey.RENEW_DELEGATION_TOKEN, 0, 2, 2, kio_from=1),
        _kio(ApiKey.EXPIRE_DELEGATION_TOKEN, 0, 2, 2, kio_from=1),
        _kio(ApiKey.DESCRIBE_DELEGATION_TOKEN, 0, 3, 2, kio_from=1),
        _kio(ApiKey.DELETE_GROUPS, 0, 2, 2),
        _kio(ApiKey.ELECT_LEADERS, 0, 2, 2),
        _kio(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, 1),
        _kio(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 0, 0),
        _kio(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, 0),
        _kio(ApiKey.OFFSET_DELETE, 0, 0, 1),
        _kio(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, 1),
        _kio(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, 1),
        _kio(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, 0),
        _kio(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 0, 0),
        _kio(ApiKey.ALTER_PARTITION, 2, 3, 0),
        _kio(ApiKey.UPDATE_FEATURES, 0, 1, 0),
        _kio(ApiKey.DESCRIBE_CLUSTER, 0, 1, 0),
        _kio(ApiKey.DESCRIBE_PRODUCERS, 0, 0, 0),
        _kio(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, 0),
        _kio(ApiKey.LIST_TRANSACTIONS, 0, 1, 0),
        _kio(ApiKey.ALLOCATE_PRODUCER_IDS, 0, 0, 0),
        _kio(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, 0),
        _kio(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, 0),
        _kio(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, 0),
        _kio(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, 0),
    )
}

"""What the broker serves, by key."""

SPOKEN: Final[Mapping[int, Api]] = {
    **SERVED,
    **{
        int(api.key): api
        for api in (
            _kio(ApiKey.DESCRIBE_QUORUM, 0, 2, 0),
            _kio(ApiKey.DESCRIBE_CLUSTER, 0, 2, 0),
            _kio(ApiKey.UNREGISTER_BROKER, 0, 0, 0),
        )
    },
}
"""What klog's client can ask: also what the broker does not serve."""


def api_name(key: int) -> str:
    """The name of a request in log lines, also of an unknown one."""
    try:
        return ApiKey(key).title
    except ValueError:
        return f"API {key}"
