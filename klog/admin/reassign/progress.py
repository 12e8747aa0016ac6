"""How far the copies of running moves are: between brokers, and between log directories of a broker.

DescribeLogDirs tells the size of a new replica and of the one that it is copied from. The sizes of a replica
and of its copy differ a little where one of them was cleaned or deleted from, so a share of 100 % is reached
by what has been copied, and the controller says when a move has ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from klog.admin.configs import ConfigEntity, EntityType, describe
from klog.admin.reassign.throttles import FOLLOWER_RATE, LOG_DIR_RATE, BrokerRate, rates_of
from klog.admin.requests.reassignments import RunningReassignment, list_reassignments
from klog.client.asking import broker_ids
from klog.client.cluster import Cluster
from klog.client.errors import RefusedError
from klog.client.log_dirs import LogDir, describe_log_dirs
from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition
from klog.protocol.errors import ChannelError

_WINDOW_S: Final = 15.0


class CopyKey(NamedTuple):
    """What is copied to where; `log_dir` is set for a copy between directories of the broker."""

    partition: TopicPartition
    broker_id: int
    log_dir: str | None


@dataclass(frozen=True, slots=True)
class Copy:
    """A replica that is being built, and how far it is.

    `offset_lag` is None until the broker has the replica. `rate_bytes_per_s` and `left_s` are None until two
    measurements have shown a rate. `is_reachable` says whether its broker answers, `is_throttled` whether it
    stands still and has a throttle.
    """

    key: CopyKey
    copied_bytes: int
    total_bytes: int
    offset_lag: int | None
    is_reachable: bool = True
    rate_bytes_per_s: float | None = None
    is_throttled: bool = False

    @property
    def left_bytes(self) -> int:
        """What is still to be copied of what there is now."""
        return max(0, self.total_bytes - self.copied_bytes)

    @property
    def left_s(self) -> float | None:
        """How long that takes at this rate."""
        if self.rate_bytes_per_s is None or self.rate_bytes_per_s <= 0:
            return None
        return self.left_bytes / self.rate_bytes_per_s


@dataclass(frozen=True, slots=True)
class Progress:
    """All copies at one moment, the moves that run, and the brokers that did not answer."""

    copies: tuple[Copy, ...]
    running: tuple[RunningReassignment, ...]
    failures: Mapping[int, KlogError]

    @property
    def is_done(self) -> bool:
        """Whether nothing moves any more, as far as the brokers that answer know."""
        return not self.copies and not self.running


class Meter:
    """Measures again and again, and knows rates from the last seconds."""

    def __init__(self, cluster: Cluster, partitions: Collection[TopicPartition] | None = None) -> None:
        self._cluster = cluster
        self._partitions = None if partitions is None else frozenset(partitions)
        self._seen: dict[CopyKey, deque[tuple[float, int]]] = {}

    def measure(self) -> Progress:
        """The progress now. Raises ClientError, ChannelError."""
        running = [
            each
            for each in list_reassignments(self._cluster)
            if self._partitions is None or each.partition in self._partitions
        ]
        # Brokers that are down are asked for, too, so that their failures are known.
        brokers = {broker for each in running for broker in each.adding} | set(broker_ids(self._cluster))
        dirs = describe_log_dirs(self._cluster, brokers, self._partitions)
        now_s = self._cluster.clock.monotonic_s()
        copies = [self._with_rate(copy, now_s) for copy in copies_of(running, dirs.dirs, dirs.failures)]
        still = {copy.key.broker_id for copy in copies if copy.is_reachable and copy.rate_bytes_per_s == 0}
        rates = {broker: self._rates(broker) for broker in still}
        return Progress(tuple(with_throttle(copy, rates) for copy in copies), tuple(running), dirs.failures)

    def measurements(self) -> Iterator[Progress]:
        """The progress each time that it is asked for. Lost connections are opened again.

        Raises ClientError, or ChannelError if nobody answers for long.
        """
        retry = self._cluster.new_retry()
        while True:
            try:
                progress = self.measure()
            except ChannelError as error:
                retry.failed(error)
                continue
            retry.succeeded()
            yield progress

    def _rates(self, broker_id: int) -> Mapping[str, BrokerRate]:
        try:
            return rates_of(describe(self._cluster, ConfigEntity(EntityType.BROKERS, str(broker_id))))
        except RefusedError:
            return {}  # who may see the moves may not see the configs

    def _with_rate(self, copy: Copy, now_s: float) -> Copy:
        seen = self._seen.setdefault(copy.key, deque())
        seen.append((now_s, copy.copied_bytes))
        while len(seen) > 2 and now_s - seen[0][0] > _WINDOW_S:
            seen.popleft()
        first_s, first_bytes = seen[0]
        if now_s <= first_s:
            return copy
        rate = max(0.0, (copy.copied_bytes - first_bytes) / (now_s - first_s))
        return replace(copy, rate_bytes_per_s=rate)


def with_throttle(copy: Copy, rates: Mapping[int, Mapping[str, BrokerRate]]) -> Copy:
    """The copy, with whether it stands still and one of these rates, by brokers and names, limits it."""
    name = FOLLOWER_RATE if copy.key.log_dir is None else LOG_DIR_RATE
    rate = rates.get(copy.key.broker_id, {}).get(name)
    is_limited = rate is not None and rate.value is not None
    return replace(copy, is_throttled=is_limited and copy.rate_bytes_per_s == 0)


def copies_of(
    running: Iterable[RunningReassignment], dirs: Collection[LogDir], failures: Collection[int]
) -> list[Copy]:
    """The copies that running moves and future replicas make, sorted."""
    current: dict[TopicPartition, dict[int, tuple[int, int]]] = {}
    for each in dirs:
        for replica in each.replicas:
            if not replica.is_future:
                of_brokers = current.setdefault(replica.partition, {})
                of_brokers[each.broker_id] = (replica.size_bytes, replica.offset_lag)
    copies = []
    for move in running:
        known = current.get(move.partition, {})
        old = [size for broker, (size, _) in known.items() if broker not in move.adding]
        total_bytes = max(old, default=0)
        for broker in move.adding:
            size_bytes, lag = known.get(broker, (0, None))
            key = CopyKey(move.partition, broker, None)
            copies.append(Copy(key, size_bytes, total_bytes, lag, broker not in failures))
    for each in dirs:
        for replica in each.replicas:
            if replica.is_future:
                total_bytes, _ = current.get(replica.partition, {}).get(each.broker_id, (0, 0))
                key = CopyKey(replica.partition, each.broker_id, each.path)
                copies.append(Copy(key, replica.size_bytes, total_bytes, replica.offset_lag))
    return sorted(copies, key=lambda copy: (copy.key.partition, copy.key.broker_id, copy.key.log_dir or ""))
