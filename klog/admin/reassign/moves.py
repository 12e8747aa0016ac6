"""What an execution has to do: each partition as it is and as it is to be, and the replicas that move.

Rules: Kafka's ReassignPartitionsCommand (`calculateProposedMoveMap`): the sources of a move are the replicas
before it, those that a running move adds are destinations, and a broker that is both is a source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from klog.admin.reassign.values import ANY_LOG_DIR, PartitionAssignment
from klog.admin.requests.reassignments import RunningReassignment
from klog.client.log_dirs import LogDir, Replica
from klog.formats.names import TopicPartition


@dataclass(frozen=True, slots=True)
class Move:
    """A partition with its replicas now and its assignment afterwards.

    `current` are the replicas before the move; `adding` those that a running move adds to them. `size_bytes`
    is the size of the largest replica, 0 if no broker tells it. `log_dirs` are where its replicas are.
    """

    target: PartitionAssignment
    current: tuple[int, ...]
    adding: tuple[int, ...] = ()
    running_target: tuple[int, ...] | None = None
    size_bytes: int = 0
    log_dirs: Mapping[int, str] | None = None

    @property
    def partition(self) -> TopicPartition:
        """The partition that is moved."""
        return self.target.partition

    @property
    def sources(self) -> tuple[int, ...]:
        """The brokers from which records may be copied."""
        return tuple(broker for broker in self.current if broker not in self.adding)

    @property
    def destinations(self) -> tuple[int, ...]:
        """The brokers that get a new replica."""
        wanted = dict.fromkeys((*self.adding, *self.target.replicas))
        return tuple(sorted(broker for broker in wanted if broker not in self.sources))

    @property
    def leaving(self) -> tuple[int, ...]:
        """The brokers that lose their replica."""
        return tuple(broker for broker in self.current if broker not in self.target.replicas)

    @property
    def dir_moves(self) -> dict[Replica, str]:
        """The replicas that are to be in a named directory, and are not there."""
        found = {}
        for broker, path in zip(self.target.replicas, self.target.log_dirs, strict=False):
            if path != ANY_LOG_DIR and (self.log_dirs or {}).get(broker) != path:
                found[Replica(self.partition, broker)] = path
        return found

    @property
    def former_log_dirs(self) -> tuple[str, ...]:
        """The directories of the sources if the target names any, else nothing."""
        if not self.target.log_dirs:
            return ()
        return tuple((self.log_dirs or {}).get(broker, ANY_LOG_DIR) for broker in self.sources)

    @property
    def changes_replicas(self) -> bool:
        """Whether the controller has something to do that does not run yet."""
        now = self.current if self.running_target is None else self.running_target
        return now != self.target.replicas

    @property
    def is_done(self) -> bool:
        """Whether all is as it is to be."""
        return self.running_target is None and not self.changes_replicas and not self.dir_moves

    @property
    def copied_bytes(self) -> int:
        """How many bytes are copied, between brokers and between directories."""
        inside = sum(replica.broker_id not in self.destinations for replica in self.dir_moves)
        return self.size_bytes * (len(self.destinations) + inside)


def moves_of(
    targets: Iterable[PartitionAssignment],
    current: Mapping[TopicPartition, Sequence[int]],
    running: Iterable[RunningReassignment],
    log_dirs: Iterable[LogDir],
) -> list[Move]:
    """The move of each target, by what the cluster says. `current` has all of their partitions."""
    by_partition = {each.partition: each for each in running}
    sizes: dict[TopicPartition, int] = {}
    places: dict[TopicPartition, dict[int, str]] = {}
    for directory in log_dirs:
        for replica in directory.replicas:
            if not replica.is_future:
                sizes[replica.partition] = max(sizes.get(replica.partition, 0), replica.size_bytes)
                places.setdefault(replica.partition, {})[directory.broker_id] = directory.path
    moves = []
    for target in targets:
        partition = target.partition
        under_way = by_partition.get(partition)
        moves.append(
            Move(
                target,
                tuple(current[partition]),
                () if under_way is None else under_way.adding,
                None if under_way is None else under_way.target,
                sizes.get(partition, 0),
                places.get(partition),
            )
        )
    return moves


def batches_of(moves: Sequence[Move], count: int | None, max_bytes: int | None) -> Iterator[list[Move]]:
    """The moves in groups of at most `count`, and of at most `max_bytes` unless one move alone is larger."""
    batch: list[Move] = []
    batch_bytes = 0
    for move in moves:
        full = count is not None and len(batch) >= count
        large = max_bytes is not None and batch_bytes + move.copied_bytes > max_bytes
        if batch and (full or large):
            yield batch
            batch, batch_bytes = [], 0
        batch.append(move)
        batch_bytes += move.copied_bytes
    if batch:
        yield batch
