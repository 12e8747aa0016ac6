"""A member of a consumer group: joins, shares the partitions if it leads, stays alive, commits and leaves.

Rules: the classic protocol as Kafka's ConsumerCoordinator speaks it. REBALANCE_IN_PROGRESS lets the member
join again under its id. After UNKNOWN_MEMBER_ID and ILLEGAL_GENERATION it has lost its partitions and joins
as a new one. A static member (KIP-345) keeps its place while it is away, so it does not leave.

There is no thread: who reads calls `heartbeat` often, and `join` whenever `must_join` is set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from klog.client import group_requests
from klog.client.assignors import RANGE, ROUND_ROBIN, Assignor, Subscriber
from klog.client.cluster import Cluster
from klog.client.connection import Connection
from klog.client.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from klog.client.coordinators import MOVED, Coordinator, CoordinatorType
from klog.client.errors import RefusedError, is_retriable
from klog.client.group_requests import Joined, JoinRequest
from klog.client.groups import CommittedOffset, Membership, commit_request
from klog.formats.errors import FormatError, KlogError
from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import ChannelError

_Answer = TypeVar("_Answer")

_LOST: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
_CURES: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.FENCED_INSTANCE_ID: "another member has the same group instance id",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "its members use other assignors: set "
    "partition.assignment.strategy to one of theirs",
    ErrorCode.INVALID_SESSION_TIMEOUT: "session.timeout.ms must be within the limits of the broker",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the broker allows no more members (group.max.size)",
}

Topics = Callable[[], Iterable[str]]
"""Gives the topics to read, which may change with time."""


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """How to be a member. The times are Kafka's session.timeout.ms and so on."""

    group_id: str
    instance_id: str | None = None
    assignors: tuple[Assignor, ...] = (RANGE, ROUND_ROBIN)
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    heartbeat_interval_ms: int = 3_000
    metadata_age_ms: int = 300_000

    @property
    def cooperative(self) -> bool:
        """Whether the member keeps its partitions during a rebalance: only if all its assignors allow it."""
        return all(assignor.cooperative for assignor in self.assignors)


class GroupMember:
    """One member, for one thread. `assigned` are its partitions."""

    def __init__(self, cluster: Cluster, topics: Topics, settings: MemberSettings) -> None:
        self._cluster = cluster
        self._topics = topics
        self._settings = settings
        self._coordinator = Coordinator(cluster, CoordinatorType.GROUP, settings.group_id)
        self._me = Membership(instance_id=settings.instance_id)
        self._subscription: tuple[str, ...] = ()
        self._counts: dict[str, int] = {}
        self._is_leader = False
        self._heartbeat_s = self._checked_s = 0.0
        self._waiting: Connection | None = None
        self._reason = "first join"
        self.assigned: frozenset[TopicPartition] = frozenset()
        self.must_join = True

    @property
    def keeps_partitions(self) -> bool:
        """Whether `assigned` stay readable until the next join has its answer."""
        return self._settings.cooperative

    # -- joining ---------------------------------------------------------------------------------------------

    def join(self) -> None:
        """Join or join again, until the member has its partitions. They are in `assigned` then.

        Raises ClientError if the coordinator refuses the member, or errors last too long; ChannelError.
        """
        retry = self._cluster.new_retry()
        while True:
            try:
                self._join_once()
                break
            except (RefusedError, ChannelError) as error:
                code = error.code if isinstance(error, RefusedError) else None
                self._coordinator.failed(error)
                if code in _LOST:
                    self._lose(error)
                elif code is ErrorCode.REBALANCE_IN_PROGRESS:
                    self._reason = "the group rebalanced again"
                    continue
                elif not is_retriable(error):
                    raise
                retry.failed(error)
        self._heartbeat_s = self._checked_s = self._now_s()

    def _join_once(self) -> None:
        self._learn_topics()
        joined = self._ask_to_join()
        if joined.error is ErrorCode.MEMBER_ID_REQUIRED:
            self._me = self._me._replace(member_id=joined.member_id)
            joined = self._ask_to_join()
        self._require(joined.error)
        self._me = self._me._replace(generation=joined.generation, member_id=joined.member_id)
        self._is_leader = joined.leader_id == joined.member_id
        assignments = self._share(joined) if self._is_leader and not joined.skip_assignment else {}
        timeout_ms = self._settings.rebalance_timeout_ms + self._cluster.timeout_ms
        code, data = self._wait(
            lambda connection: group_requests.sync(
                connection, self._settings.group_id, self._me, joined.protocol, assignments, timeout_ms
            )
        )
        self._require(code)
        self._take(data)

    def _ask_to_join(self) -> Joined:
        settings = self._settings
        owned = tuple(sorted(self.assigned)) if settings.cooperative else ()
        metadata = encode_subscription(
            Subscription(self._subscription, b"", owned, self._me.generation if owned else -1)
        )
        wanted = JoinRequest(
            settings.group_id,
            self._me.member_id,
            settings.instance_id,
            settings.session_timeout_ms,
            settings.rebalance_timeout_ms,
            [(assignor.name, metadata) for assignor in settings.assignors],
            self._reason,
        )
        return self._wait(
            lambda connection: group_requests.join(connection, wanted, self._cluster.timeout_ms)
        )

    def _wait(self, request: Callable[[Connection], _Answer]) -> _Answer:
        """The answer to a request that the coordinator may hold back."""
        self._waiting = self._coordinator.connection()
        answer = request(self._waiting)
        self._waiting = None
        return answer

    def _require(self, code: ErrorCode) -> None:
        if code is not ErrorCode.NONE:
            raise RefusedError(f"group {self._settings.group_id}", code, cure=_CURES.get(code))

    def _learn_topics(self) -> None:
        self._subscription = tuple(sorted(set(self._topics())))
        self._counts = self._partition_counts(self._subscription)

    def _partition_counts(self, topics: Sequence[str]) -> dict[str, int]:
        if topics:
            self._cluster.refresh_existing(topics)
        return {topic: len(self._cluster.partitions(topic)) for topic in topics}

    def _share(self, joined: Joined) -> dict[str, bytes]:
        """The assignment of every member, by the assignor that all of them know."""
        assignor = next(each for each in self._settings.assignors if each.name == joined.protocol)
        subscribers = [
            Subscriber(member_id, instance_id, _subscription(metadata))
            for member_id, instance_id, metadata in joined.members
        ]
        topics = sorted({topic for each in subscribers for topic in each.subscription.topics})
        self._counts = self._partition_counts(topics)
        shares = assignor.assign(self._counts, subscribers)
        return {member_id: encode_assignment(partitions) for member_id, partitions in shares.items()}

    def _take(self, data: bytes) -> None:
        """Take the partitions of an assignment; a cooperative member that gives some up joins again."""
        assigned = frozenset(decode_assignment(data))
        given_up = self.assigned - assigned
        self.must_join = False
        self.assigned = assigned
        self._cluster.refresh_existing({partition.topic for partition in assigned} or self._subscription)
        if self._settings.cooperative and given_up:
            self._ask_again("partitions were given up")

    def _ask_again(self, reason: str) -> None:
        self.must_join = True
        self._reason = reason

    def _lose(self, error: object) -> None:
        """The coordinator does not know the member any more: others may have its partitions."""
        self._me = Membership(instance_id=self._settings.instance_id)
        self.assigned = frozenset()
        self._ask_again(f"the member was lost: {error}"[:200])

    # -- staying alive ---------------------------------------------------------------------------------------

    def heartbeat(self) -> None:
        """Say that the member lives if it is time to; sets `must_join` if the group rebalances.

        Raises ClientError if the coordinator refuses the member for good.
        """
        now_s = self._now_s()
        if self.must_join or now_s - self._heartbeat_s < self._settings.heartbeat_interval_ms / 1000:
            return
        try:
            code = group_requests.heartbeat(self._coordinator.connection(), self._settings.group_id, self._me)
            self._require(code)
            self._heartbeat_s = now_s
        except (RefusedError, ChannelError) as error:
            self._failed(error)
            # Nothing says that the member is gone before its session has timed out. It tries again.
            if now_s - self._heartbeat_s > self._settings.session_timeout_ms / 1000 and not self.must_join:
                self._ask_again("the coordinator did not answer")
        if now_s - self._checked_s > self._settings.metadata_age_ms / 1000:
            self._checked_s = now_s
            self._check_topics()

    def _failed(self, error: RefusedError | ChannelError) -> None:
        self._coordinator.failed(error)
        code = error.code if isinstance(error, RefusedError) else None
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._ask_again("the group rebalances")
        elif code in _LOST:
            self._lose(error)
        elif code is not None and code not in MOVED:
            raise error

    def _check_topics(self) -> None:
        """Join again if the topics to read, or their partitions, are others."""
        with suppress(KlogError):
            changed = tuple(sorted(set(self._topics()))) != self._subscription
            topics = sorted(self._counts)
            if changed or (self._is_leader and self._partition_counts(topics) != self._counts):
                self._ask_again("topics have changed")

    def _now_s(self) -> float:
        return self._cluster.clock.monotonic_s()

    # -- offsets ---------------------------------------------------------------------------------------------

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> bool:
        """Commit offsets of own partitions. False if the member lost them: others read these records again.

        Raises ClientError for other errors, ChannelError.
        """
        wanted = {partition: each for partition, each in offsets.items() if partition in self.assigned}
        if not wanted:
            return not offsets

        def ask(connection: Connection) -> None:
            for code in commit_request(connection, self._settings.group_id, wanted, self._me).values():
                self._require(code)

        try:
            self._coordinator.ask(ask)
        except RefusedError as error:
            if error.code in _LOST or error.code is ErrorCode.REBALANCE_IN_PROGRESS:
                self._failed(error)
                return False
            raise
        return True

    # -- leaving ---------------------------------------------------------------------------------------------

    def leave(self, reason: str = "the consumer is being closed") -> None:
        """Leave the group, so that others get the partitions at once. A static member keeps its place."""
        if self._waiting is not None:
            self._waiting.close()  # its answer is still to come
        if not self._me.member_id or self._settings.instance_id is not None:
            return
        with suppress(KlogError):
            group_requests.leave(
                self._coordinator.connection(), self._settings.group_id, [self._me.member_id], reason
            )
        self._me = Membership()
        self.assigned = frozenset()


def _subscription(metadata: bytes) -> Subscription:
    """The subscription of a member; one that cannot be read wants nothing."""
    try:
        return decode_subscription(metadata)
    except FormatError:
        return Subscription(())
