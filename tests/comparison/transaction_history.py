"""A random history of requests of transactions, from a seed, that two brokers must answer alike.

After a request that decides how a transaction ends, the history waits until its markers are written. What a
broker answers in between depends on how far it is.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from klog.protocol.apis import ApiKey
from tests.comparison import group_requests
from tests.comparison import transaction_requests as requests
from tests.comparison.group_model import TOPICS, version_of
from tests.comparison.group_requests import Commit, Identity
from tests.comparison.messages import Ask
from tests.comparison.pair import Pair
from tests.comparison.transaction_requests import Addition, Producer, Topics

_UNKNOWN_ID: Final = 987_654_321
_PREPARED: Final = ("PrepareCommit", "PrepareAbort")
_LAST_FETCH_BY_NAME: Final = 12
_PARTITIONS: Final = [(topic, number) for topic, count in TOPICS.items() for number in range(count)]


@dataclass
class TransactionModel:
    """What the answers have said of a transactional id."""

    name: str
    producer: Producer = requests.NOBODY
    former: list[Producer] = field(default_factory=list)
    sequences: dict[tuple[Producer, tuple[str, int]], int] = field(default_factory=dict)
    state: str = ""

    def take(self, producer: Producer) -> None:
        if producer != self.producer:
            self.former.append(self.producer)
            self.producer = producer


class TransactionHistory:
    """Plays requests to a pair of brokers."""

    def __init__(self, pair: Pair, seed: int) -> None:
        self.pair = pair
        self.chance = random.Random(seed)
        self.ids = [TransactionModel(f"{name}{seed}") for name in ("a", "b", "ü")]
        self.groups = [f"group{seed}", f"other{seed}"]
        self.seen_states: set[str] = set()
        self._actions: list[tuple[int, Callable[[TransactionModel], None]]] = [
            (3, self._init),
            (1, self._init_wrongly),
            (1, self._init_idempotent),
            (8, self._add_partitions),
            (2, self._add_partitions_in_batch),
            (3, self._add_offsets),
            (5, self._commit_offsets),
            (9, self._produce),
            (2, self._produce_wrongly),
            (5, self._end),
            (1, self._end_wrongly),
            (1, self._write_markers),
            (1, self._list),
            (2, self._describe_producers),
            (3, self._fetch),
            (3, self._fetch_offsets),
        ]

    def play(self, requests_count: int) -> None:
        """Plays until so many requests were compared."""
        weights = [weight for weight, _ in self._actions]
        while self.pair.steps < requests_count:
            ((_, action),) = self.chance.choices(self._actions, weights)
            action(self.chance.choice(self.ids))

    # -- playing ---------------------------------------------------------------------------------------------

    def _version(self, api: ApiKey, first: int = 0) -> int:
        return version_of(self.chance, api, first)

    def ask(self, ask: Ask) -> Any:
        """Plays a request. Its answer may take another request, of the broker to itself."""
        return self.pair.send("asking", ask, is_answered=True)["asking"]

    def settle(self, known: TransactionModel) -> None:
        """Waits until the markers of a transaction are written, on both sides."""

        def is_settled(answer: Any) -> bool:
            return answer["transaction_states"][0]["transaction_state"] not in _PREPARED

        (described,) = self.pair.settle(requests.describe(known.name), is_settled)["transaction_states"]
        known.state = described["transaction_state"]
        self.seen_states.add(known.state)
        if not described["error_code"]:
            known.take(Producer(described["producer_id"], described["producer_epoch"]))

    def _wrong_producer(self, known: TransactionModel) -> Producer:
        producer_id, epoch = known.producer
        others = [each.producer for each in self.ids] + known.former
        return self.chance.choice(
            (
                Producer(producer_id, epoch + 1),
                Producer(producer_id, max(epoch - 1, 0)),
                Producer(_UNKNOWN_ID, 0),
                self.chance.choice(others),
            )
        )

    def _producer(self, known: TransactionModel) -> Producer:
        return known.producer if self.chance.random() < 0.85 else self._wrong_producer(known)

    def _writer(self, known: TransactionModel) -> Producer:
        """Somebody who writes records, never in another epoch than that of an open transaction.

        Kafka 3.9.1 does not ask the coordinator then, and accepts an epoch that nobody handed out.
        """
        producer = self._producer(known)
        owned = (each for each in self.ids if each.producer.producer_id == producer.producer_id)
        if any(each.state == "Ongoing" and each.producer != producer for each in owned):
            return Producer(_UNKNOWN_ID, 0)
        return producer

    # -- producer ids ----------------------------------------------------------------------------------------

    def _init(self, known: TransactionModel) -> None:
        expected = self.chance.choice((Producer(), Producer(), known.producer, self._wrong_producer(known)))
        timeout = self.chance.choice((requests.TIMEOUT, timedelta(seconds=300)))
        self.ask(requests.init(self._version(ApiKey.INIT_PRODUCER_ID), known.name, expected, timeout))
        self.settle(known)

    def _init_wrongly(self, known: TransactionModel) -> None:
        name, expected, timeout = self.chance.choice(
            (
                ("", Producer(), requests.TIMEOUT),
                (known.name, Producer(), timedelta(0)),
                (known.name, Producer(), timedelta(milliseconds=-1)),
                (known.name, Producer(), timedelta(days=1)),
                (known.name, Producer(_UNKNOWN_ID, -1), requests.TIMEOUT),
                (known.name, Producer(-1, 3), requests.TIMEOUT),
                (None, Producer(-1, 3), requests.TIMEOUT),
            )
        )
        self.ask(requests.init(self._version(ApiKey.INIT_PRODUCER_ID, 3), name, expected, timeout))

    def _init_idempotent(self, known: TransactionModel) -> None:
        expected = self.chance.choice((Producer(), known.producer))
        self.ask(requests.init(self._version(ApiKey.INIT_PRODUCER_ID), None, expected, timedelta(0)))

    # -- partitions and offsets ------------------------------------------------------------------------------

    def _topics(self) -> Topics:
        found: dict[str, tuple[int, ...]] = {}
        for _ in range(self.chance.choice((1, 1, 2, 3))):
            topic, number = self.chance.choice(_PARTITIONS)
            if self.chance.random() < 0.08:
                topic, number = self.chance.choice((("absent", 0), ("t1", 9), ("__consumer_offsets", 0)))
            found[topic] = tuple(sorted({*found.get(topic, ()), number}))
        return found

    def _addition(self, known: TransactionModel, *, verify_only: bool = False) -> Addition:
        name = known.name if self.chance.random() < 0.95 else self.chance.choice(("", "unknown"))
        return Addition(name, self._producer(known), self._topics(), verify_only)

    def _add_partitions(self, known: TransactionModel) -> None:
        version = self.chance.randint(0, 3)
        self.ask(requests.add_partitions(version, self._addition(known)))
        self.settle(known)

    def _add_partitions_in_batch(self, known: TransactionModel) -> None:
        several = self.chance.sample(self.ids, self.chance.choice((1, 2)))
        additions = [self._addition(each, verify_only=self.chance.random() < 0.7) for each in several]
        # Answers are by id.
        by_id = {each.transactional_id: each for each in additions}
        self.ask(requests.add_partitions(self.chance.randint(4, 5), *by_id.values()))
        self.settle(known)

    def _add_offsets(self, known: TransactionModel) -> None:
        version = self._version(ApiKey.ADD_OFFSETS_TO_TXN)
        group = self.chance.choice((*self.groups, *self.groups, ""))
        self.ask(requests.add_offsets(version, known.name, self._producer(known), group))
        self.settle(known)

    def _commit_offsets(self, known: TransactionModel) -> None:
        metadata = self.chance.choice((None, "", "note", "x" * 4097))
        partitions = [*self.chance.sample(_PARTITIONS, self.chance.choice((1, 2)))]
        if self.chance.random() < 0.1:
            partitions.append(("absent", 0))
        commits = [Commit(*each, self.chance.randrange(1000), metadata, 1) for each in partitions]
        who = self.chance.choice((Identity(), Identity(), Identity("nobody", 1), Identity("", 3)))
        version = self._version(ApiKey.TXN_OFFSET_COMMIT)
        group = self.chance.choice((*self.groups, *self.groups, ""))
        self.ask(requests.commit_offsets(version, known.name, self._writer(known), group, commits, who))

    # -- records ---------------------------------------------------------------------------------------------

    def _produce(self, known: TransactionModel) -> None:
        partition = self.chance.choice(_PARTITIONS)
        sequence = known.sequences.get((known.producer, partition), 0)
        version = self._version(ApiKey.PRODUCE, 3)
        answer = self.ask(requests.produce(version, known.name, known.producer, partition, sequence))
        if not answer["topics"][0][1][0]["error_code"]:
            known.sequences[known.producer, partition] = sequence + 1

    def _produce_wrongly(self, known: TransactionModel) -> None:
        partition = self.chance.choice(_PARTITIONS)
        sequence = known.sequences.get((known.producer, partition), 0) + self.chance.choice((-1, 0, 0, 5))
        name = self.chance.choice((known.name, known.name, None, "", "unknown"))
        producer = self._writer(known)
        version = self._version(ApiKey.PRODUCE, 3)
        self.ask(requests.produce(version, name, producer, partition, max(sequence, 0)))

    def _write_markers(self, known: TransactionModel) -> None:
        """Of a producer that nobody coordinates, or of an epoch that is over.

        A marker of a newer coordinator would leave the transaction undecided.
        """
        producer_id, epoch = known.producer
        if self.chance.random() < 0.5:
            producer, coordinator_epochs = Producer(producer_id, max(epoch - 1, 0)), (0, -1)
        else:
            producer, coordinator_epochs = Producer(_UNKNOWN_ID, self.chance.randint(0, 3)), (0, 1, -1)
        self.ask(
            requests.write_markers(
                self._version(ApiKey.WRITE_TXN_MARKERS),
                producer,
                self._topics(),
                committed=self.chance.random() < 0.5,
                coordinator_epoch=self.chance.choice(coordinator_epochs),
            )
        )

    # -- the end ---------------------------------------------------------------------------------------------

    def _end(self, known: TransactionModel) -> None:
        committed = self.chance.random() < 0.6
        self.ask(requests.end(self._version(ApiKey.END_TXN), known.name, known.producer, committed=committed))
        self.settle(known)

    def _end_wrongly(self, known: TransactionModel) -> None:
        name = self.chance.choice((known.name, known.name, known.name, "", "unknown"))
        producer = self._wrong_producer(known)
        committed = self.chance.random() < 0.5
        self.ask(requests.end(self._version(ApiKey.END_TXN), name, producer, committed=committed))
        self.settle(known)

    # -- looking ---------------------------------------------------------------------------------------------

    def _list(self, known: TransactionModel) -> None:
        states = self.chance.choice(((), (), ("Ongoing",), ("CompleteAbort", "nonsense"), ("empty",)))
        ids = self.chance.choice(((), (), (known.producer.producer_id,), (_UNKNOWN_ID,)))
        version = self._version(ApiKey.LIST_TRANSACTIONS)
        longer_than_ms = self.chance.choice((-1, -1, 10**12))
        self.ask(requests.list_transactions(version, states, ids, longer_than_ms))
        self.ask(requests.describe(known.name, "", "unknown"))

    def _describe_producers(self, known: TransactionModel) -> None:
        self.ask(requests.describe_producers({**self._topics(), "t2": (0, 5)}))

    def _fetch(self, known: TransactionModel) -> None:
        version = self.chance.randint(4, _LAST_FETCH_BY_NAME)
        isolation = self.chance.choice((0, 1, 1))
        self.ask(requests.fetch(version, self.chance.choice(_PARTITIONS), isolation=isolation))

    def _fetch_offsets(self, known: TransactionModel) -> None:
        version = self._version(ApiKey.OFFSET_FETCH, 7)
        groups: dict[str, group_requests.Wanted | None] = {self.chance.choice(self.groups): None}
        if self.chance.random() < 0.5:
            groups = {self.chance.choice((*self.groups, "")): {"t1": (0, 1, 2), "t2": (0,)}}
        # Offsets are moved after the marker is answered.
        stable = self.chance.random() < 0.7
        self.pair.settle(group_requests.fetch(version, groups, require_stable=stable))
