"""Kafka 3.9.1 and klog with the same configs, for the tests that compare their answers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from klog.protocol.error_codes import ErrorCode
from tests.comparison import group_requests, transaction_requests
from tests.comparison.group_model import MAX_SIZE, TOPICS
from tests.comparison.messages import Ask
from tests.comparison.pair import Pair, Side
from tests.peers.broker import SINGLE_BROKER, Config, ZooKeeperBroker
from tests.peers.kafka import KafkaPeer
from tests.swap.clients import Admin
from tests.swap.klog_process import KlogBroker
from tests.waiting import eventually

SEED: Final = int(os.environ.get("KLOG_TEST_SEED", "11"))
REQUESTS: Final = int(os.environ.get("KLOG_TEST_COMPARED_REQUESTS", "1500"))
CONFIG: Final[Config] = {
    **SINGLE_BROKER,
    # One thread of each kind: requests are handled in the order in which they are sent.
    "num.network.threads": 1,
    "num.io.threads": 1,
    "group.max.size": MAX_SIZE,
    "group.min.session.timeout.ms": 100,
    "auto.create.topics.enable": "false",
    "unstable.api.versions.enable": "false",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
}


@contextmanager
def both_brokers(
    peer: KafkaPeer, work: Path, more: Config = MappingProxyType({})
) -> Iterator[tuple[int, int]]:
    """The ports of Kafka and klog, which have the same topics. `more` are configs of both."""
    config = {**CONFIG, **more}
    with ZooKeeperBroker(work / "kafka", config, peer) as kafka, KlogBroker(work / "klog", config) as klog:
        klog.start()
        for broker in (kafka, klog):
            Admin(broker.bootstrap).create({topic: (count, {}) for topic, count in TOPICS.items()})
        yield kafka.port, klog.port
        assert "Traceback" not in klog.log_text
        klog.stop()


@contextmanager
def opened_pair(ports: tuple[int, int]) -> Iterator[Pair]:
    """Connections to both brokers, which coordinate groups and transactions."""
    with closing(Pair(*ports)) as pair:
        for side in (pair.kafka, pair.klog):
            _open(side)
        yield pair


def _open(side: Side) -> None:
    """Waits for the coordinators, and for a transaction that needs all connections among brokers."""

    def ask(asked: Ask) -> Any:
        return side.ask("opening", asked)[0]

    for kind in (0, 1):
        found = group_requests.find_coordinator(1, kind, "a")
        eventually(lambda found=found: ask(found).error_code == ErrorCode.NONE)
    answers: list[Any] = []

    def has_producer_id() -> bool:
        answers.append(ask(transaction_requests.init(1, "opening", timeout=timedelta(seconds=60))))
        return answers[-1].error_code == ErrorCode.NONE

    eventually(has_producer_id)
    producer = transaction_requests.Producer(int(answers[-1].producer_id), answers[-1].producer_epoch)
    addition = transaction_requests.Addition("opening", producer, {"t2": (0,)})
    eventually(lambda: not _errors(ask(transaction_requests.add_partitions(0, addition))))
    # The first verification may be refused before there is a connection; a refused record leaves nothing.
    written = transaction_requests.produce(9, "opening", producer, ("t2", 0), 0)
    eventually(lambda: not ask(written).topics[0][1][0].error_code)
    ended = transaction_requests.end(1, "opening", producer, committed=False)
    eventually(lambda: ask(ended).error_code == ErrorCode.NONE)
    described = transaction_requests.describe("opening")
    eventually(lambda: ask(described).transaction_states[0].transaction_state == "CompleteAbort")


def _errors(answer: Any) -> list[int]:
    results = (each for topic in answer.results_by_topic_v3_and_below for each in topic.results_by_partition)
    return [each.partition_error_code for each in results if each.partition_error_code]
