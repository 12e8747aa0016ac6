"""Executes moves: throttles, the requests, waiting until they are done, and throttles back.

The order is that of Kafka's tool: throttled replicas, then rates, then the moves between brokers, then those
between directories, which a broker accepts only when it has the replica. A batch begins when the one before
is done. What is done in one run is not done again in the next: each run compares with the cluster first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from klog.admin.reassign.moves import Move
from klog.admin.reassign.progress import Meter, Progress
from klog.admin.reassign.states import MoveState, status_of
from klog.admin.reassign.throttles import FOLLOWER_RATE, LEADER_RATE, LOG_DIR_RATE, Throttles, restoring
from klog.admin.requests.reassignments import alter_reassignments, list_reassignments
from klog.client.asking import broker_ids
from klog.client.cluster import Cluster
from klog.client.errors import ClientError, RefusedError
from klog.client.log_dirs import Replica, alter_replica_log_dirs
from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode

LOG_DIR_PAUSE_S: Final = 0.1
_POLL_S: Final = 1.0
_METADATA_TIMEOUT_MS: Final = 5_000
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Limits:
    """The throttles in bytes a second: between brokers, and between directories. None sets none."""

    between_brokers: int | None = None
    between_log_dirs: int | None = None

    def of_brokers(self, moves: Iterable[Move]) -> dict[int, dict[str, int]]:
        """The rates of each broker that copies."""
        found: dict[int, dict[str, int]] = {}
        for move in moves:
            if self.between_brokers is not None:
                for broker in (*move.sources, *move.destinations):
                    own = found.setdefault(broker, {})
                    own |= {LEADER_RATE: self.between_brokers, FOLLOWER_RATE: self.between_brokers}
            if self.between_log_dirs is not None:
                for replica in move.dir_moves:
                    found.setdefault(replica.broker_id, {})[LOG_DIR_RATE] = self.between_log_dirs
        return found


class Finished(NamedTuple):
    """The topics and brokers that got throttles back, and why other brokers could not be asked."""

    released: list[str]
    restored: list[int]
    failures: dict[int, KlogError]
    are_others_running: bool


class NotStartedError(ClientError):
    """Some moves of a batch were refused; `started` are the partitions that move."""

    def __init__(self, what: str, started: Sequence[TopicPartition], *, cure: str | None = None) -> None:
        super().__init__(what, cure=cure)
        self.started = tuple(started)


class Execution:
    """Executes moves on one cluster.

    `on_progress` gets a measurement about every second while `run` waits.
    """

    def __init__(
        self,
        cluster: Cluster,
        limits: Limits,
        *,
        log_dir_timeout_ms: int,
        on_progress: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        self._cluster = cluster
        self._limits = limits
        self._log_dir_timeout_ms = log_dir_timeout_ms
        self._on_progress = on_progress
        self.throttles = Throttles(cluster)

    def limit(self, moves: Sequence[Move]) -> dict[int, dict[str, int]]:
        """Set the rates of all live brokers that copy; returns the rates that they had before.

        Raises ClientError, ChannelError.
        """
        limits = self._limits.of_brokers(moves)
        alive = set(broker_ids(self._cluster))
        return self.throttles.limit_brokers({broker: limits[broker] for broker in limits.keys() & alive})

    def start(self, moves: Sequence[Move]) -> None:
        """Throttle the replicas of moves and begin them.

        Raises NotStartedError if some are refused; ClientError, ChannelError.
        """
        if self._limits.between_brokers is not None:
            self.throttles.throttle(moves)
        dir_moves = {place: path for move in moves for place, path in move.dir_moves.items()}
        new = {
            replica: dir_moves[replica]
            for move in moves
            for replica in move.dir_moves
            if replica.broker_id in move.destinations
        }
        if new:
            alter_replica_log_dirs(self._cluster, new)  # so that brokers create them in the right place
        targets = {move.partition: move.target.replicas for move in moves if move.changes_replicas}
        if targets:
            outcomes = alter_reassignments(self._cluster, targets)
            refused = {partition: error for partition, error in outcomes.items() if error is not None}
            if refused:
                started = [partition for partition in targets if partition not in refused]
                raise NotStartedError(_listed(list(refused.values())), started)
        self.start_dir_moves(dir_moves)

    def start_dir_moves(
        self, targets: Mapping[Replica, str], on_started: Callable[[Replica, str], None] | None = None
    ) -> None:
        """Begin moves between directories, as soon as their brokers have the replicas.

        Raises NotStartedError for those that are refused, or that do not begin in time; ChannelError.
        """
        left = dict(targets)
        deadline_s = self._cluster.clock.monotonic_s() + self._log_dir_timeout_ms / 1000
        while left:
            outcomes = alter_replica_log_dirs(self._cluster, left)
            for replica, error in outcomes.items():
                if error is None:
                    path = left.pop(replica)
                    if on_started is not None:
                        on_started(replica, path)
            refused = [error for error in outcomes.values() if error is not None and not _not_there(error)]
            if refused:
                raise NotStartedError(_listed(refused), [], cure="the other moves go on")
            if left and self._cluster.clock.monotonic_s() > deadline_s:
                names = ",".join(map(str, sorted(left)))
                raise NotStartedError(
                    f"Timed out before log directory move(s) could be started for: {names}",
                    [],
                    cure="the same command continues; --timeout waits longer",
                )
            if left:
                self._cluster.clock.sleep_s(LOG_DIR_PAUSE_S)

    def wait(self, moves: Sequence[Move]) -> None:
        """Wait until moves are done. Raises ClientError, or ChannelError if nobody answers for long."""
        meter = Meter(self._cluster, [move.partition for move in moves])
        for progress in meter.measurements():
            self._on_progress(progress)
            if progress.is_done:
                return
            self._cluster.clock.sleep_s(_POLL_S)

    def not_reached(self, moves: Sequence[Move]) -> list[TopicPartition]:
        """The partitions that are not where they are to be, though they do not move: others cancelled that.

        Gives brokers a few seconds to learn of a move's end, which the controller knows before. Raises
        ClientError, ChannelError.
        """
        retry = self._cluster.new_retry(_METADATA_TIMEOUT_MS)
        while missed := self._missed(moves):
            try:
                retry.failed(ClientError("not where it is to be"))
            except ClientError:
                break
        return missed

    def _missed(self, moves: Sequence[Move]) -> list[TopicPartition]:
        status = status_of(self._cluster, [move.target for move in moves])
        missed = {each.partition for each in status.partitions if each.state is MoveState.NOT_MOVING}
        missed |= {each.replica.partition for each in status.log_dirs if each.state is MoveState.NOT_MOVING}
        return sorted(missed)

    def finish_batch(self, moves: Sequence[Move]) -> list[str]:
        """Take the replicas of moves that are done out of the throttled ones; returns the topics."""
        return self.throttles.release(_partitions_by_topic(moves))

    def finish(self, moves: Sequence[Move]) -> Finished:
        """Release the replicas, and give the brokers back their rates if nothing moves any more.

        Raises ClientError, ChannelError.
        """
        released = self.finish_batch(moves)
        if list_reassignments(self._cluster):
            return Finished(released, [], {}, are_others_running=True)
        brokers = {broker for move in moves for broker in (*move.sources, *move.destinations)}
        brokers |= set(broker_ids(self._cluster))
        restored, failures = self.throttles.change_each(brokers, restoring)
        return Finished(released, restored, failures, are_others_running=False)


def _partitions_by_topic(moves: Iterable[Move]) -> dict[str, set[int] | None]:
    found: dict[str, set[int] | None] = {}
    for move in moves:
        numbers = found.setdefault(move.partition.topic, set())
        if numbers is not None:
            numbers.add(move.partition.partition)
    return found


def _not_there(error: KlogError) -> bool:
    return isinstance(error, RefusedError) and error.code is ErrorCode.REPLICA_NOT_AVAILABLE


def _listed(errors: Sequence[KlogError]) -> str:
    more = f"; and {len(errors) - _SHOWN} more" if len(errors) > _SHOWN else ""
    return "; ".join(error.what for error in errors[:_SHOWN]) + more
