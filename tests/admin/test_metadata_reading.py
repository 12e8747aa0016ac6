"""A cluster's metadata as its API tells it, beside what its tree has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

import klog.testing
from klog.admin import connect
from klog.admin.metadata_reading import Described, read_metadata
from klog.admin.requests.scram_users import ScramMechanism, alter_users, salted
from klog.admin.settings import settings_of
from klog.cluster_metadata.forms import raise_problem
from klog.cluster_metadata.model import Cluster
from klog.cluster_metadata.sources import read_source
from klog.testing.process import BrokerProcess
from tests.commands.running import runner


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    authorizer = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with klog.testing.broker(authorizer) as running:
        running.create_topic("orders", partitions=3, config={"retention.ms": "-1"})
        running.create_topic("plain")
        yield running


def described(broker: BrokerProcess) -> Described:
    with connect.cluster(settings_of({}, bootstrap=broker.bootstrap_servers)) as client:
        return read_metadata(client)


def fill(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    rule = AclBinding(
        ResourceType.TOPIC,
        "invoices",
        ResourcePatternType.PREFIXED,
        "User:alice",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    admin.create_acls([rule])[rule].result()
    with connect.cluster(settings_of({}, bootstrap=broker.bootstrap_servers)) as client:
        alter_users(client, [salted("alice", "secret", ScramMechanism.SCRAM_SHA_256, b"salt" * 4)])


def test_the_api_tells_what_the_tree_has(broker: BrokerProcess) -> None:
    fill(broker)
    found = described(broker)
    broker.stop()
    tree = read_source(str(broker.log_dirs[0]), raise_problem).cluster.without_secrets()
    assert found.untold == ()
    assert found.cluster.cluster_id == tree.cluster_id
    assert found.cluster.topics.keys() == tree.topics.keys() == {"orders", "plain"}
    for name, topic in tree.topics.items():
        assert found.cluster.topics[name].topic_id == topic.topic_id
        assert {
            number: each.assignment for number, each in found.cluster.topics[name].partitions.items()
        } == {number: each.assignment for number, each in topic.partitions.items()}
    assert found.cluster.configs == tree.configs
    assert found.cluster.acls == tree.acls
    assert found.cluster.scram == tree.scram
    assert found.cluster.acls
    assert found.cluster.scram


def test_a_backup_over_the_wire_has_the_metadata_without_being_asked(
    broker: BrokerProcess,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(broker)
    klog_command = runner(capfd, monkeypatch)
    place, path = tmp_path / "repository", tmp_path / "restored"
    done = klog_command("backup", "run", "-b", broker.bootstrap_servers, "--to", place)
    assert done.code == 0
    assert "not in the backup's metadata: the SCRAM-SHA-256 credential of user alice" in done.err
    assert klog_command("restore", place, "--to", path).code == 0
    restored: Cluster = read_source(str(path), raise_problem).cluster
    found = described(broker).cluster
    assert restored.acls == found.acls
    assert restored.configs == found.configs
