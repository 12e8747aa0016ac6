"""A cluster of three Kafka brokers becomes one of three klog brokers, one at a time, under load, and back.

KLOG_TEST_SWAPS says how often there and back. KLOG_TEST_CLUSTER=kafka,kafka,kafka restarts Kafka alone, which
shows what clients see of that.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from tests.checker import checks
from tests.checker.players import INPUT, INPUT_PARTITIONS, IdempotentProducer, Observer, Reader
from tests.checker.under_kills import INPUTS, SEED, ended, logs_of
from tests.cluster.agreement import check_acknowledged, differences
from tests.cluster.java_clients import JavaClients
from tests.cluster.members import Kind
from tests.cluster.reading import settled
from tests.cluster.world import Cluster, cluster, kinds
from tests.peers.kafka import KafkaPeer
from tests.waiting import eventually

SWAPS: Final = int(os.environ.get("KLOG_TEST_SWAPS", "1"))
JAVA_TOPIC: Final = "java"
JAVA: Final = [(JAVA_TOPIC, number) for number in range(INPUT_PARTITIONS)]

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(1200 * SWAPS)]


def become(world: Cluster, kind: Kind) -> None:
    """Restarts broker after broker as another program. Each stop is clean."""
    for broker_id, member in world.members.items():
        world.wait_for_full_isr()
        member.stop()
        world.start(broker_id, kind=kind)
    world.wait_for_full_isr()


def test_kafka_becomes_klog_and_kafka_again_under_load(tmp_path: Path, kafka3: KafkaPeer) -> None:
    other = Kind.KAFKA if kinds("klog") == [Kind.KAFKA] * 3 else Kind.KLOG
    with cluster(tmp_path, kafka3, [Kind.KAFKA] * 3) as world:
        world.start()
        world.create({INPUT: INPUT_PARTITIONS, JAVA_TOPIC: INPUT_PARTITIONS})
        java = JavaClients(kafka3, tmp_path, world.bootstrap, JAVA_TOPIC, INPUT_PARTITIONS, "java")
        try:
            producer = IdempotentProducer(world.bootstrap, "producer", SEED)
            reader = Reader(world.bootstrap, "reader", SEED, "readers")
            observer = Observer(world.bootstrap, "observer", SEED, "readers")
            for _ in range(SWAPS):
                for kind in (other, Kind.KAFKA):
                    counts = len(producer.acknowledged), len(reader.commits), len(java.acknowledged)
                    become(world, kind)
                    eventually(lambda: len(producer.acknowledged) > counts[0], 120)  # noqa: B023
                    eventually(lambda: len(reader.commits) > counts[1], 120)  # noqa: B023
                    eventually(lambda: len(java.acknowledged) > counts[2], 120)  # noqa: B023
            ended([producer])
            java.end_producer()
            logs = settled(lambda: logs_of(world.bootstrap, [*INPUTS, *JAVA]))
            # The consumers read everything, whichever broker was their coordinator meanwhile.
            eventually(lambda: all(set(logs[each]) <= reader.read.get(each, set()) for each in INPUTS), 120)
            eventually(lambda: all(set(logs[each]) <= set(java.read.get(each, {})) for each in JAVA), 120)
            ended([reader, observer])
            java.end()
        finally:
            java.kill()
        assert not producer.refused
        assert not producer.ended_by_errors
        assert list(checks.commits_lost(reader.commits, observer.observed)) == []
        assert list(checks.went_back(observer.observed)) == []
        assert java.errors == []
        assert len(java.acknowledged) > 100
        for acknowledged in (producer.acknowledged, java.acknowledged):
            check_acknowledged(acknowledged, logs)
        assert list(checks.duplicated(logs)) == []
        assert list(checks.disordered(logs)) == []
        for partition, records in java.read.items():
            assert records.items() <= logs[partition].items()
        world.stop()
        ends = {partition: max(log) + 1 for partition, log in logs.items() if log}
        assert list(differences(world.members.values(), ends)) == []
        text = "".join(each.klog_log for each in world.members.values())
        assert "Traceback" not in text
