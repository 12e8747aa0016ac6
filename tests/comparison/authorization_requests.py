"""One request of every API, which names resources that may be allowed, denied, there or missing.

Topics: `a-here` and `b-here` exist, `a-gone` does not. Rights are given for the prefix `a-` only. What is
allowed must change nothing that a later request sees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from importlib import import_module
from typing import Any, Final
from uuid import UUID

from klog.client.admin import ResourceType
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.protocol.acls import AclOperation, AclResourceType, PatternType, Permission
from klog.protocol.apis import SERVED, ApiKey
from klog.protocol.messages import build, request_class

HERE, GONE, OTHER = "a-here", "a-gone", "b-here"
TOPICS: Final = (HERE, GONE, OTHER)
GROUPS: Final = ("a-group", "b-group")
IDS: Final = ("a-id", "b-id")
_SHORT: Final = timedelta(milliseconds=2000)
_NO_ID: Final = UUID(int=0)

Values = Mapping[str, Any]
TopicIds = Mapping[str, UUID]


def _batch() -> bytes:
    return bytes(build_batch([RecordData(0, 1_700_000_000_000, b"k", b"v")], BatchFields()))


def _partitions(**fields: Any) -> list[Values]:
    return [
        {"name": name, "topic": name, "partitions": [{"partition_index": 0, **fields}]} for name in TOPICS
    ]


def _numbers() -> list[Values]:
    return [{"name": name, "topic": name, "partitions": (0,), "partition_indexes": (0,)} for name in TOPICS]


def _produce(_: int, __: TopicIds) -> Values:
    data = [{"name": name, "partition_data": [{"index": 0, "records": _batch()}]} for name in TOPICS]
    return {"acks": 1, "timeout": _SHORT, "transactional_id": None, "topic_data": data}


def _fetch(version: int, ids: TopicIds) -> Values:
    partition = {
        "partition": 0,
        "fetch_offset": 0,
        "partition_max_bytes": 1000,
        "log_start_offset": -1,
        "current_leader_epoch": -1,
        "last_fetched_epoch": -1,
    }
    topics = [{"topic": name, "topic_id": ids.get(name), "partitions": [partition]} for name in TOPICS]
    if version >= 13:
        topics = [topic for topic in topics if topic["topic_id"] is not None]
    return {
        "replica_id": -1,
        "max_wait": timedelta(0),
        "min_bytes": 0,
        "max_bytes": 10_000,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": topics,
        "forgotten_topics_data": (),
        "rack_id": "",
    }


def _offsets(version: int, _: TopicIds) -> Values:
    topics = _partitions(current_leader_epoch=-1, timestamp=-1, max_num_offsets=1)
    return {"replica_id": -1, "isolation_level": 0, "topics": topics, "timeout": _SHORT}


def _metadata(version: int, _: TopicIds) -> Values:
    return {
        "topics": [{"name": name, "topic_id": None} for name in TOPICS],
        "allow_auto_topic_creation": version >= 4 and False,
        "include_topic_authorized_operations": True,
        "include_cluster_authorized_operations": True,
    }


def _commit(_: int, __: TopicIds) -> Values:
    fields = {"committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
    return {
        "group_id": GROUPS[0],
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "retention_time": timedelta(milliseconds=-1),
        "topics": _partitions(**fields, commit_timestamp=-1),
    }


def _fetch_offsets(version: int, _: TopicIds) -> Values:
    groups = [
        {"group_id": group, "member_id": None, "member_epoch": -1, "topics": topics}
        for group, topics in ((GROUPS[0], _numbers()), (GROUPS[1], _numbers()), ("a-all", None))
    ]
    return {"group_id": GROUPS[0], "topics": _numbers(), "groups": groups, "require_stable": False}


def _join(_: int, __: TopicIds) -> Values:
    return {
        "group_id": GROUPS[0],
        "session_timeout": timedelta(seconds=10),
        "rebalance_timeout": timedelta(seconds=10),
        "member_id": "nobody",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
        "reason": None,
    }


def _member(_: int, __: TopicIds) -> Values:
    return {
        "group_id": GROUPS[0],
        "generation_id": 1,
        "member_id": "nobody",
        "group_instance_id": None,
        "members": [{"member_id": "nobody", "group_instance_id": None, "reason": None}],
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": (),
    }


def _create_topics(_: int, __: TopicIds) -> Values:
    topics = [
        {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
        for name in TOPICS
    ]
    return {"topics": topics, "timeout": _SHORT, "validate_only": True}


def _delete_topics(_: int, ids: TopicIds) -> Values:
    topics = [
        {"name": GONE, "topic_id": None},
        {"name": OTHER, "topic_id": None},
        {"name": None, "topic_id": ids[OTHER]},
        {"name": None, "topic_id": UUID(int=77)},
    ]
    return {"topic_names": (GONE, OTHER), "topics": topics, "timeout": _SHORT}


def _txn(_: int, __: TopicIds) -> Values:
    topics = _numbers()
    return {
        "transactional_id": IDS[0],
        "v3_and_below_transactional_id": IDS[0],
        "v3_and_below_producer_id": 99,
        "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": topics,
        "transactions": [
            {
                "transactional_id": each,
                "producer_id": 99,
                "producer_epoch": 0,
                "verify_only": True,
                "topics": topics[:1],
            }
            for each in IDS
        ],
        "producer_id": 99,
        "producer_epoch": 0,
        "group_id": GROUPS[0],
        "committed": True,
        "generation_id": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": _partitions(committed_offset=1, committed_leader_epoch=-1, committed_metadata=""),
    }


def _configs(_: int, __: TopicIds) -> Values:
    named = [(ResourceType.TOPIC, name) for name in TOPICS] + [(ResourceType.BROKER, "0")]
    resources = [
        {
            "resource_type": int(kind),
            "resource_name": name,
            "configuration_keys": ("retention.ms",),
            "configs": [{"name": "retention.ms", "value": "1", "config_operation": 0}]
            if kind is ResourceType.TOPIC
            else (),
        }
        for kind, name in named
    ]
    return {
        "resources": resources,
        "include_synonyms": False,
        "include_documentation": False,
        "validate_only": True,
    }


_ACL: Final = {
    "resource_type": AclResourceType.TOPIC,
    "resource_name": "z",
    "resource_pattern_type": PatternType.LITERAL,
    "principal": "User:zed",
    "host": "*",
    "operation": AclOperation.READ,
    "permission_type": Permission.ALLOW,
}
_ACL_FILTER: Final = {
    "resource_type_filter": AclResourceType.TOPIC,
    "resource_name_filter": "z",
    "pattern_type_filter": PatternType.LITERAL,
    "principal_filter": "User:zed",
    "host_filter": None,
    "operation": AclOperation.ANY,
    "permission_type": Permission.ANY,
}
_OLD_CONTROLLER: Final = {
    "controller_id": 0,
    "is_kraft_controller": False,
    "controller_epoch": 0,
    "broker_epoch": 1,
    "request_type": 0,
    "topic_states": (),
    "live_leaders": (),
    "live_brokers": (),
}


def _fixed(**values: Any) -> Callable[[int, TopicIds], Values]:
    return lambda _version, _ids: values


VALUES: Final[Mapping[ApiKey, Callable[[int, TopicIds], Values]]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _offsets,
    ApiKey.METADATA: _metadata,
    ApiKey.LEADER_AND_ISR: _fixed(**_OLD_CONTROLLER),
    ApiKey.STOP_REPLICA: _fixed(**_OLD_CONTROLLER),
    ApiKey.UPDATE_METADATA: _fixed(**_OLD_CONTROLLER),
    ApiKey.CONTROLLED_SHUTDOWN: _fixed(broker_id=0, broker_epoch=1),
    ApiKey.OFFSET_COMMIT: _commit,
    ApiKey.OFFSET_FETCH: _fetch_offsets,
    ApiKey.FIND_COORDINATOR: _fixed(key=GROUPS[0], key_type=0, coordinator_keys=GROUPS),
    ApiKey.JOIN_GROUP: _join,
    ApiKey.HEARTBEAT: _member,
    ApiKey.LEAVE_GROUP: _member,
    ApiKey.SYNC_GROUP: _member,
    ApiKey.DESCRIBE_GROUPS: _fixed(groups=GROUPS, include_authorized_operations=True),
    ApiKey.LIST_GROUPS: _fixed(states_filter=(), types_filter=()),
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.DELETE_RECORDS: lambda _, __: {"topics": _partitions(offset=0), "timeout": _SHORT},
    ApiKey.INIT_PRODUCER_ID: _fixed(
        transactional_id=None, transaction_timeout=_SHORT, producer_id=-1, producer_epoch=-1
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: lambda _, __: {
        "replica_id": -1,
        "topics": [
            {
                "topic": name,
                "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}],
            }
            for name in TOPICS
        ],
    },
    ApiKey.ADD_PARTITIONS_TO_TXN: _txn,
    ApiKey.ADD_OFFSETS_TO_TXN: _txn,
    ApiKey.END_TXN: _txn,
    ApiKey.TXN_OFFSET_COMMIT: _txn,
    ApiKey.WRITE_TXN_MARKERS: lambda _, __: {
        "markers": [
            {
                "producer_id": 99,
                "producer_epoch": 0,
                "transaction_result": False,
                "topics": [{"name": GONE, "partition_indexes": (0,)}],
                "coordinator_epoch": 0,
            }
        ]
    },
    ApiKey.DESCRIBE_ACLS: _fixed(**_ACL_FILTER),
    ApiKey.CREATE_ACLS: _fixed(creations=[_ACL, {**_ACL, "resource_name": "z/z"}]),
    ApiKey.DELETE_ACLS: _fixed(filters=[_ACL_FILTER, {**_ACL_FILTER, "resource_name_filter": "y"}]),
    ApiKey.DESCRIBE_CONFIGS: _configs,
    ApiKey.ALTER_CONFIGS: _configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _configs,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _fixed(
        dirs=[{"path": "/nowhere", "topics": [{"name": GONE, "partitions": (0,)}]}]
    ),
    ApiKey.DESCRIBE_LOG_DIRS: lambda _, __: {"topics": _numbers()},
    ApiKey.CREATE_PARTITIONS: lambda _, __: {
        "topics": [{"name": name, "count": 2, "assignments": None} for name in TOPICS],
        "timeout": _SHORT,
        "validate_only": True,
    },
    ApiKey.DELETE_GROUPS: _fixed(groups_names=("a-nobody", "b-nobody")),
    ApiKey.ELECT_LEADERS: _fixed(
        election_type=0, topic_partitions=[{"topic": GONE, "partitions": (0,)}], timeout=_SHORT
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _fixed(
        timeout=_SHORT,
        topics=[{"name": GONE, "partitions": [{"partition_index": 0, "replicas": (0,)}]}],
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _fixed(timeout=_SHORT, topics=None),
    ApiKey.OFFSET_DELETE: lambda _, __: {"group_id": "a-nobody", "topics": _partitions()},
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _fixed(
        components=[{"entity_type": "user", "match_type": 0, "match": "zed"}], strict=False
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: _fixed(
        entries=[
            {
                "entity": [{"entity_type": "user", "entity_name": "zed"}],
                "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": True}],
            }
        ],
        validate_only=True,
    ),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _fixed(users=[{"name": "zed"}]),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _fixed(deletions=[{"name": "zed", "mechanism": 1}], upsertions=()),
    ApiKey.ALTER_PARTITION: _fixed(broker_id=0, broker_epoch=1, topics=()),
    ApiKey.UPDATE_FEATURES: _fixed(
        feature_updates=[{"feature": "f", "max_version_level": 1, "allow_downgrade": False}]
    ),
    ApiKey.DESCRIBE_CLUSTER: _fixed(include_cluster_authorized_operations=True, endpoint_type=1),
    ApiKey.DESCRIBE_PRODUCERS: lambda _, __: {"topics": _numbers()},
    ApiKey.DESCRIBE_TRANSACTIONS: _fixed(transactional_ids=IDS),
    ApiKey.LIST_TRANSACTIONS: _fixed(state_filters=(), producer_id_filters=(), duration_filter=-1),
    ApiKey.ALLOCATE_PRODUCER_IDS: _fixed(broker_id=0, broker_epoch=1),
}
"""The fields of a request of each API, in all versions, from the version and the ids of topics."""


def versions(api: ApiKey) -> range:
    """The versions of an API that are compared."""
    first = {ApiKey.PRODUCE: 3, ApiKey.FETCH: 4}.get(api, SERVED[api].min_version)
    return range(first, SERVED[api].max_version + 1)


def message_class(api: ApiKey, version: int, kind: str) -> type:
    """The entity class of a request or a response, also of those that klog writes by hand."""
    module = import_module(f"kio.schema.{api.name.lower()}.v{version}")
    found: type = getattr(module, f"{api.title}{kind}")
    return found


def request_of(api: ApiKey, version: int, ids: TopicIds) -> Any:
    """The request's entity."""
    values = VALUES[api](version, ids)
    by_hand = api in (ApiKey.PRODUCE, ApiKey.FETCH)
    return build(message_class(api, version, "Request") if by_hand else request_class(api, version), **values)
