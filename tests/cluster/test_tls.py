"""Brokers of both kinds talk to each other over TLS only: replication, controller, coordinators."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.cluster.agreeing import agreeing
from tests.cluster.reading import check
from tests.cluster.world import Cluster
from tests.peers.kafka import KafkaPeer
from tests.server.network.servers import TLS_FILES
from tests.swap.clients import Writer, Written
from tests.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

KLOG, KAFKA = 0, 1


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, kafka3: KafkaPeer) -> Iterator[Cluster]:
    work: Path = tmp_path_factory.mktemp("tls")
    keystore = work / "keystore.pem"
    certificate = TLS_FILES / "certificate.pem"
    keystore.write_text((TLS_FILES / "key.pem").read_text() + certificate.read_text())
    config: dict[str, str | int] = {
        "listener.security.protocol.map": "INSIDE:SSL,CLIENTS:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keystore),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificate),
        "offsets.topic.replication.factor": 2,
        "transaction.state.log.replication.factor": 2,
        "controlled.shutdown.retry.backoff.ms": 100,
    }
    with agreeing(work, kafka3, "klog,kafka", config) as found:
        yield found


@pytest.mark.parametrize("controller", [pytest.param(KLOG, id="klog"), pytest.param(KAFKA, id="kafka")])
def test_brokers_of_both_kinds_work_together_over_tls(world: Cluster, controller: int) -> None:
    world.move_controller(controller)
    topic = f"tls-{controller}"
    world.create({topic: 2}, assignment=[[KLOG, KAFKA], [KAFKA, KLOG]])
    written: Written = {}
    writer = Writer(world.bootstrap, written, message_timeout_ms=120_000, request_timeout_ms=110_000)
    for number in range(300):
        writer.write(topic, b"%d" % number * 100)
    writer.finish(120)
    world.wait_for_full_isr()
    check(world, written)


def test_a_transaction_spans_leaders_of_both_kinds(world: Cluster) -> None:
    """Its coordinator sends the markers to the other broker over TLS."""
    topic = "transactional"
    world.create({topic: 2}, assignment=[[KLOG, KAFKA], [KAFKA, KLOG]])
    for name in ("one", "two", "three"):  # their coordinators are on both brokers
        producer = Producer({"bootstrap.servers": world.bootstrap, "transactional.id": name, "log_level": 0})
        producer.init_transactions(120)
        producer.begin_transaction()
        for number in range(20):
            producer.produce(topic, f"{name} {number}", partition=number % 2)
        producer.commit_transaction(120)
    consumer = Consumer(
        {
            "bootstrap.servers": world.bootstrap,
            "group.id": "readers",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    found: set[bytes] = set()

    def has_all() -> bool:
        found.update(each.value() for each in consumer.consume(100, 1) if each.error() is None)
        return len(found) == 60

    try:
        consumer.subscribe([topic])
        eventually(has_all, 120)
    finally:
        consumer.close()
