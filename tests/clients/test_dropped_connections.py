"""Idempotent producers over connections that break at any byte lose, double and reorder nothing."""

from __future__ import annotations

import asyncio

import aiokafka
import confluent_kafka
import kafka
import pytest

import klog
from tests.clients.cutting_proxy import broker_behind_proxy

COUNT = 2000
TIMEOUT_S = 90
VALUES = [b"%05d " % n + b"x" * 100 for n in range(COUNT)]


def write_confluent(bootstrap, spare) -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 1,
            "batch.size": 4000,
            "reconnect.backoff.ms": 1,
            "reconnect.backoff.max.ms": 20,
            "retry.backoff.ms": 1,
            "retry.backoff.max.ms": 20,
            "delivery.timeout.ms": TIMEOUT_S * 1000,
            "log_level": 0,
        }
    )
    failed = []
    for number, value in enumerate(VALUES):
        producer.produce("t", value, on_delivery=lambda error, _: error and failed.append(error))
        if number % 50 == 0:
            producer.poll(0.002)
    assert producer.flush(TIMEOUT_S) == 0
    assert failed == []


def write_kafka_python(bootstrap, spare) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap,
        enable_idempotence=True,
        linger_ms=1,
        batch_size=4000,
        reconnect_backoff_ms=1,
        reconnect_backoff_max_ms=20,
        retry_backoff_ms=5,
        delivery_timeout_ms=TIMEOUT_S * 1000,
    )
    try:
        futures = [producer.send("t", value, partition=0) for value in VALUES]
        producer.flush(TIMEOUT_S)
        for future in futures:
            future.get(TIMEOUT_S)
        spare()
    finally:
        producer.close(timeout=TIMEOUT_S)


def write_aiokafka(bootstrap, spare) -> None:
    async def started() -> aiokafka.AIOKafkaProducer:
        while True:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                enable_idempotence=True,
                linger_ms=1,
                max_batch_size=4000,
                retry_backoff_ms=5,
                request_timeout_ms=TIMEOUT_S * 1000,
            )
            try:
                await producer.start()
            except aiokafka.errors.KafkaConnectionError:  # it tries its first connection once
                await producer.stop()
            else:
                return producer

    async def run() -> None:
        producer = await started()
        try:
            futures = [await producer.send("t", value, partition=0) for value in VALUES]
            await asyncio.gather(*futures)
            spare()
        finally:
            await producer.stop()

    asyncio.run(asyncio.wait_for(run(), 2 * TIMEOUT_S))


@pytest.mark.parametrize(
    ("write", "seed"),
    [(write_confluent, 1), (write_confluent, 2), (write_kafka_python, 3), (write_aiokafka, 4)],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_nothing_is_written_twice_or_lost_when_connections_break(write, seed) -> None:
    with broker_behind_proxy(seed, chunks=12) as (broker, proxy):
        broker.create_topic("t")
        write(proxy.address, proxy.spare)
        proxy.spare()
        written = [record.value for record in klog.open(str(broker.partition_dir("t"))).records()]
        assert written == VALUES
        assert proxy.cuts >= 5, "nothing was put to the test"
