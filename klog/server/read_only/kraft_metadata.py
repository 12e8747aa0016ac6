"""The metadata of KRaft nodes whose directories are served read-only, by their metadata logs.

What the quorum has written counts: topics, their ids and configs, users and quotas. A partition of which no
directory is there keeps its replicas and has no leader. Directories that the metadata does not own are left
out, as a broker of the cluster would do. Nothing is written to the directories.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from klog.client.admin import ResourceType
from klog.cluster_metadata import kraft_form
from klog.cluster_metadata.forms import Reading
from klog.cluster_metadata.model import Cluster, Partition, Topic
from klog.cluster_metadata.without_kraft import cluster_without_kraft
from klog.formats.constants import NO_LEADER
from klog.formats.errors import KlogError, UnsupportedFormatError
from klog.formats.names import CONSUMER_OFFSETS, TopicPartition
from klog.metadata.embedded import FILE_NAME
from klog.metadata.values import LeaderAndIsr, ReplicaAssignment
from klog.replicas.files import is_remote, local_path, parent
from klog.replicas.replica_files import Replica
from klog.storage.log.directory_loading import METADATA_TOPIC

_log = logging.getLogger(__name__)

_GUESS: Final = "topics and their ids are those of the directories, and their configs are not known"


def read_metadata(replicas: Sequence[Replica]) -> Reading | None:
    """What the metadata logs among the replicas say; None if there is none, or none that can be read.

    Records that a later Kafka wrote are named in the log, and left out.
    """
    directories = sorted({parent(each.directory) for each in replicas if _is_metadata_log(each)})
    remote = [each for each in directories if is_remote(each)]
    if remote:
        _log.warning("the metadata log in %s is not read, because it is not local: %s", remote[0], _GUESS)
        return None
    # klog's own tree is newer than the metadata log of a directory that was adopted.
    places = [
        each for each in map(local_path, directories) if not os.path.exists(os.path.join(each, FILE_NAME))
    ]
    if not places:
        return None
    try:
        return kraft_form.read(places, _leave_out_unknown)
    except KlogError as error:
        _log.warning("the metadata log cannot be used: %s; %s", error, _GUESS)
        return None


def _is_metadata_log(replica: Replica) -> bool:
    return replica.partition.topic == METADATA_TOPIC


def _leave_out_unknown(error: KlogError) -> None:
    if not isinstance(error, UnsupportedFormatError):
        raise error
    _log.warning("left out: %s", error.what)


def why_unowned(replica: Replica, cluster: Cluster) -> str | None:
    """Why a directory is none of the cluster's, or None if it is one."""
    name, number = replica.partition
    topic = cluster.topics.get(name)
    if topic is None:
        return "the metadata log has no topic of this name"
    if replica.topic_id not in (None, topic.topic_id):
        return f"the topic of this name has another topic id in the metadata log, {topic.topic_id}"
    if number not in topic.partitions:
        return f"the topic has {len(topic.partitions)} partitions in the metadata log"
    return None


def as_served(
    cluster: Cluster, cluster_id: str, present: Collection[TopicPartition], broker_id: int
) -> Cluster:
    """The cluster of one broker that leads the partitions that are `present`.

    Configs of brokers are left out, because they are those of the broker that reads. So is what would keep
    groups from committing offsets here, which go to the scratch directory.
    """
    found, _ = cluster_without_kraft(cluster)
    configs = {
        resource: _writable(resource.name, each)
        for resource, each in found.configs.items()
        if resource.type is not ResourceType.BROKER
    }
    topics = {name: _served_topic(name, topic, present, broker_id) for name, topic in found.topics.items()}
    return replace(found, cluster_id=cluster_id, topics=topics, configs=configs)


def _writable(name: str, configs: Mapping[str, str | None]) -> Mapping[str, str | None]:
    if name != CONSUMER_OFFSETS:
        return configs
    return {key: value for key, value in configs.items() if key != "min.insync.replicas"}


def _served_topic(name: str, topic: Topic, present: Collection[TopicPartition], broker_id: int) -> Topic:
    return replace(
        topic,
        partitions={
            number: _led(each, broker_id)
            # Groups whose offsets are lost can read, too.
            if TopicPartition(name, number) in present or name == CONSUMER_OFFSETS
            else _without_leader(each)
            for number, each in topic.partitions.items()
        },
    )


def _led(partition: Partition, broker_id: int) -> Partition:
    epoch = partition.state.leader_epoch if partition.state is not None else 0
    return Partition(ReplicaAssignment((broker_id,)), LeaderAndIsr(broker_id, epoch, (broker_id,)))


def _without_leader(partition: Partition) -> Partition:
    epoch = partition.state.leader_epoch if partition.state is not None else 0
    return Partition(ReplicaAssignment(partition.assignment.replicas), LeaderAndIsr(NO_LEADER, epoch, ()))


def missing_partitions(cluster: Cluster, present: Collection[TopicPartition]) -> list[str]:
    """The partitions of which no directory is there, a line for each topic."""
    lines = []
    for name, topic in sorted(cluster.topics.items()):
        missing = [
            number for number in sorted(topic.partitions) if TopicPartition(name, number) not in present
        ]
        if missing:
            what = "begin empty" if name == CONSUMER_OFFSETS else "have no leader"
            listed = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
            lines.append(f"no directory of {name} is there for partitions {listed}: they {what}")
    return lines
