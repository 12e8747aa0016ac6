"""Kafka's AclAuthorizer and klog's authoriser: every request is answered alike, allowed or denied.

Who is denied is known by its address: the administrator comes from 127.0.0.1, as the brokers do, and the user
from 127.0.0.2. Both are User:ANONYMOUS.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from uuid import UUID

import pytest

from klog.protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType, PatternType, Permission
from klog.protocol.apis import ApiKey
from klog.protocol.entity_codec import read_entity
from klog.protocol.messages import (
    build,
    decode_response_header,
    encode_request,
    encode_request_header,
    request_class,
    response_class,
)
from klog.security.authorization.operations import SUPPORTED
from tests.comparison import authorization_requests as requests
from tests.comparison.brokers import both_brokers, opened_pair
from tests.peers.kafka import KafkaPeer
from tests.server.handlers.test_against_kafka import comparable
from tests.waiting import eventually

pytestmark = pytest.mark.kafka

ADMIN, USER = "127.0.0.1", "127.0.0.2"
CONFIG: Final = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "group.initial.rebalance.delay.ms": 0,
    "auto.create.topics.enable": "true",
}
TOPIC, GROUP, CLUSTER, ID = (
    AclResourceType.TOPIC,
    AclResourceType.GROUP,
    AclResourceType.CLUSTER,
    AclResourceType.TRANSACTIONAL_ID,
)
# What differs between any two brokers, beside what `comparable` knows.
_APART: Final = {"log_dir", "total_bytes", "usable_bytes", "partition_size", "producer_id", "session_id"}
CLOSED: Final = "closed"


class Client:
    """A connection to one broker from an address."""

    def __init__(self, port: int, address: str) -> None:
        self._port = port
        self._address = address
        self._socket: socket.socket | None = None

    def ask(self, api: ApiKey, version: int, request: Any) -> Any:
        """The answer's entity, or CLOSED."""
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), 60, (self._address, 0))
        body = encode_request(request)
        header = encode_request_header(api, version, 7, "client")
        self._socket.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        size = self._receive(4)
        if not size:
            self.close()
            return CLOSED
        frame = memoryview(self._receive(int.from_bytes(size, "big")))
        _, position = decode_response_header(api, version, frame)
        by_hand = api in (ApiKey.PRODUCE, ApiKey.FETCH)
        kind = requests.message_class(api, version, "Response") if by_hand else response_class(api, version)
        return read_entity(kind, frame[position:])

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _receive(self, count: int) -> bytes:
        assert self._socket is not None
        received = b""
        while len(received) < count:
            try:
                part = self._socket.recv(count - len(received))
            except ConnectionResetError:
                return b""
            if not part:
                return b""
            received += part
        return received

    def send(self, api: ApiKey, version: int, /, **values: Any) -> Any:
        return self.ask(api, version, build(request_class(api, version), **values))


class Side(NamedTuple):
    """One broker, its administrator, its user and the ids of its topics."""

    admin: Client
    user: Client
    ids: dict[str, UUID]


def acl(kind: AclResourceType, name: str, host: str, operation: AclOperation, **options: Any) -> dict:
    return {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": options.get("pattern_type", PatternType.LITERAL),
        "principal": "User:ANONYMOUS",
        "host": host,
        "operation": operation,
        "permission_type": Permission.DENY if options.get("deny") else Permission.ALLOW,
    }


@pytest.fixture(scope="module")
def sides(kafka3: KafkaPeer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Side]]:
    with both_brokers(kafka3, tmp_path_factory.mktemp("acls"), CONFIG) as ports:
        with opened_pair(ports):
            pass
        opened = [Side(Client(port, ADMIN), Client(port, USER), {}) for port in ports]
        for side in opened:
            _prepare(side)
        yield opened
        for side in opened:
            side.admin.close()
            side.user.close()


def _prepare(side: Side) -> None:
    names = (requests.HERE, requests.OTHER)
    topics = [
        {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
        for name in names
    ]
    side.admin.send(ApiKey.CREATE_TOPICS, 5, topics=topics, timeout=requests._SHORT, validate_only=False)

    def is_there() -> bool:
        asked = [{"name": name, "topic_id": None} for name in names]
        found = side.admin.send(
            ApiKey.METADATA,
            12,
            topics=asked,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        ).topics
        side.ids.update({topic.name: topic.topic_id for topic in found if not topic.error_code})
        return len(side.ids) == 2 and all(each.leader_id == 0 for topic in found for each in topic.partitions)

    eventually(is_there)
    everything = [(TOPIC, "*"), (GROUP, "*"), (ID, "*"), (CLUSTER, CLUSTER_NAME)]
    creations = [acl(kind, name, ADMIN, AclOperation.ALL) for kind, name in everything]
    created = side.admin.send(ApiKey.CREATE_ACLS, 3, creations=creations)
    assert not any(each.error_code for each in created.results)


def compared(answer: Any) -> Any:
    def without(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: without(each) for name, each in value.items() if name not in _APART}
        return [without(each) for each in value] if isinstance(value, list) else value

    return answer if answer == CLOSED else without(comparable(answer))


def assert_alike(sides: list[Side], api: ApiKey, version: int) -> Any:
    kafka, klog = (
        compared(side.user.ask(api, version, requests.request_of(api, version, side.ids))) for side in sides
    )
    assert klog == kafka, f"{api.title} {version}\nKafka {kafka}\nklog  {klog}"
    return klog


EVERY_VERSION: Final = [(api, version) for api in requests.VALUES for version in requests.versions(api)]


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION, ids=lambda each: getattr(each, "title", each))
def test_every_version_of_a_denied_request_is_answered_alike(sides, api, version) -> None:
    assert_alike(sides, api, version)


RIGHTS: Final = [
    *((kind, "a-", PatternType.PREFIXED, each) for kind in (TOPIC, GROUP, ID) for each in SUPPORTED[kind]),
    *((CLUSTER, CLUSTER_NAME, PatternType.LITERAL, each) for each in SUPPORTED[CLUSTER]),
    (TOPIC, "a-", PatternType.PREFIXED, AclOperation.ALL),
]


DENIED_NAMES: Final = {
    TOPIC: requests.HERE,
    GROUP: requests.GROUPS[0],
    ID: requests.IDS[0],
    CLUSTER: CLUSTER_NAME,
}


@pytest.mark.parametrize("denied", [None, AclOperation.DESCRIBE, AclOperation.READ], ids=str)
@pytest.mark.parametrize(
    ("kind", "name", "pattern_type", "operation"), RIGHTS, ids=lambda each: getattr(each, "name", each)
)
def test_each_right_opens_the_same_requests(sides, kind, name, pattern_type, operation, denied) -> None:
    granted = [acl(kind, name, USER, operation, pattern_type=pattern_type)]
    if denied is not None:
        granted.append(acl(kind, DENIED_NAMES[kind], USER, denied, deny=True))
    if kind is not TOPIC:
        # Most requests of groups and transactions name topics, too.
        granted.append(acl(TOPIC, "a-", USER, AclOperation.ALL, pattern_type=PatternType.PREFIXED))
    if kind is ID:
        granted.append(acl(GROUP, "a-", USER, AclOperation.ALL, pattern_type=PatternType.PREFIXED))
    for side in sides:
        created = side.admin.send(ApiKey.CREATE_ACLS, 3, creations=granted)
        assert not any(each.error_code for each in created.results)
    try:
        wrong = []
        for api in requests.VALUES:
            try:
                assert_alike(sides, api, requests.versions(api)[-1])
            except AssertionError as error:
                wrong.append(str(error))
        assert not wrong, "\n".join(wrong)
    finally:
        mine = {
            "resource_type_filter": AclResourceType.ANY,
            "resource_name_filter": None,
            "pattern_type_filter": PatternType.ANY,
            "principal_filter": None,
            "host_filter": USER,
            "operation": AclOperation.ANY,
            "permission_type": Permission.ANY,
        }
        for side in sides:
            removed = side.admin.send(ApiKey.DELETE_ACLS, 3, filters=[mine])
            assert len(removed.filter_results[0].matching_acls) == len(granted)


# -- requests for ACLs ---------------------------------------------------------------------------------------

_UNUSUAL: Final = {
    "another cluster": {"resource_type": CLUSTER, "resource_name": "mine"},
    "no name": {"resource_name": ""},
    "a slash": {"resource_name": "a/b"},
    "a dot": {"resource_name": "."},
    "two dots": {"resource_name": ".."},
    "a control character": {"resource_name": "a\tb"},
    "a zero": {"resource_name": "a\0b"},
    "a private character": {"resource_name": "a\ue000b"},
    "a character above U+FFFF": {"resource_name": "😀"},
    "other characters": {"resource_name": "ä €%\u4e00 b"},
    "an operation of Kafka 4": {"operation": 15},
    "an unknown operation": {"operation": 99},
    "an unknown resource": {"resource_type": 99},
    "no resource": {"resource_type": 0},
    "any operation": {"operation": 1},
    "any resource": {"resource_type": 1},
    "any permission": {"permission_type": 1},
    "a pattern that matches": {"resource_pattern_type": 2},
    "no type of principal": {"principal": "zed"},
    "an empty principal": {"principal": ""},
    "an operation without sense": {"operation": AclOperation.IDEMPOTENT_WRITE},
    "a star that is prefixed": {"resource_name": "*", "resource_pattern_type": PatternType.PREFIXED},
    "a strange host": {"host": "no host"},
    "an empty host": {"host": ""},
    "a user": {"resource_type": AclResourceType.USER, "resource_name": "User:zed", "operation": 13},
}


def by_admins(sides: list[Side], api: ApiKey, version: int, **values: Any) -> list[Any]:
    """What both answer to their administrators, texts included."""

    def shown(answer: Any) -> Any:
        return answer if answer == CLOSED else repr(answer)

    kafka, klog = (shown(side.admin.send(api, version, **values)) for side in sides)
    assert klog == kafka
    return [kafka, klog]


@pytest.mark.parametrize("version", range(1, 4))
@pytest.mark.parametrize("what", _UNUSUAL)
def test_unusual_acls_are_answered_alike(sides, what, version) -> None:
    usual = acl(TOPIC, "usual", USER, AclOperation.READ)
    creations = [usual, {**usual, **_UNUSUAL[what]}]
    by_admins(sides, ApiKey.CREATE_ACLS, version, creations=creations)


FILTERS: Final = {
    "everything": {},
    "a name": {"resource_name_filter": "a-x", "pattern_type_filter": PatternType.LITERAL},
    "a name of any kind": {"resource_name_filter": "a-x"},
    "what applies to a name": {"resource_name_filter": "a-xyz", "pattern_type_filter": PatternType.MATCH},
    "a prefix": {"resource_name_filter": "a-", "pattern_type_filter": PatternType.PREFIXED},
    "an operation": {"operation": AclOperation.READ},
    "all operations": {"operation": AclOperation.ALL},
    "denials": {"permission_type": Permission.DENY},
    "a host": {"host_filter": "10.0.0.1"},
    "a principal": {"principal_filter": "User:zed"},
    "a type": {"resource_type_filter": GROUP},
    "an unknown type": {"resource_type_filter": 99},
    "no type": {"resource_type_filter": 0},
    "an unknown pattern": {"pattern_type_filter": 9},
}


def acl_filter(**options: Any) -> dict:
    return {
        "resource_type_filter": AclResourceType.ANY,
        "resource_name_filter": None,
        "pattern_type_filter": PatternType.ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": AclOperation.ANY,
        "permission_type": Permission.ANY,
        **options,
    }


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("what", FILTERS)
def test_filters_find_and_remove_alike(sides, what, version) -> None:
    creations = [
        acl(TOPIC, "a-x", "10.0.0.1", AclOperation.READ),
        acl(TOPIC, "a-x", "10.0.0.2", AclOperation.ALL, deny=True),
        acl(TOPIC, "a-", "10.0.0.1", AclOperation.WRITE, pattern_type=PatternType.PREFIXED),
        acl(GROUP, "a-xyz", "10.0.0.1", AclOperation.READ),
        acl(GROUP, "*", "10.0.0.3", AclOperation.READ),
    ]
    for side in sides:
        side.admin.send(ApiKey.CREATE_ACLS, 3, creations=creations)
    found = [
        compared(side.admin.send(ApiKey.DESCRIBE_ACLS, version, **acl_filter(**FILTERS[what])))
        for side in sides
    ]
    assert found[0] == found[1]
    # Without this the administrators would remove their own.
    wanted = [acl_filter(host_filter="10.0.0.3"), acl_filter(**{"host_filter": "10.0.0.1", **FILTERS[what]})]
    removed = [compared(side.admin.send(ApiKey.DELETE_ACLS, version, filters=wanted)) for side in sides]
    assert removed[0] == removed[1]


def test_topics_are_created_alike_only_for_those_who_may(sides) -> None:
    def asked(name: str) -> dict[str, Any]:
        return {
            "topics": [{"name": name, "topic_id": None}],
            "allow_auto_topic_creation": True,
            "include_topic_authorized_operations": False,
            "include_cluster_authorized_operations": False,
        }

    def errors(name: str) -> list[int]:
        return [int(side.user.send(ApiKey.METADATA, 9, **asked(name)).topics[0].error_code) for side in sides]

    assert errors("auto-1") == [29, 29]
    for operation, expected in ((AclOperation.WRITE, 29), (AclOperation.CREATE, 5)):
        granted = [acl(TOPIC, "auto-", USER, operation, pattern_type=PatternType.PREFIXED)]
        for side in sides:
            side.admin.send(ApiKey.CREATE_ACLS, 3, creations=granted)
        found = errors("auto-1")
        assert found[0] == found[1]
        assert found[1] in (expected, 3)
