"""Compares assignments with a cluster, and finds what forbids to execute them before anything is changed.

Rules: Kafka's ReassignPartitionsCommand (`executeAssignment`): no other reassignment may run, all brokers and
partitions have to exist. Unlike Kafka's tool, a move that runs towards the same target is no obstacle, so
that an interrupted execution can be continued, and named directories have to exist.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from klog.admin.reassign.moves import Move, moves_of
from klog.admin.reassign.values import ANY_LOG_DIR, PartitionAssignment
from klog.admin.requests.reassignments import RunningReassignment, list_reassignments
from klog.client.cluster import Cluster
from klog.client.errors import ClientError, RefusedError, UnknownTopicError
from klog.client.log_dirs import LogDir, describe_log_dirs
from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition
from klog.formats.wording import first_of
from klog.protocol.error_codes import ErrorCode

EXISTING: Final = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to override this "
    "and create a new partition assignment in addition to the existing one. The --additional flag can also "
    "be used to change the throttle by resubmitting the current reassignment."
)
"""What Kafka's tool says if another reassignment runs."""

_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is to be done. `failures` are brokers that did not tell the sizes of their replicas."""

    moves: tuple[Move, ...]
    others: tuple[RunningReassignment, ...]
    failures: Mapping[int, KlogError]

    @property
    def pending(self) -> tuple[Move, ...]:
        """The moves that are not done, in the order of the file."""
        return tuple(move for move in self.moves if not move.is_done)

    @property
    def former(self) -> list[PartitionAssignment]:
        """The assignment to go back to; it names the directories of partitions that get named ones."""
        return [
            PartitionAssignment(move.partition, move.sources, move.former_log_dirs) for move in self.moves
        ]

    @property
    def current(self) -> list[PartitionAssignment]:
        """The assignment now as Kafka's tool shows it: with the replicas that a running move adds."""
        return [PartitionAssignment(move.partition, move.current) for move in self.moves]


def prepare(
    cluster: Cluster, targets: Sequence[PartitionAssignment], *, additional: bool, strict: bool = False
) -> Prepared:
    """What the targets mean for the cluster as it is now. Changes nothing.

    `strict` refuses what Kafka's tool refuses: also the continuation of the same move. Raises ClientError for
    other reassignments that run, brokers and partitions that do not exist; ChannelError.
    """
    running = list_reassignments(cluster)
    wanted = {each.partition: each.replicas for each in targets}
    others = tuple(each for each in running if strict or wanted.get(each.partition) != each.target)
    if others and not additional:
        raise ClientError(EXISTING) if strict else _existing(others)
    alive = {int(broker.node_id) for broker in cluster.metadata(()).brokers}
    current = current_replicas(cluster, wanted)
    missing = sorted(wanted.keys() - current.keys())
    _check_brokers(targets, {} if strict else current, alive)
    if missing:
        raise UnknownTopicError(
            f"Unable to find partition: {first_of(missing, _SHOWN)}",
            cure="`klog topics describe` shows what there is",
        )
    brokers = {broker for each in targets for broker in (*each.replicas, *current[each.partition])}
    found = describe_log_dirs(cluster, brokers & alive, list(wanted))
    if not strict:
        _check_dirs(targets, found.dirs, found.failures)
    return Prepared(tuple(moves_of(targets, current, running, found.dirs)), others, found.failures)


def _existing(others: Sequence[RunningReassignment]) -> ClientError:
    names = first_of([each.partition for each in others], _SHOWN)
    return ClientError(
        f"other reassignments are running: {names}",
        cure="`klog reassign watch` shows them; --additional adds this one or replaces them",
    )


def current_replicas(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas of those partitions that exist. Raises RefusedError, ChannelError."""
    wanted = set(partitions)
    found = {}
    for topic in cluster.metadata(sorted({partition.topic for partition in wanted})).topics:
        if topic.error_code not in (
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.LEADER_NOT_AVAILABLE,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ):
            raise RefusedError(f"topic {topic.name}", topic.error_code)
        for part in topic.partitions:
            partition = TopicPartition(topic.name, int(part.partition_index))
            if partition in wanted:
                found[partition] = tuple(map(int, part.replica_nodes))
    return found


def _check_brokers(
    targets: Iterable[PartitionAssignment],
    current: Mapping[TopicPartition, Collection[int]],
    alive: Collection[int],
) -> None:
    """Raises ClientError for brokers that are to get a replica and are not alive."""
    for each in targets:
        for broker in each.replicas:
            if broker not in alive and broker not in current.get(each.partition, ()):
                raise ClientError(
                    f"Unknown broker id {broker}",
                    cure=f"alive are {', '.join(map(str, sorted(alive)))}; is broker {broker} down?",
                )


def _check_dirs(
    targets: Iterable[PartitionAssignment], dirs: Iterable[LogDir], failures: Collection[int]
) -> None:
    """Raises ClientError for directories that a broker that answers does not have, or has lost."""
    known = {(each.broker_id, each.path): each.error for each in dirs}
    for target in targets:
        for broker, path in zip(target.replicas, target.log_dirs, strict=False):
            if path == ANY_LOG_DIR or broker in failures:
                continue
            error = known.get((broker, path))
            if error is None:
                have = ", ".join(sorted(of for owner, of in known if owner == broker))
                raise ClientError(
                    f"{target.partition}: broker {broker} has no log directory {path}",
                    cure=f"it has {have}" if have else None,
                )
            if error is not ErrorCode.NONE:
                raise ClientError(f"{target.partition}: {path} of broker {broker} is offline")
