"""Read-only brokers in this process: of a moment of a repository, and of what a restore to it gives."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from klog.backup.keys import UserKey
from klog.backup.repository import Repository
from klog.backup.restoring.request import RestoreRequest, plan_of, select
from klog.backup.restoring.run import TargetOptions, run_restore
from klog.commands.servers.read_only import opened_repository
from klog.formats.names import TopicPartition as Name
from klog.kernel import kernel
from klog.kernel.columns import BatchTable
from klog.server.read_only.opening import read_only_options
from klog.server.startup.broker import Broker
from klog.server.startup.config_reading import read_config

LISTENER = ("listeners=PLAINTEXT://127.0.0.1:0", "group.initial.rebalance.delay.ms=0")
READER = "reader"
CLUSTER_ID = "WnrRcUjsTR6xk3yBsWKJjQ"


@contextmanager
def served_repository(place: str, request: RestoreRequest, key: UserKey | None = None) -> Iterator[Broker]:
    """A broker that serves a repository as it was at a moment."""
    with ExitStack() as closing:
        opened = closing.enter_context(opened_repository(place, request, LISTENER, key))
        broker = Broker(read_config(None, opened.options), is_read_only=True, earlier=opened.earlier)
        closing.callback(broker.stop)
        yield broker


@contextmanager
def served_restore(repository: Repository, request: RestoreRequest, path: Path) -> Iterator[Broker]:
    """A broker that serves what a restore to the moment has written."""
    selected = select(repository, request)
    plan = plan_of(repository, request, selected)  # of all pieces
    run_restore(repository, plan, selected.manifest, TargetOptions(str(path), CLUSTER_ID, brokers=(1,)))
    options = read_config(None, (*LISTENER, *read_only_options(str(path), 1)))
    broker = Broker(options, is_read_only=True)
    try:
        yield broker
    finally:
        broker.stop()


def address(broker: Broker) -> str:
    endpoint = broker.registration().endpoints[0]
    return f"{endpoint.host}:{endpoint.port}"


def batches(broker: Broker, topic: str, partition: int) -> bytes:
    """All batches of a partition, one read after the other."""
    log = broker.logs.get(Name(topic, partition))
    assert log is not None
    offset, found = log.log_start_offset, b""
    while offset < log.log_end_offset:
        read = log.read(offset, 1, log.log_end_offset, at_least_one=True)
        if read.file is None:
            break
        data = os.pread(read.file.fileno(), read.size, read.position)
        table = BatchTable()
        kernel.scan(data, 0, True, table)
        found += data
        offset = table.last_offset[0] + 1
    return found


def consumed(
    broker: Broker, topic: str, starts: Mapping[int, int], isolation: str
) -> dict[int, list[tuple[Any, ...]]]:
    """What a consumer gets of partitions from these offsets to their ends."""
    consumer = Consumer(
        {
            "bootstrap.servers": address(broker),
            "group.id": READER,
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 10,
        }
    )
    found: dict[int, list[tuple[Any, ...]]] = {each: [] for each in starts}
    ended: set[int] = set()
    try:
        consumer.assign([TopicPartition(topic, *each) for each in starts.items()])
        while len(ended) < len(starts):
            message = consumer.poll(20)
            assert message is not None, "the consumer got no answer"
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
                continue
            found[message.partition()].append(
                (
                    message.offset(),
                    message.key(),
                    message.value(),
                    message.timestamp(),
                    message.headers(),
                    message.leader_epoch(),
                )
            )
    finally:
        consumer.close()
    return found


def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": address(broker)})


def group_offsets(broker: Broker) -> dict[str, dict[tuple[str, int], int]]:
    """The committed offsets of all groups."""
    client = admin(broker)
    found = {}
    for group in {each.group_id for each in client.list_consumer_groups().result(20).valid} - {READER}:
        (answer,) = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
        found[group] = {
            (each.topic, each.partition): each.offset for each in answer.result(20).topic_partitions
        }
    return found


def offsets_at(broker: Broker, asked: Mapping[tuple[str, int], OffsetSpec]) -> dict[tuple[str, int], Any]:
    """Offset, timestamp and leader epoch that ListOffsets answers for partitions."""
    client = admin(broker)
    answers = client.list_offsets({TopicPartition(*each): spec for each, spec in asked.items()})
    found = {(each.topic, each.partition): answer.result(20) for each, answer in answers.items()}
    return {each: (at.offset, at.timestamp, at.leader_epoch) for each, at in found.items()}
