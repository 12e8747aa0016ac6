"""Transactions and groups of a cluster whose brokers reach each other by SASL_SSL only: coordinators send
markers, and are found, wherever they are, also after the brokers' sessions have been renewed.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.test_sasl import (
    SESSION_MS,
    TIMEOUT_S,
    address_of,
    config_of,
    klog_command,  # noqa: F401 (a fixture)
    of_librdkafka,
    set_first_password,
)
from tests.commands.running import Run
from tests.peers.broker import ZooKeeperBroker
from tests.peers.kafka import KafkaPeer
from tests.peers.zookeeper import ZooKeeperServer
from tests.swap.klog_process import KlogBroker
from tests.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

IDS = (7, 8, 9)
PARTITIONS = range(len(IDS))
NUMBERS = range(6)  # of transactional ids and groups: their coordinators are on all brokers
SPREAD = {
    "offsets.topic.num.partitions": 6,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.num.partitions": 6,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
}


def create_topic(settings: dict[str, str]) -> None:
    """Each broker leads one of its partitions."""
    admin = AdminClient(settings)
    eventually(lambda: len(admin.list_topics(timeout=TIMEOUT_S).brokers) == len(IDS), TIMEOUT_S)
    leaders = [[*IDS[number:], *IDS[:number]] for number in PARTITIONS]
    admin.create_topics([NewTopic("t", len(IDS), replica_assignment=leaders)])["t"].result(TIMEOUT_S)


def run_transaction(settings: dict[str, str], number: int, text: str, *, commits: bool) -> None:
    """One record for each partition, and an offset for a group."""
    producer = Producer(settings | {"transactional.id": f"id-{number}", "transaction.timeout.ms": 60_000})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for partition in PARTITIONS:
        producer.produce("t", f"{text}-{number}", partition=partition)
    member = Consumer(settings | {"group.id": f"g-{number}"})
    try:
        offset = TopicPartition("t", 0, 100 + number)
        producer.send_offsets_to_transaction([offset], member.consumer_group_metadata(), TIMEOUT_S)
    finally:
        member.close()
    if commits:
        producer.commit_transaction(TIMEOUT_S)
    else:
        producer.abort_transaction(TIMEOUT_S)


def read_by_members(settings: dict[str, str], group: str, count: int) -> Counter[bytes]:
    """What two members of a group read of the topic, committed records only."""
    ours = settings | {"group.id": group, "auto.offset.reset": "earliest", "session.timeout.ms": "10000"}
    members = [Consumer(ours | {"isolation.level": "read_committed"}) for _ in range(2)]
    found: Counter[bytes] = Counter()

    def is_all_read() -> bool:
        for member in members:
            record = member.poll(0.1)
            if record is not None and record.error() is None:
                found[record.value() or b""] += 1
        return found.total() >= count

    try:
        for member in members:
            member.subscribe(["t"])
        eventually(is_all_read, TIMEOUT_S, lambda: f"{sorted(found)} of {count} records")
        return found
    finally:
        for member in members:
            member.close()


@pytest.mark.parametrize("kinds", ["klog,klog,klog", "klog,kafka,klog"])
def test_transactions_and_groups_between_brokers_with_logins(
    kafka3: KafkaPeer,
    klog_command: Run,  # noqa: F811 (the fixture)
    tmp_path: Path,
    kinds: str,
) -> None:
    with ExitStack() as running:
        zookeeper = running.enter_context(ZooKeeperServer(tmp_path / "zookeeper", kafka3))
        configs = [config_of(tmp_path, each, "SASL_SSL", zookeeper.hosts) | SPREAD for each in IDS]
        set_first_password(klog_command, tmp_path, configs[0])
        ours = []
        for config, kind in zip(configs, kinds.split(","), strict=True):
            work = tmp_path / str(config["broker.id"])
            if kind == "kafka":
                running.enter_context(ZooKeeperBroker(work, config, kafka3))
            else:
                ours.append(running.enter_context(KlogBroker(work, config)).start())
        settings = of_librdkafka(",".join(map(address_of, configs)), "SASL_SSL")
        create_topic(settings)
        # What librdkafka's administrator has left is a cycle, which would go on to connect after the test.
        gc.collect()
        for text in ("first", "later"):
            for number in NUMBERS:
                run_transaction(settings, number, text, commits=number % 2 == 0)
            # The connections between the brokers are in other sessions then.
            time.sleep(1.5 * SESSION_MS / 1000)
        committed = {f"{text}-{number}".encode() for text in ("first", "later") for number in NUMBERS[::2]}
        found = read_by_members(settings, "readers", len(PARTITIONS) * len(committed))
        assert found == Counter(dict.fromkeys(committed, len(PARTITIONS)))
        for number in NUMBERS:
            member = Consumer(settings | {"group.id": f"g-{number}"})
            (offset,) = member.committed([TopicPartition("t", 0)], TIMEOUT_S)
            member.close()
            assert offset.offset == (100 + number if number % 2 == 0 else -1001)
        for broker in ours:
            assert "Traceback" not in broker.log_text
            assert "session has expired" not in broker.log_text
