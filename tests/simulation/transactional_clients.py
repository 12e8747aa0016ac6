"""Transactional producers: each transaction writes records and maybe offsets of a group, and ends.

A producer follows the rules of Kafka's Java client: a transaction of which anything is uncertain is aborted,
and the producer goes on in a new epoch. Now and then an application starts again while its former instance
still runs; that one goes on until it is fenced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from klog.client.requests import by_topic
from klog.coordinator.runtime.partitioning import partition_of
from klog.coordinator.transactions.coordinator import TRANSACTION_STATE
from klog.coordinator.transactions.values import NO_PRODUCER, Producer
from klog.formats.names import CONSUMER_OFFSETS, TopicPartition
from klog.kernel.batch_builder import BatchFields
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity, Value
from klog.protocol.error_codes import ErrorCode
from klog.replication.partition import ALL_IN_SYNC
from tests.simulation.asking import Asked, error_of
from tests.simulation.coordinators import INPUT
from tests.simulation.log_content import batch_of
from tests.simulation.network import Answer
from tests.simulation.outcomes import Attempt, CommittedOffsetModel
from tests.simulation.producing import Producing
from tests.simulation.schedule import SkewClock
from tests.simulation.scheduler import stream
from tests.simulation.scripts import FAILED, Ask, Pause, Play, Script

if TYPE_CHECKING:
    from tests.simulation.broker import SimulatedBroker
    from tests.simulation.clients import Clients

TIMEOUT_MS = 2_000
COMMITTED_TOPIC = (INPUT, 0)
_PRODUCE_VERSION = 11
# From version 4 on brokers ask, not clients.
_ADD_VERSION = 3
# One group in a request.
_FETCH_VERSION = 7
# How often a topic may be unknown.
_ADD_TRIES = 10
_RETRY_MS = 150
# A producer that gives up early may have its records written late, when the transaction has ended.
_PRODUCE_TRIES = (1, 3, 8)
_TIMEOUTS_MS = (150, 1_000)
# No instance of an application goes on after these.
_FENCED = frozenset(
    (
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
    )
)
# These records cannot be written in this transaction.
_ABORTABLE = frozenset(
    (
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    )
)


class FencedError(Exception):
    """Another instance has taken over, or the coordinator has ended the transaction."""


class VanishedError(Exception):
    """The instance ends without a word: the coordinator has to abort what it has left open."""


class UncertainError(Exception):
    """The transaction must be aborted, and the producer goes on in a new epoch."""


@dataclass(slots=True)
class _Open:
    """A producer in one of its epochs, and its next sequence numbers."""

    producer: Producer
    sequences: dict[TopicPartition, int] = field(default_factory=dict)


class TransactionalProducer:
    """All instances of one application, which has a transactional id and a group of its own."""

    def __init__(self, clients: Clients, transactional_id: str) -> None:
        self._clients = clients
        self._id = transactional_id
        self._group = f"group-{transactional_id}"
        counts = clients.world.internal_partitions
        self._state_key = TopicPartition(
            TRANSACTION_STATE, partition_of(transactional_id, counts[TRANSACTION_STATE])
        )
        self._offsets_key = TopicPartition(
            CONSUMER_OFFSETS, partition_of(self._group, counts[CONSUMER_OFFSETS])
        )
        self._random = stream(clients.world.schedule.seed, "transactions", transactional_id)
        # Timeouts go by the wall clock: with one that is set back they take as much longer.
        self._may_vanish = not any(isinstance(each, SkewClock) for each in clients.world.schedule.faults)
        self._living = 0
        self._attempts = 0
        self._value = 0
        self._offsets: CommittedOffsetModel | None = None

    def start(self) -> None:
        Play(self._clients, self._life())
        Play(self._clients, self._watch_offsets())

    # -- an instance -----------------------------------------------------------------------------------------

    def _life(self) -> Script:
        self._living += 1
        try:
            yield from self._run()
        except FencedError:
            self._clients.world.counts["fenced"] += 1
        except VanishedError:
            self._clients.world.counts["vanished"] += 1
        self._living -= 1
        if not self._living and self._clients.producing:
            yield Pause(self._random.randrange(1_000))
            Play(self._clients, self._life())

    def _run(self) -> Script:
        clients, rng = self._clients, self._random
        yield Pause(rng.randrange(300))
        while clients.producing and clients.world.model_of(self._state_key) is None:
            yield Pause(_RETRY_MS)
        while clients.producing:
            opened = _Open((yield from self._init(NO_PRODUCER)))
            while clients.producing:
                opened = yield from self._work(opened)
                if rng.random() < 0.06:
                    Play(clients, self._life())  # and this one goes on
                yield Pause(rng.randrange(30, 500))

    def _work(self, opened: _Open) -> Script:
        """One transaction; the producer with which to go on."""
        try:
            yield from self._transaction(opened)
        except UncertainError:
            self._clients.world.counts["uncertain"] += 1
            return _Open((yield from self._init(opened.producer)))
        return opened

    def _init(self, expected: Producer) -> Script:
        asked = Asked(
            ApiKey.INIT_PRODUCER_ID,
            transactional_id=self._id,
            transaction_timeout=TIMEOUT_MS,
            producer_id=expected.producer_id,
            producer_epoch=expected.epoch,
        )
        while True:
            answer = yield Ask(self._state_key, asked.handle)
            error = error_of(answer)
            if error is ErrorCode.NONE:
                return Producer(answer.producer_id, answer.producer_epoch)
            if error in _FENCED:
                raise FencedError
            yield Pause(_RETRY_MS)

    # -- a transaction ---------------------------------------------------------------------------------------

    def _transaction(self, opened: _Open) -> Script:
        clients, rng = self._clients, self._random
        keys = [key for key in clients.partitions() if rng.random() < 0.7]
        offsets = rng.random() < 0.4 and clients.world.model_of(self._offsets_key) is not None
        if not keys and not offsets:
            return
        model = clients.world.model_of(self._state_key)
        assert model is not None
        self._attempts += 1
        attempt = clients.world.outcomes.begin(f"transaction {self._id}/{self._attempts}", model)
        commits = rng.random() < 0.75
        if keys and not (yield from self._add(opened, keys)):
            return  # a topic is deleted
        try:
            if offsets:
                yield from self._until_done(
                    self._asked(ApiKey.ADD_OFFSETS_TO_TXN, opened, group_id=self._group).handle
                )
            for key in keys:
                for _ in range(rng.choice((1, 1, 2))):
                    yield from self._produce(opened, attempt, key)
            number = -1
            if offsets:
                number = yield from self._commit_offsets(opened, attempt)
        except UncertainError:
            yield from self._end(opened, attempt, False)
            raise
        fate = rng.random()
        if fate < 0.05 and self._may_vanish:
            raise VanishedError
        if fate > 0.95:
            yield Pause(rng.randrange(2 * TIMEOUT_MS))
        yield from self._end(opened, attempt, commits)
        if commits and number >= 0 and not attempt.is_excused:
            self._committed_offset().acknowledged(number)

    def _asked(self, api_key: int, opened: _Open, **fields: Value) -> Asked:
        producer_id, epoch = opened.producer
        return Asked(
            api_key, transactional_id=self._id, producer_id=producer_id, producer_epoch=epoch, **fields
        )

    def _add(self, opened: _Open, keys: Iterable[TopicPartition]) -> Script:
        """Whether the coordinator has taken the partitions."""
        producer_id, epoch = opened.producer
        asked = Asked(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            _ADD_VERSION,
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=by_topic(sorted(keys)),
        )
        unknown = 0
        while unknown < _ADD_TRIES:
            answer = yield Ask(self._state_key, asked.handle)
            errors = set() if answer is FAILED else _errors_of_partitions(answer)
            if errors == {ErrorCode.NONE}:
                return True
            if errors & _FENCED:
                raise FencedError
            unknown += ErrorCode.UNKNOWN_TOPIC_OR_PARTITION in errors
            yield Pause(_RETRY_MS)
        return False

    def _end(self, opened: _Open, attempt: Attempt, committed: bool) -> Script:
        attempt.commit_sent = committed
        asked = self._asked(ApiKey.END_TXN, opened, committed=committed)

        def handle(broker: SimulatedBroker, answer: Answer) -> None:
            # Within one producer epoch nobody can tell a repeated EndTxn from that of the next transaction,
            # which a coordinator does not know if it was replaced and has not heard of that (KIP-890, part 2,
            # raises the epoch with each transaction and came later).
            model = broker.world.model_of(self._state_key)
            is_replaced = model is None or model.state is None or model.state.leader != broker.broker_id
            if is_replaced and broker.coordinators.has_ended(self._id, committed=committed):
                attempt.is_uncertain = True
            asked.handle(broker, answer)

        yield from self._until_done(handle)
        attempt.end_acknowledged(committed)
        self._clients.world.counts["commits" if committed else "aborts"] += 1

    def _until_done(self, handle: Callable[[SimulatedBroker, Answer], None]) -> Script:
        """Ask the coordinator until it says yes. It has to, unless the producer is fenced."""
        while True:
            error = error_of((yield Ask(self._state_key, handle)))
            if error is ErrorCode.NONE:
                return
            if error in _FENCED:
                raise FencedError
            yield Pause(_RETRY_MS)

    def _produce(self, opened: _Open, attempt: Attempt, key: TopicPartition) -> Script:
        clients = self._clients
        record_id, sequence = clients.new_record(), opened.sequences.get(key, 0)
        opened.sequences[key] = sequence + 1
        clients.world.outcomes.add_record(attempt, record_id)
        fields = BatchFields(
            producer_id=opened.producer.producer_id,
            producer_epoch=opened.producer.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        data = bytes(batch_of(record_id, clients.wall_ms(), fields))
        producing = Producing(key, _PRODUCE_VERSION, ALL_IN_SYNC, (record_id,), (data,), self._id)

        for _ in range(self._random.choice(_PRODUCE_TRIES)):
            answered = yield Ask(key, producing.send, True, self._random.choice(_TIMEOUTS_MS))
            error = None if answered is FAILED else answered[0].error
            if error is ErrorCode.NONE:
                return
            if error in _FENCED or error in _ABORTABLE:
                break  # EndTxn says whether the producer is fenced
            yield Pause(_RETRY_MS)
        raise UncertainError

    # -- offsets ---------------------------------------------------------------------------------------------

    def _committed_offset(self) -> CommittedOffsetModel:
        if self._offsets is None:
            model = self._clients.world.model_of(self._offsets_key)
            assert model is not None
            self._offsets = CommittedOffsetModel(f"group {self._group}", model)
        return self._offsets

    def _commit_offsets(self, opened: _Open, attempt: Attempt) -> Script:
        self._value += 1
        value, first = self._value, -1

        asked = self._asked(
            ApiKey.TXN_OFFSET_COMMIT,
            opened,
            group_id=self._group,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=committed(COMMITTED_TOPIC, value),
        )

        def handle(broker: SimulatedBroker, answer: Answer) -> None:
            offsets = self._committed_offset()
            number = offsets.arrives(value, -1, attempt)

            def answered(found: Entity) -> None:
                error = ErrorCode(int(found.topics[0].partitions[0].error_code))
                if error is ErrorCode.NONE and attempt.outcome is not None:
                    # It was given up, and its verification took longer than the transaction. It counts for
                    # the next one: in one producer epoch nobody can tell (KIP-890, part 1; part 2 can).
                    offsets.arrives(value, -1)
                answer((error, number))

            asked.serve(broker, answered)

        for _ in range(self._random.choice(_PRODUCE_TRIES)):
            answered = yield Ask(self._offsets_key, handle, True, self._random.choice(_TIMEOUTS_MS))
            error, first = (None, -1) if answered is FAILED else answered
            if error is ErrorCode.NONE:
                return first
            if error in _FENCED or error in _ABORTABLE:
                break
            yield Pause(_RETRY_MS)
        raise UncertainError

    def _watch_offsets(self) -> Script:
        """Read the committed offset now and then, as long as the schedule goes on."""
        while True:
            yield Pause(self._random.randrange(200, 1_500))
            if self._offsets is not None:
                yield Ask(self._offsets_key, self.check_offset)

    def check_offset(self, broker: SimulatedBroker, answer: Answer) -> None:
        """Compare what a coordinator says with what it may be, if no newer one is elected."""
        offsets = self._committed_offset()
        check_offset(broker, self._group, COMMITTED_TOPIC, self._offsets_key, offsets, answer)

    def check_at_end(self, broker: SimulatedBroker) -> None:
        """Compare the committed offset with what a coordinator has."""
        if self._offsets is not None:
            self.check_offset(broker, lambda _answer: None)


def committed(key: tuple[str, int], value: int) -> Value:
    """The topics of a request that commits one offset."""
    partition = {
        "partition_index": key[1],
        "committed_offset": value,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    return ({"name": key[0], "partitions": (partition,)},)


def _errors_of_partitions(answer: Entity) -> set[ErrorCode]:
    return {
        ErrorCode(int(each.partition_error_code))
        for topic in answer.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    }


def check_offset(
    broker: SimulatedBroker,
    group: str,
    key: tuple[str, int],
    kept_in: TopicPartition,
    offsets: CommittedOffsetModel,
    answer: Answer,
) -> None:
    """Compare the group's committed offset with what it may be, if this is the newest coordinator."""
    topics = ({"name": key[0], "partition_indexes": (key[1],)},)
    asked = Asked(ApiKey.OFFSET_FETCH, _FETCH_VERSION, group_id=group, topics=topics, require_stable=True)

    def read(found: Entity) -> None:
        partition, model = broker.replicas.partitions.get(kept_in), broker.world.model_of(kept_in)
        if not found.error_code and partition is not None and model is not None and model.state is not None:
            (offset,) = found.topics[0].partitions
            epoch = partition.state.leader_epoch
            is_newest = (model.state.leader, model.state.leader_epoch) == (broker.broker_id, epoch)
            if is_newest and partition.state.is_leader and not offset.error_code:
                offsets.check(offset.committed_offset, epoch, f"b{broker.broker_id}")
                broker.world.counts["offsets read"] += 1
        answer(None)

    asked.serve(broker, read)
