"""Asks brokers what their log directories hold, and tells them to move replicas between these directories.

Rules: KIP-113 (both requests; each broker answers for itself), KIP-827 (bytes of the volume, from version 4
on). Before version 3 a broker that refuses the request answers with no directory at all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from klog.client.asking import broker_ids as broker_ids_alive
from klog.client.cluster import Cluster
from klog.client.connection import Connection
from klog.client.errors import ClientError, RefusedError
from klog.client.requests import accepted, ask, by_partition, by_topic
from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity, Value
from klog.protocol.error_codes import ErrorCode, error_code
from klog.protocol.errors import ProtocolError

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
    alive = broker_ids_alive(cluster)
    topics = None if partitions is None else by_topic(sorted(set(partitions)), topic="topic")
    dirs: list[LogDir] = []
    failures: dict[int, KlogError] = {}
    for broker_id in alive if broker_ids is None else sorted(set(broker_ids)):
        try:
            dirs += _described(broker_id, cluster.connection(broker_id), topics)
        except (ClientError, ProtocolError) as error:
            failures[broker_id] = error
    return LogDirs(tuple(dirs), failures)


def _described(broker_id: int, connection: Connection, topics: Value) -> list[LogDir]:
    what = f"log directories of broker {broker_id}"
    answer = accepted(ask(connection, ApiKey.DESCRIBE_LOG_DIRS, topics=topics), what)
    if not answer.results:
        raise RefusedError(what, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return sorted(_log_dir(broker_id, result) for result in answer.results)


def _log_dir(broker_id: int, result: Entity) -> LogDir:
    replicas = (
        ReplicaInLogDir(partition, int(part.partition_size), int(part.offset_lag), bool(part.is_future_key))
        for partition, part in by_partition(result.topics)
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
    dirs = [
        {"path": path, "topics": by_topic(sorted(each for each in targets if targets[each] == path))}
        for path in sorted(set(targets.values()))
    ]
    answer = ask(connection, ApiKey.ALTER_REPLICA_LOG_DIRS, dirs=dirs)
    return {
        partition: error_code(part.error_code)
        for partition, part in by_partition(answer.results, topic="topic_name")
    }
