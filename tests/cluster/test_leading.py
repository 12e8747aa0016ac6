"""Three klog brokers: what a leader does for producers, consumers and followers, over real connections."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import klog.testing
from klog.client.fetcher import fetch, partitions_of, topics_of
from klog.protocol.channel import Channel
from klog.protocol.error_codes import ErrorCode
from klog.protocol.fetch_request import FetchPartition, FetchRequest
from klog.protocol.fetch_response import PartitionFetched
from klog.testing import KlogCluster
from klog.testing.process import ConfigValue
from tests.peers.kafka import QUICK_FLAGS, KafkaPeer
from tests.waiting import eventually

TIMEOUT_S = 120
DEBUG_LOG = """
log4j.rootLogger=WARN, stderr
log4j.logger.org.apache.kafka.clients.consumer.internals=DEBUG
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.Target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=%m%n
"""
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class Cluster(KlogCluster):
    """Each broker is in a rack of its own."""

    def _addresses(self, broker_id: int, port: int) -> dict[str, ConfigValue]:
        return {**super()._addresses(broker_id, port), "broker.rack": rack_of(broker_id)}


def rack_of(broker_id: int) -> str:
    return f"rack-{broker_id}"


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    made = Cluster(3, {"replica.selector.class": SELECTOR, "replica.lag.time.max.ms": 3000})
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture
def cluster(shared: Cluster) -> Cluster:
    shared.restore()
    shared.await_members()
    return shared


def made(cluster: Cluster, topic: str, **config: ConfigValue) -> int:
    """A topic of one partition, with all replicas in sync; returns its leader."""
    cluster.create_topic(topic, 1, config={name.replace("_", "."): value for name, value in config.items()})
    cluster.await_in_sync(topic)
    return cluster.leader(topic)


def produce(
    cluster: KlogCluster, topic: str, values: Sequence[str], partition: int = 0, **config
) -> list[KafkaError | None]:
    """Write with acks=all; the outcome of each record."""
    outcomes: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", **config})
    for value in values:
        producer.produce(
            topic, value, partition=partition, on_delivery=lambda error, _: outcomes.append(error)
        )
    assert not producer.flush(TIMEOUT_S)
    return outcomes


def consumed(cluster: Cluster, topic: str, count: int, **config) -> list[str]:
    """So many records from the beginning."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "unused", **config})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[str] = []

        def is_complete() -> bool:
            messages = consumer.consume(count - len(found), 1)
            found.extend(each.value().decode() for each in messages if each.error() is None)
            return len(found) == count

        eventually(is_complete, TIMEOUT_S)
        return found
    finally:
        consumer.close()


def fetched(cluster: Cluster, broker_id: int, topic: str, **fields) -> PartitionFetched:
    """What one broker answers to a consumer that reads from the beginning."""
    host, port = cluster.brokers[broker_id].bootstrap_servers.split(":")
    topics = topics_of([(topic, FetchPartition(0, -1, 0, -1, -1, 1 << 20))])
    with Channel(host, int(port), timeout_ms=60_000) as channel:
        response = fetch(channel, FetchRequest(500, 1, 1 << 20, 0, topics, **fields), 60_000)
    ((_, found),) = partitions_of(response)
    return found


def await_high_watermark(cluster: Cluster, broker_id: int, topic: str, offset: int) -> None:
    """A follower learns the high watermark with its next fetch."""
    eventually(lambda: fetched(cluster, broker_id, topic).high_watermark == offset, TIMEOUT_S)


def await_preferred(cluster: Cluster, leader: int, topic: str, rack: str, expected: int) -> None:
    """A follower that was stalled for longer than `replica.lag.time.max.ms` is named when it is back."""
    eventually(lambda: fetched(cluster, leader, topic, rack_id=rack).preferred_read_replica == expected)


def deleted(admin: AdminClient, topic: str, offset: int, timeout_s: float = TIMEOUT_S) -> int:
    """Delete the records below an offset; the low watermark after that. Raises KafkaException."""
    asked: Mapping[TopicPartition, object] = admin.delete_records(
        [TopicPartition(topic, 0, offset)], operation_timeout=timeout_s
    )
    (future,) = asked.values()
    low_watermark: int = future.result().low_watermark  # type: ignore[attr-defined]
    return low_watermark


def test_acknowledged_records_are_on_all_replicas(cluster: Cluster) -> None:
    made(cluster, "everywhere")
    values = [str(number) for number in range(500)]
    assert set(produce(cluster, "everywhere", values)) == {None}
    for broker_id in cluster.brokers:
        # A follower learns the high watermark with its next fetch.
        eventually(
            lambda broker_id=broker_id: fetched(cluster, broker_id, "everywhere").high_watermark == 500
        )
    assert consumed(cluster, "everywhere", 500) == values


def test_a_follower_that_hangs_leaves_the_isr_and_comes_back(cluster: Cluster) -> None:
    leader = made(cluster, "hanging", min_insync_replicas=2)
    hanging = next(each for each in cluster.in_sync("hanging") if each != leader)
    cluster.pause(hanging)
    assert produce(cluster, "hanging", ["while it hangs"]) == [None]
    eventually(lambda: hanging not in cluster.in_sync("hanging"), TIMEOUT_S)
    cluster.resume(hanging)
    cluster.await_in_sync("hanging", TIMEOUT_S)


def test_consumers_read_from_the_replica_in_their_rack(cluster: Cluster) -> None:
    leader = made(cluster, "near")
    values = [str(number) for number in range(100)]
    assert set(produce(cluster, "near", values)) == {None}
    for broker_id in cluster.brokers:
        rack = rack_of(broker_id)
        assert consumed(cluster, "near", 100, **{"client.rack": rack}) == values
        # A follower is named as soon as it has fetched, which it does all the time.
        expected = -1 if broker_id == leader else broker_id
        await_preferred(cluster, leader, "near", rack, expected)
        answer = fetched(cluster, leader, "near", rack_id=rack)
        assert answer.preferred_read_replica == expected
        assert bool(answer.records) == (broker_id == leader)
        await_high_watermark(cluster, broker_id, "near", 100)
        assert fetched(cluster, broker_id, "near").records
    assert fetched(cluster, leader, "near", rack_id="elsewhere").records


def test_records_are_deleted_everywhere_or_the_request_says_that_they_are_not(cluster: Cluster) -> None:
    leader = made(cluster, "trimmed")
    assert set(produce(cluster, "trimmed", ["v"] * 10)) == {None}
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    assert deleted(admin, "trimmed", 4) == 4
    for broker_id in cluster.brokers:
        assert fetched(cluster, broker_id, "trimmed").error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    hanging = next(each for each in cluster.brokers if each != leader)
    cluster.pause(hanging)
    with pytest.raises(KafkaException) as refused:
        deleted(admin, "trimmed", 6, timeout_s=1)
    assert refused.value.args[0].code() == KafkaError.REQUEST_TIMED_OUT
    cluster.resume(hanging)
    assert deleted(admin, "trimmed", 6) == 6


def test_too_few_in_sync_replicas_refuse_acks_all_until_there_are_enough(cluster: Cluster) -> None:
    leader = made(cluster, "few", min_insync_replicas=3)
    hanging = next(each for each in cluster.brokers if each != leader)
    cluster.pause(hanging)
    eventually(lambda: hanging not in cluster.in_sync("few"), TIMEOUT_S)
    (error,) = produce(cluster, "few", ["refused"], **{"message.timeout.ms": 2000})
    assert error is not None
    cluster.resume(hanging)
    cluster.await_in_sync("few", TIMEOUT_S)
    assert produce(cluster, "few", ["accepted"]) == [None]


def test_transactions_go_on_when_the_leader_is_killed(cluster: Cluster) -> None:
    leader = made(cluster, "transactional", min_insync_replicas=2)
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": "leading",
            "transaction.timeout.ms": 60_000,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    for number in range(6):
        producer.begin_transaction()
        for part in range(3):
            producer.produce("transactional", f"{number}.{part}")
        producer.flush(TIMEOUT_S)
        if number == 2:
            cluster.kill(leader)
        if number % 2:
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
    expected = [f"{number}.{part}" for number in (0, 2, 4) for part in range(3)]
    found = consumed(cluster, "transactional", len(expected), **{"isolation.level": "read_committed"})
    assert found == expected
    cluster.start(leader)
    cluster.await_in_sync("transactional", TIMEOUT_S)


def test_a_controller_that_stops_says_nothing_of_requests_to_itself(cluster: Cluster) -> None:
    cluster.create_topic("many", 30)
    cluster.await_in_sync("many")
    controller = cluster.controller()
    cluster.stop(controller)
    (_, _, stopping) = cluster.brokers[controller].log_text().rpartition("SIGTERM")
    assert "stopped cleanly" in stopping
    assert "is sent again" not in stopping
    cluster.start(controller)
    cluster.await_in_sync("many", TIMEOUT_S)


@pytest.mark.kafka
@pytest.mark.slow
def test_the_java_consumer_reads_from_the_replica_in_its_rack(
    cluster: Cluster, kafka3: KafkaPeer, tmp_path: Path
) -> None:
    """Its debug log says from which node it reads."""
    leader = made(cluster, "nearest")
    values = [f"value {number}" for number in range(200)]
    produce(cluster, "nearest", values)
    follower = next(each for each in cluster.brokers if each != leader)
    await_high_watermark(cluster, follower, "nearest", len(values))
    await_preferred(cluster, leader, "nearest", rack_of(follower), follower)
    logging = tmp_path / "log4j.properties"
    logging.write_text(DEBUG_LOG)
    done = kafka3.java(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", cluster.bootstrap_servers, "--topic", "nearest", "--from-beginning"),
        *("--max-messages", str(len(values)), "--consumer-property", f"client.rack={rack_of(follower)}"),
        jvm_flags=(*QUICK_FLAGS, f"-Dlog4j.configuration={logging.as_uri()}"),
    )
    assert done.stdout.decode().splitlines() == values
    log = done.stderr.decode()
    assert f"Updating preferred read replica for partition nearest-0 to {follower}" in log
    assert re.search(
        rf"fetch request for partition nearest-0 .*\(id: {follower} rack: {rack_of(follower)}\)", log
    )


def test_a_log_directory_that_fails_moves_the_leaders_in_it_and_nothing_else() -> None:
    with klog.testing.cluster(2, {"min.insync.replicas": 1}, log_dir_count=2) as cluster:
        cluster.create_topic("t", 4, config={"segment.bytes": 500})
        cluster.await_in_sync("t")
        leaders = {number: cluster.leader("t", number) for number in range(4)}
        failing = leaders[0]
        directory = next(each for each in cluster.brokers[failing].log_dirs if (each / "t-0").exists())
        lost = {number for number in leaders if (directory / f"t-{number}").exists()}
        directory.rename(f"{directory}-gone")
        directory.write_text("a file where the next segment would be")

        def has_moved() -> bool:
            produce(cluster, "t", ["v" * 200], partition=0)
            return cluster.leader("t", 0) != failing

        eventually(has_moved, TIMEOUT_S)
        eventually(lambda: all(cluster.leader("t", each) != failing for each in lost), TIMEOUT_S)
        for number in leaders.keys() - lost:
            assert cluster.leader("t", number) == leaders[number]
            assert set(cluster.in_sync("t", number)) == {0, 1}
        assert cluster.brokers[failing].pid is not None
