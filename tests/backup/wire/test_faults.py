"""What happens to a cluster, or to the run itself, while it is backed up over the wire."""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient

import klog.testing
from klog.backup.verify import VerifyOptions, verify
from klog.backup.wire import reader
from klog.formats.names import TopicPartition
from klog.testing.cluster_view import wait_for
from klog.testing.process import BrokerProcess
from tests.backup.repositories import Backups, log_files
from tests.backup.wire.test_source import created_again, kept, on_disk, produce

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    with klog.testing.broker({"log.retention.check.interval.ms": 500}) as running:
        running.create_topic("orders", partitions=1)
        yield running


@pytest.fixture
def _small_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition takes many requests."""
    monkeypatch.setattr(reader, "FETCH_BYTES", 1_000)


def once(work: Callable[[], object]) -> Callable[[int], None]:
    """Works when the first bytes are read."""
    left = [work]

    def on_bytes(_bytes: int) -> None:
        if left:
            left.pop()()

    return on_bytes


def delete_records(broker: BrokerProcess, before: int) -> None:
    # The client has to live until its answer has come, and to be gone before the next test.
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_records([Position(*ORDERS, before)])[Position(*ORDERS)].result(30)
    del admin
    gc.collect()


def delete_topic(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics(["orders"])["orders"].result(30)
    del admin
    gc.collect()


def no_findings(backups: Backups) -> bool:
    repository = backups.repository
    return not verify(repository, repository.ids(), VerifyOptions()).findings


@pytest.mark.usefixtures("_small_fetches")
def test_records_that_are_deleted_while_they_are_read(broker: BrokerProcess, backups: Backups) -> None:
    produce(broker, "orders", 500)
    deleting = once(lambda: delete_records(broker, 400))
    result = backups.run_over_wire(broker.bootstrap_servers, on_bytes=deleting)
    assert result.is_clean, result.manifest.problems
    state = backups.states()[ORDERS]
    assert (state.log_start_offset, state.end_offset) == (400, 500)
    assert on_disk(broker, "orders").endswith(kept(backups, "orders"))
    assert no_findings(backups)


@pytest.mark.usefixtures("_small_fetches")
def test_a_topic_that_is_created_again_while_it_is_read(broker: BrokerProcess, backups: Backups) -> None:
    produce(broker, "orders", 500)

    def replace() -> None:
        delete_topic(broker)
        wait_for(lambda: created_again(broker), "orders was not deleted")
        produce(broker, "orders", 700, **{"compression.type": "zstd"})

    old = on_disk(broker, "orders")
    backups.run_over_wire(broker.bootstrap_servers, on_bytes=once(replace), timeout_ms=3_000)
    for state in backups.states().values():
        assert old.startswith(kept(backups, "orders")), state
    assert no_findings(backups)
    again = backups.run_over_wire(broker.bootstrap_servers)
    assert again.is_clean, again.manifest.problems
    assert kept(backups, "orders") == on_disk(broker, "orders")


@pytest.mark.usefixtures("_small_fetches")
def test_a_leader_that_dies_while_it_is_read(backups: Backups) -> None:
    with klog.testing.cluster(2, {"min.insync.replicas": 1}) as brokers:
        brokers.create_topic("orders")
        producer = Producer({"bootstrap.servers": brokers.bootstrap_servers, "acks": "all"})
        for number in range(500):
            producer.produce("orders", f"value {number}".encode() * 10)
            if number % 50 == 49:
                producer.flush()
        leader = brokers.leader("orders", 0)
        follower = 1 - leader
        result = backups.run_over_wire(
            brokers.bootstrap_servers, timeout_ms=60_000, on_bytes=once(lambda: brokers.kill(leader))
        )
        assert result.is_clean, result.manifest.problems
        [path] = brokers.brokers[follower].log_dirs[0].glob("orders-0")
        whole = b"".join(log_files(path).values())
        state = backups.states()[ORDERS]
        assert state.end_offset == 500
        assert state.broker_id == follower
        assert kept(backups, "orders") == whole
        brokers.restore()


def test_a_run_that_is_killed_at_any_moment_is_finished_by_the_next_one(
    broker: BrokerProcess, backups: Backups
) -> None:
    topics = [f"orders-{number}" for number in range(6)]
    for topic in topics:
        broker.create_topic(topic, partitions=1)
    chance = random.Random(int(os.environ.get("KLOG_TEST_SEED", "11")))
    words = ["backup", "run", "-b", broker.bootstrap_servers, "--to", str(backups.place), "-q"]
    killed = 0
    for _ in range(4):
        for topic in topics:
            produce(broker, topic, 100)
        with subprocess.Popen([sys.executable, "-m", "klog", *words]) as process:
            _wait_for_pieces(process, Path(backups.place))
            if killed:  # the first kill does not wait: a run may have ended then
                time.sleep(chance.random() * 0.05)
            process.send_signal(signal.SIGKILL)
            killed += process.wait() == -signal.SIGKILL
        assert no_findings(backups)
    assert killed
    result = backups.run_over_wire(broker.bootstrap_servers)
    assert result.is_clean, result.manifest.problems
    assert no_findings(backups)
    for topic in topics:
        assert kept(backups, topic) == on_disk(broker, topic)


def _wait_for_pieces(process: subprocess.Popen[bytes], place: Path) -> None:
    """Until the run writes a piece, or has ended."""
    before = set(place.rglob("*.log*"))
    while process.poll() is None and not set(place.rglob("*.log*")) - before:
        time.sleep(0.002)
