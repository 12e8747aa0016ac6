"""Generates the directory of a KRaft node whose snapshot has many partitions: `DIRECTORY TOPICS PARTITIONS`.

Each topic has so many partitions of three replicas on six brokers, and every second one a config. Kafka's own
tools read the snapshot.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from klog.client.admin import Resource, ResourceType
from klog.cluster_metadata import kraft_output, kraft_records, kraft_snapshot
from klog.cluster_metadata.kraft_log import METADATA_DIRECTORY
from klog.cluster_metadata.metadata_versions import LATEST, level_of
from klog.cluster_metadata.model import METADATA_VERSION, Cluster, Partition, Topic
from klog.formats import meta_properties
from klog.formats.names import encode_uuid
from klog.metadata.values import LeaderAndIsr, ReplicaAssignment

_BROKERS = 6
_REPLICAS = 3
_TIMESTAMP_MS = 1_700_000_000_000


def _id(name: str) -> str:
    return encode_uuid(hashlib.sha256(name.encode()).digest()[:16])


def _partition(number: int) -> Partition:
    replicas = tuple((number + index) % _BROKERS + 1 for index in range(_REPLICAS))
    directories = tuple(_id(f"directory {broker}") for broker in replicas)
    return Partition(ReplicaAssignment(replicas), LeaderAndIsr(replicas[0], 5, replicas), directories)


def write(directory: Path, topics: int, partitions: int) -> None:
    """Writes `meta.properties` and the snapshot."""
    names = [f"topic-{number:05}" for number in range(topics)]
    cluster = Cluster(
        cluster_id=_id("cluster"),
        topics={
            name: Topic(_id(name), {number: _partition(index + number) for number in range(partitions)})
            for index, name in enumerate(names)
        },
        configs={Resource(ResourceType.TOPIC, name): {"retention.ms": "86400000"} for name in names[::2]},
        features={METADATA_VERSION: level_of(LATEST)},
        next_producer_id=1000,
        controller_epoch=3,
    )
    held = kraft_records.held(cluster).cluster
    log = directory / METADATA_DIRECTORY
    log.mkdir(parents=True)
    content = kraft_snapshot.batches(kraft_records.values(held), cluster.controller_epoch, _TIMESTAMP_MS, {})
    (log / kraft_output.snapshot_id(held).file_name).write_bytes(b"".join(content))
    identity = meta_properties.create(
        1, node_id=1, cluster_id=cluster.cluster_id, directory_id=_id("directory 1")
    )
    (directory / "meta.properties").write_bytes(meta_properties.build(identity))


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
