"""The JSON form holds a whole cluster, equal clusters are equal text, and bad files are refused by place."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from klog.client.admin import Resource, ResourceType
from klog.cluster_metadata import json_form
from klog.cluster_metadata.model import Cluster, Partition, ScramUser, Topic, is_secret
from klog.formats.errors import FormatError, UnsupportedFormatError
from klog.formats.names import TopicPartition
from klog.metadata.values import LeaderAndIsr, ReplicaAssignment
from klog.security.authentication.scram_credentials import ScramCredential
from tests.cluster_strategies import clusters

ORDERS = Topic(
    "S3bGnjVJR-WENkNtQu8u2g",
    {
        0: Partition(ReplicaAssignment((1, 2)), LeaderAndIsr(1, 4, (2, 1), partition_epoch=5)),
        1: Partition(ReplicaAssignment((2, 3, 1), (3,), (1,)), LeaderAndIsr(-1, 2, (1,))),
        2: Partition(ReplicaAssignment((3,))),
    },
)
BROKER_1 = Resource(ResourceType.BROKER, "1")
CLUSTER = Cluster(
    cluster_id="iuvGZtffTPmwwhc6461t6Q",
    topics={"orders": ORDERS},
    configs={BROKER_1: {"ssl.key.password": "pw", "log.cleaner.threads": "2", "plugin.setting": "?"}},
    scram={ScramUser("alice", "SCRAM-SHA-256"): ScramCredential(b"s", b"k", b"v", 4096)},
)
TEXT = """\
{
 "format": "klog cluster metadata",
 "version": 1,
 "clusterId": "iuvGZtffTPmwwhc6461t6Q",
 "topics": [
  {
   "name": "orders",
   "topicId": "S3bGnjVJR-WENkNtQu8u2g",
   "partitions": [
    {"partition": 0, "replicas": [1, 2], "leader": 1, "leaderEpoch": 4, "isr": [2, 1], "partitionEpoch": 5},
    {"partition": 1, "replicas": [2, 3, 1], "adding": [3], "removing": [1], "leader": -1, "leaderEpoch": 2, "isr": [1]},
    {"partition": 2, "replicas": [3]}
   ]
  }
 ],
 "configs": [
  {
   "type": "BROKER",
   "name": "1",
   "configs": {
    "log.cleaner.threads": "2",
    "plugin.setting": null,
    "ssl.key.password": null
   }
  }
 ],
 "scram": [
  {"user": "alice", "mechanism": "SCRAM-SHA-256", "credential": null}
 ]
}
"""  # noqa: E501 (a partition is a line)


@given(clusters)
def test_a_cluster_comes_back_equal(cluster: Cluster) -> None:
    data = json_form.encode(cluster, secrets=True)
    assert json_form.decode(data) == cluster
    assert json_form.encode(json_form.decode(data), secrets=True) == data


def test_each_partition_is_a_line_and_secrets_are_null() -> None:
    assert json_form.encode(CLUSTER).decode() == TEXT


def test_what_was_left_out_is_known_when_the_file_is_read() -> None:
    assert json_form.decode(TEXT.encode()) == CLUSTER.without_secrets()
    assert json_form.decode(TEXT.encode()).hidden_secrets == [
        "plugin.setting of broker 1",
        "ssl.key.password of broker 1",
        "the SCRAM-SHA-256 credential of user alice",
    ]
    assert CLUSTER.hidden_secrets == []


def test_passwords_and_unknown_configs_of_brokers_are_secrets() -> None:
    assert is_secret(BROKER_1, "listener.name.external.ssl.keystore.password")
    assert not is_secret(BROKER_1, "leader.replication.throttled.rate")
    assert not is_secret(Resource(ResourceType.TOPIC, "t"), "anything")


def test_a_reassignment_under_way_is_told_by_its_replicas() -> None:
    moving = {TopicPartition("orders", 1): ReplicaAssignment((2, 3, 1), (3,), (1,))}
    assert CLUSTER.reassignments == moving


@pytest.mark.parametrize(
    ("path", "value", "what"),
    [
        (("version",), 2, "has version 2; this klog knows version 1"),
        (("version",), True, "has version True"),
        (("clusterId",), 7, "clusterId is not text but 7"),
        (("colour",), "red", "the file has an unknown member: 'colour'"),
        (("topics",), {}, "topics is not a list but {}"),
        (("topics", 0, "name"), "a/b", "topics[0].name is not a topic's name but 'a/b'"),
        (("topics", 0, "topicId"), "x", "topics[0].topicId is not an id of 22 characters but 'x'"),
        (
            ("topics", 0, "partitions", 1, "partition"),
            0,
            "topics[0].partitions[1] has the key of another item",
        ),
        (("topics", 0, "partitions", 1, "isr"), [-1], "topics[0].partitions[1].isr[0] is not a whole number"),
        (("topics", 0, "partitions", 2, "leader"), 3, "topics[0].partitions[2] has no leaderEpoch"),
        (("configs", 0, "type"), "HOST", "configs[0].type is not one of TOPIC, BROKER"),
        (("scram", 0, "credential"), "secret=1", "scram[0].credential: it does not consist of salt"),
        (("quotas",), [{"quotas": {"producer_byte_rate": 1e999}}], "is not a finite number"),
    ],
)
def test_an_invalid_file_is_refused_with_the_place(
    path: tuple[str | int, ...], value: object, what: str
) -> None:
    content = json.loads(TEXT)
    inner = content
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    with pytest.raises(FormatError) as caught:
        json_form.decode(json.dumps(content).encode())
    assert what in str(caught.value)


def test_a_version_of_a_later_klog_is_unsupported() -> None:
    with pytest.raises(UnsupportedFormatError):
        json_form.decode(TEXT.replace('"version": 1', '"version": 2').encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b'{"version": 1}', b"[" * 100_000])
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        json_form.decode(data)
