"""What moves will copy, how long that takes at a throttle, and which partitions get too few replicas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from klog.admin.reassign.moves import Move
from klog.admin.topics import add_configs, find_topics
from klog.client.cluster import Cluster
from klog.formats.names import TopicPartition


class Shortage(NamedTuple):
    """A partition that will have fewer replicas than its topic's min.insync.replicas."""

    partition: TopicPartition
    replicas: int
    min_isr: int


@dataclass(frozen=True, slots=True)
class Movement:
    """What moves copy; the bytes are those of the largest replica of each partition.

    `in_bytes` and `out_bytes` are by broker; records come from the leader, for which the first source stands.
    """

    copies: int
    copied_bytes: int
    in_bytes: Mapping[int, int]
    out_bytes: Mapping[int, int]
    dir_bytes: Mapping[int, int]

    def least_s(self, between_brokers: int | None, between_log_dirs: int | None) -> float | None:
        """The least time that the busiest broker needs at these rates in bytes a second; None without any."""
        busiest = max((*self.in_bytes.values(), *self.out_bytes.values()), default=0)
        busiest_dirs = max(self.dir_bytes.values(), default=0)
        times = [
            bytes_ / rate
            for bytes_, rate in ((busiest, between_brokers), (busiest_dirs, between_log_dirs))
            if bytes_ and rate
        ]
        return max(times, default=None)


def movement_of(moves: Sequence[Move]) -> Movement:
    """What moves copy that are not begun, or as a whole if they are."""
    copies = 0
    in_bytes: Counter[int] = Counter()
    out_bytes: Counter[int] = Counter()
    dir_bytes: Counter[int] = Counter()
    for move in moves:
        inside = [replica for replica in move.dir_moves if replica.broker_id not in move.destinations]
        copies += len(move.destinations) + len(inside)
        for replica in inside:
            dir_bytes[replica.broker_id] += move.size_bytes
        for broker in move.destinations:
            in_bytes[broker] += move.size_bytes
            out_bytes[move.sources[0]] += move.size_bytes
    return Movement(copies, sum(move.copied_bytes for move in moves), in_bytes, out_bytes, dir_bytes)


def shortages(cluster: Cluster, moves: Sequence[Move]) -> list[Shortage]:
    """The partitions that the moves leave with fewer replicas than min.insync.replicas.

    Raises ClientError, ChannelError.
    """
    fewer = [move for move in moves if len(move.target.replicas) < len(move.sources)]
    if not fewer:
        return []
    topics = add_configs(cluster, find_topics(cluster, sorted({move.partition.topic for move in fewer})))
    least = {topic.name: topic.min_isr for topic in topics}
    return [
        Shortage(move.partition, len(move.target.replicas), least[move.partition.topic])
        for move in fewer
        if len(move.target.replicas) < least[move.partition.topic]
    ]
