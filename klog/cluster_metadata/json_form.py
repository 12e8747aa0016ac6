"""The JSON form of a cluster's metadata, for people and version control.

It is stable: lists are sorted, what has its usual value is left out, and each partition, ACL and so on has a
line of its own. Secrets are null unless they are asked for. Bytes of another version are refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from klog.client.admin import Resource, ResourceType
from klog.cluster_metadata.json_codecs import (
    BOOL,
    BROKER_ID,
    INT32,
    INT64,
    NUMBER,
    TEXT,
    UUID,
    Codec,
    Member,
    Value,
    array,
    as_set,
    integer,
    keyed,
    mapping,
    named,
    optional,
    scalar,
    single,
    structure,
)
from klog.cluster_metadata.model import (
    Broker,
    Cluster,
    Controller,
    DelegationToken,
    Partition,
    ScramUser,
    SupportedVersions,
    Topic,
    Voter,
    VoterEndpoint,
)
from klog.config.security_protocols import SECURITY_PROTOCOLS
from klog.formats.constants import INT64_MAX
from klog.formats.errors import FormatError, UnsupportedFormatError
from klog.formats.names import TopicPartition, is_legal_topic
from klog.metadata.values import Endpoint, LeaderAndIsr, LeaderRecoveryState, ReplicaAssignment
from klog.protocol.acls import Acl, AclOperation, AclResourceType, PatternType, Permission, ResourcePattern
from klog.security.authentication.scram_credentials import HASHES, parse_credential
from klog.security.quotas.entities import DEFAULT, Part, QuotaEntity

FORMAT: Final = "klog cluster metadata"
VERSION: Final = 1

_IDS: Final = array(BROKER_ID)
_INT16: Final = integer(-(2**15), 2**15 - 1)
_PORT: Final = integer(-1, 65535)
_PROTOCOL: Final = scalar(str, f"one of {', '.join(SECURITY_PROTOCOLS)}", SECURITY_PROTOCOLS.__contains__)
_MECHANISM: Final = scalar(str, f"one of {', '.join(HASHES)}", HASHES.__contains__)
_NAME: Final = scalar(str, "a topic's name", is_legal_topic)


def _decode_credential(value: Value, place: str) -> Value:
    try:
        return parse_credential(TEXT.decode(value, place))
    except FormatError as error:
        raise FormatError(f"{place}: {error.what}") from None


def _decode_part(value: Value, place: str) -> Part:
    return DEFAULT if value is None else str(TEXT.decode(value, place))


_PART: Final = Codec(lambda part: None if part is DEFAULT else part, _decode_part)

_ASSIGNMENT: Final = structure(
    ReplicaAssignment,
    replicas=Member("replicas", _IDS),
    adding=Member("adding", _IDS, ()),
    removing=Member("removing", _IDS, ()),
)
_STATE: Final = structure(
    LeaderAndIsr,
    leader=Member("leader", integer(-1)),
    leader_epoch=Member("leaderEpoch", INT32),
    isr=Member("isr", _IDS),
    recovery_state=Member("recoveryState", named(LeaderRecoveryState), LeaderRecoveryState.RECOVERED),
    partition_epoch=Member("partitionEpoch", INT32, 0),
)
_PARTITION: Final = structure(
    Partition,
    assignment=Member("", _ASSIGNMENT, inline=True),
    state=Member("", _STATE, None, inline=True),
    directories=Member("directories", array(UUID), ()),
    eligible_leaders=Member("eligibleLeaders", _IDS, ()),
    last_known_eligible_leaders=Member("lastKnownEligibleLeaders", _IDS, ()),
)
_TOPIC: Final = structure(
    Topic,
    topic_id=Member("topicId", optional(UUID), None),
    partitions=Member("partitions", keyed(single("partition", integer(0)), _PARTITION)),
)
_RESOURCE: Final = structure(Resource, type=Member("type", named(ResourceType)), name=Member("name", TEXT))
_PATTERN: Final = structure(
    ResourcePattern,
    resource_type=Member("resourceType", named(set(AclResourceType) - {AclResourceType.ANY})),
    name=Member("resourceName", TEXT),
    pattern_type=Member("patternType", named((PatternType.LITERAL, PatternType.PREFIXED))),
)
_ACL: Final = structure(
    Acl,
    pattern=Member("", _PATTERN, inline=True),
    principal=Member("principal", TEXT),
    host=Member("host", TEXT),
    operation=Member("operation", named(set(AclOperation) - {AclOperation.ANY})),
    permission=Member("permissionType", named((Permission.DENY, Permission.ALLOW))),
)
_SCRAM_USER: Final = structure(
    ScramUser, user=Member("user", TEXT), mechanism=Member("mechanism", _MECHANISM)
)
_CREDENTIAL: Final = Codec(lambda credential: credential.text(), _decode_credential)
_QUOTA_ENTITY: Final = structure(
    QuotaEntity,
    user=Member("user", _PART, None),
    client_id=Member("clientId", _PART, None),
    ip=Member("ip", _PART, None),
)
_VERSIONS: Final = structure(SupportedVersions, first=Member("first", _INT16), last=Member("last", _INT16))
_FEATURES: Final = keyed(single("feature", TEXT), _VERSIONS)
_ENDPOINTS: Final = array(
    structure(
        Endpoint,
        listener=Member("listener", TEXT),
        security_protocol=Member("securityProtocol", _PROTOCOL),
        host=Member("host", TEXT),
        port=Member("port", _PORT),
    )
)
_BROKER: Final = structure(
    Broker,
    endpoints=Member("endpoints", _ENDPOINTS),
    rack=Member("rack", optional(TEXT), None),
    epoch=Member("epoch", INT64, -1),
    incarnation_id=Member("incarnationId", optional(UUID), None),
    features=Member("features", _FEATURES, {}),
    directories=Member("directories", array(UUID), ()),
    is_fenced=Member("fenced", BOOL, False),
    is_shutting_down=Member("inControlledShutdown", BOOL, False),
    is_migrating=Member("migrating", BOOL, False),
)
_CONTROLLER: Final = structure(
    Controller,
    endpoints=Member("endpoints", _ENDPOINTS),
    incarnation_id=Member("incarnationId", optional(UUID), None),
    features=Member("features", _FEATURES, {}),
    is_migration_ready=Member("migrationReady", BOOL, False),
)
_VOTER: Final = structure(
    Voter,
    directory_id=Member("directoryId", UUID),
    endpoints=Member(
        "endpoints",
        array(
            structure(
                VoterEndpoint,
                listener=Member("listener", TEXT),
                host=Member("host", TEXT),
                port=Member("port", _PORT),
            )
        ),
    ),
    kraft_versions=Member("kraftVersions", _VERSIONS),
)
_TOKEN: Final = structure(
    DelegationToken,
    owner=Member("owner", TEXT),
    requester=Member("requester", TEXT),
    renewers=Member("renewers", array(TEXT), ()),
    issued_ms=Member("issuedMs", INT64),
    max_ms=Member("maxMs", INT64),
    expires_ms=Member("expiresMs", INT64),
)
_TOPIC_PARTITION: Final = structure(
    TopicPartition, topic=Member("topic", _NAME), partition=Member("partition", integer(0))
)
_ID: Final = single("id", integer(0))


def _order(entity: QuotaEntity) -> tuple[tuple[int, str], ...]:
    """Entities without a part come first, then its default."""
    return tuple(
        (0, "") if part is None else (1, "") if part is DEFAULT else (2, str(part)) for part in entity
    )


_CLUSTER: Final = structure(
    Cluster,
    cluster_id=Member("clusterId", optional(TEXT), None),
    controller_epoch=Member("controllerEpoch", INT32, 0),
    features=Member("features", mapping(_INT16), {}),
    next_producer_id=Member("nextProducerId", integer(0, INT64_MAX), 0),
    generated_broker_ids=Member("generatedBrokerIds", integer(0), 0),
    migration_state=Member("migrationState", integer(0, 127), 0),
    voters=Member("voters", keyed(_ID, _VOTER), {}),
    controllers=Member("controllers", keyed(_ID, _CONTROLLER), {}),
    brokers=Member("brokers", keyed(_ID, _BROKER), {}),
    topics=Member("topics", keyed(single("name", _NAME), _TOPIC), {}),
    deletions=Member("deletions", as_set(_NAME), frozenset()),
    requested_reassignments=Member(
        "requestedReassignments", keyed(_TOPIC_PARTITION, single("replicas", _IDS)), {}
    ),
    configs=Member("configs", keyed(_RESOURCE, single("configs", mapping(optional(TEXT)))), {}),
    quotas=Member("quotas", keyed(_QUOTA_ENTITY, single("quotas", mapping(NUMBER)), _order), {}),
    scram=Member("scram", keyed(_SCRAM_USER, single("credential", optional(_CREDENTIAL))), {}),
    acls=Member("acls", as_set(_ACL), frozenset()),
    tokens=Member("delegationTokens", keyed(single("tokenId", TEXT), _TOKEN), {}),
)


def to_json(cluster: Cluster, *, secrets: bool = False) -> dict[str, Value]:
    """The cluster as an object for JSON, without its secrets unless they are asked for."""
    shown = cluster if secrets else cluster.without_secrets()
    return {"format": FORMAT, "version": VERSION, **_CLUSTER.encode(shown)}


def topic_to_json(topic: Topic) -> dict[str, Value]:
    """One topic, without its name."""
    encoded: dict[str, Value] = _TOPIC.encode(topic)
    return encoded


def encode(cluster: Cluster, *, secrets: bool = False) -> bytes:
    """The bytes of a file."""
    pieces: list[str] = []
    _write(to_json(cluster, secrets=secrets), pieces.append)
    return ("".join(pieces) + "\n").encode()


def decode(data: bytes) -> Cluster:
    """The cluster in a file. Raises FormatError, for another version UnsupportedFormatError."""
    try:
        value = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise FormatError(f"is not JSON: {error}") from error
    if not isinstance(value, dict) or value.pop("format", None) != FORMAT:
        raise FormatError(f'has no "format": "{FORMAT}"', cure="write one by klog metadata show -o json")
    version = value.pop("version", None)
    if version != VERSION or isinstance(version, bool):
        raise UnsupportedFormatError(
            f"has version {version!r}; this klog knows version {VERSION}", cure="use the klog that wrote it"
        )
    cluster: Cluster = _CLUSTER.decode(value, "")
    return cluster


def _write(value: Value, add: Callable[[str], object], indent: str = "", *, is_item: bool = False) -> None:
    """Adds the text of a value: one line for each member, and for each item of a list without objects."""
    inner = f"{indent} "
    if isinstance(value, dict) and value and not (is_item and _is_flat(value)):
        before = "{\n"
        for name, each in value.items():
            add(f"{before}{inner}{_text(name)}: ")
            _write(each, add, inner)
            before = ",\n"
        add(f"\n{indent}}}")
    elif isinstance(value, list) and _has_objects(value):
        before = "[\n"
        for each in value:
            add(f"{before}{inner}")
            _write(each, add, inner, is_item=True)
            before = ",\n"
        add(f"\n{indent}]")
    else:
        add(_text(value))


def _is_flat(value: dict[str, Value]) -> bool:
    """Whether an object holds neither objects nor lists of them."""
    return not any(
        isinstance(each, dict) or (isinstance(each, list) and _has_objects(each)) for each in value.values()
    )


def _has_objects(values: list[Value]) -> bool:
    """Whether a list, whose items are all of one kind, is one of objects."""
    return bool(values) and isinstance(values[0], dict)


_text: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
