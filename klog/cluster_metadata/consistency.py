"""What in a cluster's metadata contradicts itself, or would keep a broker from starting on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from klog.client.admin import ResourceType
from klog.cluster_metadata.kraft_records import IN_CONTROLLED_SHUTDOWN
from klog.cluster_metadata.model import METADATA_VERSION, Cluster, Partition, Topic
from klog.config.topic import KEYS_BY_NAME
from klog.formats.errors import KlogError
from klog.security.authorization.acl_znodes import is_principal

_NO_LEADER = -1


class Problem(NamedTuple):
    """Where something is wrong, and what."""

    where: str
    what: str


def problems_of(cluster: Cluster) -> Iterator[Problem]:
    """What is wrong in the metadata alone."""
    if cluster.cluster_id is None:
        yield Problem("cluster", "has no id: a broker with meta.properties of a cluster refuses to start")
    yield from _features(cluster)
    yield from _topic_ids(cluster)
    for name, topic in sorted(cluster.topics.items()):
        yield from _numbers(name, topic)
    for place, partition in cluster.partitions:
        for what in _partition(partition):
            yield Problem(str(place), what)
    yield from _configs(cluster)
    for acl in sorted(cluster.acls):
        if not is_principal(acl.principal):
            yield Problem(f"ACL of {acl.pattern}", f"its principal has no type: {acl.principal}")
    for name in sorted(cluster.deletions - cluster.topics.keys()):
        yield Problem(f"deletion of {name}", "there is no such topic")


def _features(cluster: Cluster) -> Iterator[Problem]:
    level = cluster.features.get(METADATA_VERSION)
    if level is not None and level < IN_CONTROLLED_SHUTDOWN:
        yield Problem(
            METADATA_VERSION,
            f"level {level} is below {IN_CONTROLLED_SHUTDOWN} (3.3-IV3): Kafka 4 refuses to start",
        )
    if level is None and cluster.controllers:
        yield Problem(METADATA_VERSION, "is not there: KRaft's controllers refuse to start")
    if cluster.migration_state in (1, 2):
        yield Problem("migration", "from ZooKeeper has begun and not ended: Kafka 4 refuses to start")


def _topic_ids(cluster: Cluster) -> Iterator[Problem]:
    by_id: dict[str, str] = {}
    for name, topic in sorted(cluster.topics.items()):
        if topic.topic_id is None:
            if cluster.features:
                yield Problem(name, "has no topic id, which KRaft needs")
            continue
        other = by_id.setdefault(topic.topic_id, name)
        if other != name:
            yield Problem(name, f"has the topic id of {other}, {topic.topic_id}")


def _numbers(name: str, topic: Topic) -> Iterator[Problem]:
    missing = sorted(set(range(max(topic.partitions, default=-1) + 1)) - topic.partitions.keys())
    if missing:
        yield Problem(name, f"has no partition {', '.join(map(str, missing[:5]))}, but later ones")
    if not topic.partitions:
        yield Problem(name, "has no partitions")


def _partition(partition: Partition) -> Iterator[str]:
    replicas, state = partition.assignment.replicas, partition.state
    if not replicas:
        yield "has no replicas"
    if len(set(replicas)) < len(replicas):
        yield f"names a broker twice among its replicas: {_shown(replicas)}"
    for what, ids in (("adding", partition.assignment.adding), ("removing", partition.assignment.removing)):
        if not set(ids) <= set(replicas):
            yield f"{what} replicas {_shown(ids)} are not among its replicas {_shown(replicas)}"
    if partition.directories and len(partition.directories) != len(replicas):
        yield f"has {len(partition.directories)} directories for {len(replicas)} replicas"
    if state is None:
        return
    if not set(state.isr) <= set(replicas):
        yield f"its ISR {_shown(state.isr)} has brokers that are no replicas ({_shown(replicas)})"
    if state.leader != _NO_LEADER and state.leader not in state.isr:
        yield f"its leader {state.leader} is not in its ISR {_shown(state.isr)}"


def _shown(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids)) or "(none)"


def _configs(cluster: Cluster) -> Iterator[Problem]:
    for resource, configs in sorted(cluster.configs.items()):
        if resource.type is not ResourceType.TOPIC:
            continue
        if resource.name not in cluster.topics:
            yield Problem(f"configs of topic {resource.name}", "there is no such topic")
        for name, value in sorted(configs.items()):
            key = KEYS_BY_NAME.get(name)
            if key is not None and value is not None:
                try:
                    key.parse(value)
                except KlogError as error:
                    yield Problem(f"configs of topic {resource.name}", error.what)
