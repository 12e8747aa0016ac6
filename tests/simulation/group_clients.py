"""Members of one consumer group: they join, are assigned partitions, commit offsets, and leave or vanish."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from klog.coordinator.groups.coordinator import CONSUMER_OFFSETS
from klog.coordinator.groups.values import (
    NO_LEADER_EPOCH,
    CommittedOffset,
    Identity,
    JoinRequest,
    JoinResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from klog.coordinator.runtime.partitioning import partition_of
from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode
from tests.simulation.network import Answer
from tests.simulation.outcomes import CommittedOffsetModel
from tests.simulation.scheduler import stream
from tests.simulation.scripts import FAILED, Ask, Pause, Play, Script
from tests.simulation.transactional_clients import check_offset

if TYPE_CHECKING:
    from tests.simulation.broker import SimulatedBroker
    from tests.simulation.clients import Clients

GROUP = "group"
_MEMBERS = 2
_ASSIGNED = (("input", 0), ("input", 1), ("input", 2))
_SESSION_TIMEOUT_MS = 2_500
_REBALANCE_TIMEOUT_MS = 1_500
_RETRY_MS = 150
_STAYS = frozenset(
    (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
    )
)

Key = tuple[str, int]


class RejoinError(Exception):
    """The member has to join again; without its id if it is not known any more."""


class ConsumerGroup:
    """A group of the classic protocol. Offsets are numbers that rise with each commit."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._random = stream(clients.world.schedule.seed, "group")
        partitions = clients.world.internal_partitions[CONSUMER_OFFSETS]
        self._kept_in = TopicPartition(CONSUMER_OFFSETS, partition_of(GROUP, partitions))
        self._offsets: dict[Key, CommittedOffsetModel] = {}
        self._members = 0
        self._value = 0

    def start(self) -> None:
        for _ in range(_MEMBERS):
            Play(self._clients, self._life())

    def _model(self, key: Key) -> CommittedOffsetModel:
        found = self._offsets.get(key)
        if found is None:
            kept_in = self._clients.world.model_of(self._kept_in)
            assert kept_in is not None
            found = self._offsets[key] = CommittedOffsetModel(f"group {GROUP}, {key}", kept_in)
        return found

    # -- a member --------------------------------------------------------------------------------------------

    def _life(self) -> Script:
        clients, rng = self._clients, self._random
        yield Pause(rng.randrange(500))
        while clients.producing and clients.world.model_of(self._kept_in) is None:
            yield Pause(_RETRY_MS)
        member_id = ""
        while clients.producing:
            member_id, joined = yield from self._join(member_id)
            if joined is None:
                yield Pause(_RETRY_MS)
                continue
            try:
                yield from self._take_part(Identity(member_id, joined.generation_id), joined)
            except RejoinError as again:
                member_id = member_id if again.args[0] else ""
                continue
            # The member is gone. Its place is taken by another, which may be told to leave by a timeout only.
            member_id = ""
            yield Pause(rng.randrange(1_000))

    def _join(self, member_id: str) -> Script:
        """The member id to go on with, and the answer if the member is in the group."""
        self._members += 1
        asked = JoinRequest(
            member_id,
            f"member-{self._members}",
            "client",
            "host",
            _SESSION_TIMEOUT_MS,
            _REBALANCE_TIMEOUT_MS,
            "consumer",
            (("range", b""),),
        )

        def handle(broker: SimulatedBroker, answer: Answer) -> None:
            broker.coordinators.groups.join(GROUP, asked, answer)

        result = yield Ask(self._kept_in, handle, may_arrive_late=True)
        if not isinstance(result, JoinResult):
            return member_id, None
        if result.error is ErrorCode.NONE:
            return result.member_id, result
        if result.error is ErrorCode.UNKNOWN_MEMBER_ID:
            return "", None
        return result.member_id if result.error is ErrorCode.MEMBER_ID_REQUIRED else member_id, None

    def _take_part(self, identity: Identity, joined: JoinResult) -> Script:
        """Live through one generation: until the member leaves, or has to join again."""
        clients, rng = self._clients, self._random
        assigned = yield from self._sync(identity, joined)
        self._clients.world.counts["generations"] += 1
        for key in assigned:
            yield Ask(self._kept_in, partial(self._fetch, key))
        while clients.producing:
            yield Pause(rng.randrange(100, 700))
            for key in assigned:
                yield from self._commit(identity, key)
            yield from self._heartbeat(identity)
            fate = rng.random()
            if fate < 0.02:
                return  # without a word
            if fate < 0.04:
                yield Ask(self._kept_in, partial(self._leave, identity))
                return
            if fate < 0.06:
                yield Pause(2 * _SESSION_TIMEOUT_MS)  # and commits then as if nothing had happened

    def _sync(self, identity: Identity, joined: JoinResult) -> Script:
        assignments: dict[str, bytes] = {}
        members = [each.member_id for each in joined.members]
        for number, member in enumerate(members):
            taken = range(number, len(_ASSIGNED), len(members))
            assignments[member] = bytes(taken)

        def handle(broker: SimulatedBroker, answer: Answer) -> None:
            asked = SyncRequest(identity, assignments, "consumer", "range")
            broker.coordinators.groups.sync(GROUP, asked, answer)

        result = yield Ask(self._kept_in, handle, may_arrive_late=True)
        if not isinstance(result, SyncResult):
            raise RejoinError(True)
        if result.error is not ErrorCode.NONE:
            raise RejoinError(result.error is not ErrorCode.UNKNOWN_MEMBER_ID)
        return [_ASSIGNED[each] for each in result.assignment]

    def _fetch(self, key: Key, broker: SimulatedBroker, answer: Answer) -> None:
        answer(check_offset(broker, GROUP, key, self._kept_in, self._model(key)))

    def _leave(self, identity: Identity, broker: SimulatedBroker, answer: Answer) -> None:
        answer(broker.coordinators.groups.leave(GROUP, [LeavingMember(identity.member_id)]))

    def _heartbeat(self, identity: Identity) -> Script:
        def handle(broker: SimulatedBroker, answer: Answer) -> None:
            answer(broker.coordinators.groups.heartbeat(GROUP, identity))

        self._react((yield Ask(self._kept_in, handle)))

    def _commit(self, identity: Identity, key: Key) -> Script:
        model = self._model(key)
        self._value += 1
        value = self._value

        def handle(broker: SimulatedBroker, answer: Answer) -> None:
            number, newest = model.arrives(value, identity.generation_id), model.generation
            commits = {key: CommittedOffset(value, NO_LEADER_EPOCH, "", 0)}
            broker.coordinators.groups.commit(
                GROUP, identity, commits, lambda errors: answer((errors[key], number, newest))
            )

        answered = yield Ask(self._kept_in, handle, may_arrive_late=True)
        if answered is FAILED:
            return
        error, number, newest = answered
        if error is ErrorCode.NONE:
            model.check_generation(number, newest)
            model.acknowledged(number)
            self._clients.world.counts["offset commits"] += 1
        self._react(error)

    def _react(self, error: object) -> None:
        if error is FAILED or error is ErrorCode.NONE or error in _STAYS:
            return
        raise RejoinError(error is ErrorCode.REBALANCE_IN_PROGRESS)

    def check_at_end(self, broker: SimulatedBroker) -> None:
        """Compare all offsets with what a coordinator has."""
        for key in self._offsets:
            self._fetch(key, broker, lambda _answer: None)
