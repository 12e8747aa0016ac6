"""ACLs in a cluster of Kafka and klog: written at one broker, obeyed by the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from klog.protocol.acls import AclOperation, AclResourceType, PatternType
from klog.protocol.apis import ApiKey
from tests.comparison.test_authorization import ADMIN, CONFIG, USER, Client, acl, acl_filter
from tests.peers.broker import ZooKeeperBroker
from tests.peers.kafka import KafkaPeer
from tests.swap.klog_process import KlogBroker
from tests.waiting import eventually

pytestmark = pytest.mark.kafka

TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP


class Member(NamedTuple):
    """One broker, with its administrator and its user."""

    admin: Client
    user: Client


@pytest.fixture(scope="module")
def members(kafka3: KafkaPeer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Member]]:
    work: Path = tmp_path_factory.mktemp("mixed")
    with ZooKeeperBroker(work / "kafka", {**CONFIG, "broker.id": 1}, kafka3) as kafka:
        config = {**CONFIG, "broker.id": 2, "zookeeper.connect": f"127.0.0.1:{kafka.zookeeper_port}"}
        with KlogBroker(work / "klog", config) as klog:
            klog.start()
            found = {
                name: Member(Client(port, ADMIN), Client(port, USER))
                for name, port in (("kafka", kafka.port), ("klog", klog.port))
            }
            yield found
            for member in found.values():
                member.admin.close()
                member.user.close()
            assert "Traceback" not in klog.log_text
            line = (
                f"Principal = User:ANONYMOUS is Denied Operation = Describe from host = {USER} on resource = "
                "Topic:LITERAL:by-kafka-literal for request = Metadata with resourceRefCount = 1"
            )
            assert f"kafka.authorizer.logger  {line}" in klog.log_text
            klog.stop()


def error_of(client: Client, topic: str) -> int:
    """What a client is told of a topic that does not exist: 29 if it may not see it, else 3."""
    asked = client.send(
        ApiKey.METADATA,
        9,
        topics=[{"name": topic, "topic_id": None}],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
        include_cluster_authorized_operations=False,
    )
    return int(asked.topics[0].error_code)


@pytest.mark.parametrize(("writer", "other"), [("kafka", "klog"), ("klog", "kafka")])
@pytest.mark.parametrize(
    "pattern_type", [PatternType.LITERAL, PatternType.PREFIXED], ids=lambda each: each.name
)
def test_what_one_writes_the_other_obeys(members, writer: str, other: str, pattern_type: PatternType) -> None:
    name = f"by-{writer}-{pattern_type.name.lower()}"

    def seen() -> list[int]:
        return [error_of(each.user, name) for each in members.values()]

    # There is no ACL for it yet, so everybody may see it.
    assert seen() == [3, 3]
    of_admin = acl(TOPIC, name, ADMIN, AclOperation.ALL, pattern_type=pattern_type)
    members[writer].admin.send(ApiKey.CREATE_ACLS, 3, creations=[of_admin])
    assert error_of(members[writer].user, name) == 29
    eventually(lambda: seen() == [29, 29])
    # Both write the same node in turn.
    of_user = acl(TOPIC, name, USER, AclOperation.READ, pattern_type=pattern_type)
    members[other].admin.send(ApiKey.CREATE_ACLS, 3, creations=[of_user])
    eventually(lambda: seen() == [3, 3])
    denied = acl(TOPIC, name, USER, AclOperation.DESCRIBE, pattern_type=pattern_type, deny=True)
    members[writer].admin.send(ApiKey.CREATE_ACLS, 3, creations=[denied])
    eventually(lambda: seen() == [29, 29])
    wanted = acl_filter(resource_name_filter=name, pattern_type_filter=pattern_type)
    removed = members[other].admin.send(ApiKey.DELETE_ACLS, 3, filters=[wanted])
    assert len(removed.filter_results[0].matching_acls) == 3
    eventually(lambda: seen() == [3, 3])


def test_both_list_the_same(members) -> None:
    for number, member in enumerate(members.values()):
        creations = [
            acl(GROUP, f"listed-{number}", USER, operation)
            for operation in AclOperation
            if 2 <= operation <= 14
        ]
        results = member.admin.send(ApiKey.CREATE_ACLS, 3, creations=creations).results
        assert not any(each.error_code for each in results)

    def listed() -> list[list]:
        answers = (each.admin.send(ApiKey.DESCRIBE_ACLS, 3, **acl_filter()) for each in members.values())
        return [
            sorted(
                (each.resource_name, *sorted(entry.operation for entry in each.acls))
                for each in answer.resources
            )
            for answer in answers
        ]

    eventually(lambda: listed()[0] == listed()[1])
    assert len(listed()[0]) >= 2
