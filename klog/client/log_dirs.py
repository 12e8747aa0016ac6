"""Asks brokers what their log directories hold, and tells them to move replicas between these directories.

Rules: KIP-113 (both requests; each broker answers for itself), KIP-827 (bytes of the volume, from version 4
on). Before version 3 a broker that refuses the request answers with no directory at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from klog.client.cluster import Cluster
from klog.client.connection import Connection
from klog.client.consumer_protocol import partitions_by_topic
from klog.client.errors import ClientError, RefusedError
from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode, error_code
from klog.protocol.errors import ProtocolError
from klog.protocol.messages import build, request_class, request_struct

_UNKNOWN_BYTES: Final = -1


class Replica(NamedTuple):
    """The replica of a partition on one broker."""

    partition: TopicPartition
    broker_id: int

    def __str__(self) -> str:
        return f"{self.partition}-{self.broker_id}"


class ReplicaInLogDir(NamedTuple):
    """A replica as its broker describes it.

    `offset_lag` is how many offsets it is behind: the current replica behind the high watermark, a future
    replica behind the current one. `is_future` is set for the copy of a move between log directories.
    """

    partition: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool


class LogDir(NamedTuple):
    """A log directory of a broker with its replicas, sorted.

    `error` is NONE, or KAFKA_STORAGE_ERROR if the directory is offline. The bytes of the volume are None if
    the broker does not tell them.
    """

    broker_id: int
    path: str
    error: ErrorCode
    total_bytes: int | None
    usable_bytes: int | None
    replicas: tuple[ReplicaInLogDir, ...]


class LogDirs(NamedTuple):
    """The directories of the brokers that answered, sorted, and why the other brokers did not answer."""

    dirs: tuple[LogDir, ...]
    failures: Mapping[int, KlogError]


def describe_log_dirs(
    cluster: Cluster,
    broker_ids: Collection[int] | None = None,
    partitions: Collection[TopicPartition] | None = None,
) -> LogDirs:
    """The log directories of these brokers, or of all that are alive, with these replicas or all.

    A broker that is unknown, cannot be reached or refuses is among the failures. Raises ChannelError if no
    broker answers a Metadata request.
    """
    alive = {int(broker.node_id) for broker in cluster.metadata(()).brokers}
    wanted = None if partitions is None else partitions_by_topic(sorted(set(partitions)))
    dirs: list[LogDir] = []
    failures: dict[int, KlogError] = {}
    for broker_id in sorted(alive if broker_ids is None else set(broker_ids)):
        try:
            dirs += _described(broker_id, cluster.connection(broker_id), wanted)
        except (ClientError, ProtocolError) as error:
            failures[broker_id] = error
    return LogDirs(tuple(dirs), failures)


def _described(
    broker_id: int, connection: Connection, wanted: Mapping[str, list[int]] | None
) -> list[LogDir]:
    version = connection.version_of(ApiKey.DESCRIBE_LOG_DIRS)
    topic = request_struct(ApiKey.DESCRIBE_LOG_DIRS, version, "DescribableLogDirTopic")
    topics = None
    if wanted is not None:
        topics = tuple(build(topic, topic=name, partitions=tuple(each)) for name, each in wanted.items())
    answer = connection.send(build(request_class(ApiKey.DESCRIBE_LOG_DIRS, version), topics=topics))
    code = error_code(getattr(answer, "error_code", ErrorCode.NONE))
    if code is ErrorCode.NONE and not answer.results:
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if code is not ErrorCode.NONE:
        raise RefusedError(f"log directories of broker {broker_id}", code)
    return sorted(_log_dir(broker_id, result) for result in answer.results)


def _log_dir(broker_id: int, result: Entity) -> LogDir:
    replicas = (
        ReplicaInLogDir(
            TopicPartition(topic.name, int(part.partition_index)),
            int(part.partition_size),
            int(part.offset_lag),
            bool(part.is_future_key),
        )
        for topic in result.topics
        for part in topic.partitions
    )
    return LogDir(
        broker_id,
        result.log_dir,
        error_code(result.error_code),
        _bytes(getattr(result, "total_bytes", _UNKNOWN_BYTES)),
        _bytes(getattr(result, "usable_bytes", _UNKNOWN_BYTES)),
        tuple(sorted(replicas)),
    )


def _bytes(value: int) -> int | None:
    return None if value == _UNKNOWN_BYTES else int(value)


def alter_replica_log_dirs(
    cluster: Cluster, targets: Mapping[Replica, str]
) -> dict[Replica, KlogError | None]:
    """Move each replica to a directory of its broker; returns None for what was begun, else the error.

    A move goes on in the broker after the answer. REPLICA_NOT_AVAILABLE means that the broker has no such
    replica yet, and will create it in that directory. A target where the replica is ends a move. Raises
    ChannelError if no broker answers a Metadata request.
    """
    cluster.metadata(())
    outcomes: dict[Replica, KlogError | None] = {}
    for broker_id in sorted({replica.broker_id for replica in targets}):
        own = {replica.partition: path for replica, path in targets.items() if replica.broker_id == broker_id}
        try:
            codes = _altered(cluster.connection(broker_id), own)
        except (ClientError, ProtocolError) as error:
            outcomes |= {Replica(partition, broker_id): error for partition in own}
            continue
        for partition in own:
            replica = Replica(partition, broker_id)
            code = codes.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
            outcomes[replica] = (
                None if code is ErrorCode.NONE else RefusedError(f"moving replica {replica}", code)
            )
    return outcomes


def _altered(
    connection: Connection, targets: Mapping[TopicPartition, str]
) -> dict[TopicPartition, ErrorCode]:
    version = connection.version_of(ApiKey.ALTER_REPLICA_LOG_DIRS)
    directory, topic = (
        request_struct(ApiKey.ALTER_REPLICA_LOG_DIRS, version, name)
        for name in ("AlterReplicaLogDir", "AlterReplicaLogDirTopic")
    )

    def in_dir(path: str) -> Iterable[TopicPartition]:
        return sorted(partition for partition, target in targets.items() if target == path)

    dirs = tuple(
        build(
            directory,
            path=path,
            topics=tuple(
                build(topic, name=name, partitions=tuple(numbers))
                for name, numbers in partitions_by_topic(in_dir(path)).items()
            ),
        )
        for path in sorted(set(targets.values()))
    )
    answer = connection.send(build(request_class(ApiKey.ALTER_REPLICA_LOG_DIRS, version), dirs=dirs))
    return {
        TopicPartition(each.topic_name, int(part.partition_index)): error_code(part.error_code)
        for each in answer.results
        for part in each.partitions
    }
