"""Three klog brokers meet faults: idempotent producers go on, and each record is there once.

KLOG_TEST_KILL_SECONDS sets how long all brokers are killed again and again, and how long a leader is stopped.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from klog.testing import KlogCluster
from tests.checker.under_kills import SEED
from tests.swap.clients import read
from tests.waiting import eventually

SECONDS: Final = float(os.environ.get("KLOG_TEST_KILL_SECONDS", "10"))
TOPIC: Final = "t"
PARTITIONS: Final = 4
TIMEOUT_S: Final = 120

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300 + 3 * SECONDS)]


class Sender(threading.Thread):
    """An idempotent producer with five small batches in flight to each partition, until it is stopped."""

    def __init__(self, bootstrap: str, name: str) -> None:
        super().__init__(name=name)
        self.acknowledged: list[bytes] = []
        self.errors: list[KafkaError] = []
        self._stopped = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "max.in.flight.requests.per.connection": 5,
                "batch.num.messages": 2,
                "queue.buffering.max.messages": 200,
                "message.timeout.ms": TIMEOUT_S * 1000,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
                "error_cb": self._failed,
            }
        )

    def _failed(self, error: KafkaError) -> None:
        if error.fatal():
            self.errors.append(error)

    def run(self) -> None:
        number = 0
        while not self._stopped.is_set() and not self.errors:
            try:
                self._producer.produce(
                    TOPIC, f"{self.name}-{number}", partition=number % PARTITIONS, on_delivery=self._delivered
                )
                number += 1
            except BufferError:
                self._producer.poll(0.01)
            except KafkaException as fatal:
                self.errors.append(fatal.args[0])
            self._producer.poll(0)
        self._left = self._producer.flush(TIMEOUT_S)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.append(message.value())
        else:
            self.errors.append(error)

    def stop(self) -> None:
        self._stopped.set()
        self.join()
        assert self._left == 0 or self.errors


def kill_all(cluster: KlogCluster) -> None:
    pids = [each.pid for each in cluster.brokers.values() if each.pid is not None]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for broker_id in cluster.brokers:
        cluster.kill(broker_id)


@pytest.fixture
def cluster() -> Iterator[KlogCluster]:
    made = KlogCluster(3, {"min.insync.replicas": 2, "log.segment.bytes": 1 << 16})
    try:
        made.start()
        made.create_topic(TOPIC, PARTITIONS)
        made.await_in_sync(TOPIC)
        yield made
    finally:
        made.close()


@contextmanager
def sending(cluster: KlogCluster) -> Iterator[None]:
    """Producers write meanwhile. At the end what they were told is what is there."""
    senders = [Sender(cluster.bootstrap_servers, f"s{number}") for number in range(3)]
    for sender in senders:
        sender.start()
    yield
    for sender in senders:
        sender.stop()
    assert [error.str() for sender in senders for error in sender.errors] == []
    written = read(cluster.bootstrap_servers, [(TOPIC, number) for number in range(PARTITIONS)])
    found = Counter(record.value for log in written.values() for record in log.values())
    acknowledged = Counter(value for sender in senders for value in sender.acknowledged)
    assert found == acknowledged
    assert min(len(sender.acknowledged) for sender in senders) > 100


def test_producers_go_on_after_all_brokers_were_killed_at_once(cluster: KlogCluster) -> None:
    chance = random.Random(SEED)
    with sending(cluster):
        end_s = time.monotonic() + SECONDS
        while time.monotonic() < end_s:
            time.sleep(chance.uniform(1, 3))
            kill_all(cluster)
            cluster.start()


def test_a_leader_that_stood_still_has_acknowledged_nothing_that_the_next_one_lacks(
    cluster: KlogCluster,
) -> None:
    stopped = cluster.leader(TOPIC)
    with sending(cluster):
        time.sleep(1)
        cluster.pause(stopped)
        # Longer than its session: another one leads meanwhile.
        time.sleep(max(SECONDS, 10))
        eventually(lambda: cluster.leader(TOPIC) != stopped, TIMEOUT_S)
        cluster.resume(stopped)
        cluster.await_in_sync(TOPIC)
        time.sleep(1)
