"""Members of one consumer group: they join, are assigned partitions, commit offsets, and leave or vanish."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from klog.coordinator.groups.values import Identity
from klog.coordinator.runtime.partitioning import partition_of
from klog.formats.names import CONSUMER_OFFSETS, TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from tests.simulation.asking import Asked, error_of
from tests.simulation.coordinators import INPUT, INPUT_PARTITIONS
from tests.simulation.network import Answer
from tests.simulation.outcomes import CommittedOffsetModel
from tests.simulation.scheduler import stream
from tests.simulation.scripts import FAILED, Ask, Pause, Play, Script
from tests.simulation.transactional_clients import check_offset, committed

if TYPE_CHECKING:
    from tests.simulation.broker import SimulatedBroker
    from tests.simulation.clients import Clients

GROUP = "group"
_MEMBERS = 2
_ASSIGNED = tuple((INPUT, each) for each in range(INPUT_PARTITIONS))
# Before and after compact types.
_COMMIT_VERSIONS = (5, 7, 8, 9)
_SESSION_TIMEOUT_MS = 1_250
_REBALANCE_TIMEOUT_MS = 750
_RETRY_MS = 150
_STAYS = frozenset(
    (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        # The broker does not know the topic yet.
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
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
        self._value = 0
        self._version = self._random.choice(_COMMIT_VERSIONS)

    def start(self) -> None:
        for _ in range(_MEMBERS):
            Play(self._clients, self._life())

    def new_value(self) -> int:
        self._value += 1
        return self._value

    def model(self, key: Key) -> CommittedOffsetModel:
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
        asked = Asked(
            ApiKey.JOIN_GROUP,
            group_id=GROUP,
            session_timeout=_SESSION_TIMEOUT_MS,
            rebalance_timeout=_REBALANCE_TIMEOUT_MS,
            member_id=member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocols=({"name": "range", "metadata": b""},),
            reason=None,
        )
        answer = yield Ask(self._kept_in, asked.handle, may_arrive_late=True)
        match error_of(answer):
            case ErrorCode.NONE:
                return answer.member_id, answer
            case ErrorCode.UNKNOWN_MEMBER_ID:
                return "", None
            case ErrorCode.MEMBER_ID_REQUIRED:
                return answer.member_id, None
        return member_id, None

    def _take_part(self, identity: Identity, joined: Entity) -> Script:
        """Live through one generation: until the member leaves, or has to join again."""
        clients, rng = self._clients, self._random
        assigned = yield from self._sync(identity, joined)
        self._clients.world.counts["generations"] += 1
        for key in assigned:
            yield Ask(self._kept_in, partial(self._fetch, key))
        while clients.producing:
            yield Pause(rng.randrange(100, 700))
            yield from self._commit(identity, assigned)
            yield from self._heartbeat(identity)
            fate = rng.random()
            if fate < 0.02:
                return  # without a word
            if fate < 0.04:
                leaving = {"member_id": identity.member_id, "group_instance_id": None, "reason": None}
                yield Ask(self._kept_in, Asked(ApiKey.LEAVE_GROUP, group_id=GROUP, members=(leaving,)).handle)
                return
            if fate < 0.06:
                yield Pause(2 * _SESSION_TIMEOUT_MS)  # and commits then as if nothing had happened

    def _sync(self, identity: Identity, joined: Entity) -> Script:
        members = [each.member_id for each in joined.members]
        assignments = [
            {"member_id": member, "assignment": bytes(range(number, len(_ASSIGNED), len(members)))}
            for number, member in enumerate(members)
        ]
        asked = Asked(
            ApiKey.SYNC_GROUP,
            group_id=GROUP,
            generation_id=identity.generation_id,
            member_id=identity.member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )
        answer = yield Ask(self._kept_in, asked.handle, may_arrive_late=True)
        error = error_of(answer)
        if error is not ErrorCode.NONE:
            raise RejoinError(error is not ErrorCode.UNKNOWN_MEMBER_ID)
        return [_ASSIGNED[each] for each in answer.assignment]

    def _fetch(self, key: Key, broker: SimulatedBroker, answer: Answer) -> None:
        check_offset(broker, GROUP, key, self._kept_in, self.model(key), answer)

    def _heartbeat(self, identity: Identity) -> Script:
        asked = Asked(
            ApiKey.HEARTBEAT,
            group_id=GROUP,
            generation_id=identity.generation_id,
            member_id=identity.member_id,
            group_instance_id=None,
        )
        self._react(error_of((yield Ask(self._kept_in, asked.handle))))

    def _commit(self, identity: Identity, keys: Sequence[Key]) -> Script:
        """Commit the offsets of some partitions, each in a request of its own that does not wait for those
        before it.
        """
        commits = [_Commit(self, identity, key, self._version) for key in keys]
        if not commits:
            return
        frames, first = b"".join(each.asked.frame for each in commits), commits[0].asked

        def handle(broker: SimulatedBroker, answer: Answer) -> None:
            coming = iter(commits)

            def handled(count: int) -> None:
                for each in islice(coming, count):
                    each.arrives()

            broker.serving.serve(frames, lambda answers: answer(first.answers(answers)), on_handled=handled)

        answers = yield Ask(self._kept_in, handle, may_arrive_late=True)
        for each, found in zip(commits, () if answers is FAILED else answers, strict=False):
            self._react(each.answered(found))

    def _react(self, error: ErrorCode | None) -> None:
        if error is None or error is ErrorCode.NONE or error in _STAYS:
            return
        raise RejoinError(error is ErrorCode.REBALANCE_IN_PROGRESS)

    def committed(self) -> None:
        self._clients.world.counts["offset commits"] += 1

    def check_at_end(self, broker: SimulatedBroker) -> None:
        """Compare all offsets with what a coordinator has."""
        for key in self._offsets:
            self._fetch(key, broker, lambda _answer: None)


class _Commit:
    """One offset that a member commits."""

    def __init__(self, group: ConsumerGroup, identity: Identity, key: Key, version: int) -> None:
        self._group = group
        self._generation = identity.generation_id
        self._model = group.model(key)
        self._value = group.new_value()
        self._arrival = (-1, -1)
        self.asked = Asked(
            ApiKey.OFFSET_COMMIT,
            version,
            group_id=GROUP,
            generation_id_or_member_epoch=self._generation,
            member_id=identity.member_id,
            group_instance_id=None,
            topics=committed(key, self._value),
        )

    def arrives(self) -> None:
        """A coordinator handles it now."""
        newest = self._model.generation
        self._arrival = self._model.arrives(self._value, self._generation), newest

    def answered(self, answer: Entity) -> ErrorCode:
        number, newest = self._arrival
        error = ErrorCode(int(answer.topics[0].partitions[0].error_code))
        if error is ErrorCode.NONE:
            self._model.check_generation(number, newest)
            self._model.acknowledged(number)
            self._group.committed()
        return error
