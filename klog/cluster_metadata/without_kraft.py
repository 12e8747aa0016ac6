"""A cluster of KRaft as brokers without KRaft go on with it: its metadata, and its log directories.

`meta.properties` becomes that of a broker without KRaft. What it was is kept as `meta.properties.kraft`, so
that the way back is to put it in its place again. The metadata log stays as it is.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from klog.client.admin import ResourceType
from klog.cluster_metadata.model import Cluster, Partition
from klog.config.dynamic import passwords
from klog.config.password_encoder import is_encrypted
from klog.formats import meta_properties
from klog.formats.meta_properties import MetaProperties
from klog.formats.names import FileKind
from klog.storage.files.files import write_atomically

KEPT_SUFFIX: Final = ".kraft"
_SHARE_GROUP_STATE: Final = "__share_group_state"
_GROUPS_OF_KRAFT: Final = {
    "group.version": "groups of the consumer protocol (KIP-848)",
    "share.version": "share groups",
    "streams.version": "groups of the streams protocol (KIP-1071)",
}


def is_of_kraft(identities: Mapping[str, MetaProperties | None]) -> bool:
    """Whether log directories belong to a KRaft node."""
    return any(found is not None and found.version != 0 for found in identities.values())


def cluster_without_kraft(cluster: Cluster) -> tuple[Cluster, tuple[str, ...]]:
    """The cluster as a controller without KRaft can go on with it, and what it does not get.

    Eligible leaders become the ISR of a partition that has none (KIP-966). Passwords in configs of brokers
    are left out unless they are encrypted as a tree has them.
    """
    topics = {
        name: replace(
            topic, partitions={number: _with_isr(each) for number, each in topic.partitions.items()}
        )
        for name, topic in cluster.topics.items()
    }
    plain = {
        (resource, name)
        for resource, configs in cluster.configs.items()
        if resource.type is ResourceType.BROKER
        for name in passwords(configs)
        if not is_encrypted(configs[name] or "")
    }
    configs = {
        resource: {name: value for name, value in each.items() if (resource, name) not in plain}
        for resource, each in cluster.configs.items()
    }
    kept_back = [
        f"{name} of broker {resource.name or 'default'} is not taken over: set it again"
        for resource, name in sorted(plain)
    ]
    count = sum(topics[name].partitions != each.partitions for name, each in cluster.topics.items())
    if count:
        kept_back.append(f"eligible leaders become the ISR of partitions that have none, in {count:,} topics")
    found = {resource: each for resource, each in configs.items() if each}
    return replace(cluster, topics=topics, configs=found), tuple(kept_back)


def _with_isr(partition: Partition) -> Partition:
    state = partition.state
    if state is None or state.isr:
        return partition
    return replace(partition, state=replace(state, isr=partition.eligible_leaders))


def identity_without_kraft(found: MetaProperties | None) -> MetaProperties | None:
    """The identity of a directory for a broker without KRaft."""
    if found is None or found.version == 0:
        return found
    return meta_properties.create(
        0,
        node_id=found.node_id,
        cluster_id=found.cluster_id,
        directory_id=found.directory_id,
        comments=("",),
    )


def rewrite_identities(identities: Mapping[str, MetaProperties | None]) -> None:
    """Replaces the files of KRaft nodes, and keeps what they were. Raises `StorageError`."""
    for directory, found in identities.items():
        changed = identity_without_kraft(found)
        if changed is not None and changed is not found:
            path = os.path.join(directory, FileKind.META_PROPERTIES)
            shutil.copy2(path, path + KEPT_SUFFIX)
            write_atomically(path, meta_properties.build(changed))


def not_read_by_kafka_3_9(cluster: Cluster) -> Iterator[str]:
    """What stays on disk, and is not read by Kafka 3.9 without KRaft, in words."""
    for feature, groups in _GROUPS_OF_KRAFT.items():
        if cluster.features.get(feature):
            yield (
                f"{groups}: Kafka 3.9 keeps their committed offsets and passes over their other records in"
                " __consumer_offsets; members join anew"
            )
    if _SHARE_GROUP_STATE in cluster.topics:
        yield f"the state of share groups: {_SHARE_GROUP_STATE} stays a topic, which Kafka 3.9 does not read"
    if any(resource.type is ResourceType.GROUP for resource in cluster.configs):
        yield "configs of groups: klog reads them in ZooKeeper, Kafka 3.9 does not"
