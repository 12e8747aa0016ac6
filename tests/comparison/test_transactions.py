"""Requests of transactions: a seeded history of them gets the same answers of klog and of Kafka 3.9.1.

Known differences, which the history leaves out:

* What is answered while markers are being written depends on how far the broker is. The history waits.
* Kafka 3.9.1 does not ask the coordinator about records and offsets of a producer that has an open
  transaction in the partition, whatever their epoch, and accepts an epoch that nobody handed out. klog asks
  if the epoch is another one than the transaction's.
* klog has messages beside the errors of refused records where Kafka has none.
* WriteTxnMarkers with a newer coordinator epoch leaves a transaction undecided on both.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.comparison import transaction_requests as requests
from tests.comparison.brokers import REQUESTS, SEED, both_brokers, opened_pair
from tests.comparison.pair import Pair
from tests.comparison.transaction_history import TransactionHistory
from tests.comparison.transaction_requests import Addition, Producer
from tests.peers.kafka import KafkaPeer

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def ports(kafka3: KafkaPeer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    with both_brokers(kafka3, tmp_path_factory.mktemp("comparison")) as opened:
        yield opened


@pytest.fixture
def pair(ports: tuple[int, int]) -> Iterator[Pair]:
    with opened_pair(ports) as opened:
        yield opened


def test_a_history_of_transactions_is_answered_alike(pair: Pair) -> None:
    history = TransactionHistory(pair, SEED)
    history.play(REQUESTS)
    assert {"Empty", "Ongoing", "CompleteCommit", "CompleteAbort"} <= history.seen_states


def test_a_transaction_that_takes_too_long_is_aborted_alike(pair: Pair) -> None:
    def ended(answer: Any) -> bool:
        return answer["transaction_states"][0]["transaction_state"] == "CompleteAbort"

    pair.ask(requests.init(4, "late", timeout=timedelta(milliseconds=1_500)))
    (found,) = pair.settle(requests.describe("late"))["transaction_states"]
    producer = Producer(found["producer_id"], found["producer_epoch"])
    pair.ask(requests.add_partitions(2, Addition("late", producer, {"t1": (0,)})))
    (aborted,) = pair.settle(requests.describe("late"), ended)["transaction_states"]
    assert aborted["producer_epoch"] == producer.epoch + 1
    # Nobody learns of it but by an error, which depends on the version.
    for version in range(5):
        pair.ask(requests.end(version, "late", producer, committed=True))
    for version in range(3, 12):
        written = requests.produce(version, "late", producer, ("t1", 0), 0)
        pair.send("asking", written, is_answered=True)
    for version in range(4):
        pair.ask(requests.add_partitions(version, Addition("late", producer, {"t1": (1,)})))
        pair.ask(requests.add_offsets(version, "late", producer, "group"))
    for version in range(3, 6):
        pair.ask(requests.init(version, "late", producer))
    pair.settle(requests.describe("late"))
