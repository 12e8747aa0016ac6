"""What is seen of a broker, and which of it is equal on another one, for `backup_comparison`.

Records are read by librdkafka, batches from the files of the broker, quotas by Kafka's own command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from benchmarks.backup_load import GROUP, PARTITIONS, TOPICS, WAIT_S, await_true, quotas
from benchmarks.batch_headers import Batch, batches
from benchmarks.measure import BenchmarkError
from tests.peers.broker import KRaftBroker

Message = tuple[int | None, tuple[int, int], bytes | None, bytes | None, list[Any]]
"""Offset, timestamp with its type, key, value, headers."""
Partition = tuple[str, int]

EQUAL: Final = "yes"
DIFFERENT: Final = "no"


@dataclass(frozen=True)
class Seen:
    """All that is compared. `committed` and `uncommitted` are what the two kinds of readers get; `starts` are
    log start offsets; `groups` committed offsets with metadata. `batches` are those at or after the start.
    """

    committed: Mapping[Partition, list[Message]]
    uncommitted: Mapping[Partition, list[Message]]
    starts: Mapping[Partition, int]
    batches: Mapping[Partition, list[Batch]]
    topic_configs: Mapping[str, Mapping[str, str]]
    topic_ids: Mapping[str, str]
    groups: Mapping[Partition, tuple[int, str | None]]
    acls: frozenset[str]
    quotas: str


def stored_batches(logs: Path) -> dict[Partition, list[Batch]]:
    """The batches of all topics in a log directory."""
    names = [(topic, number) for topic in TOPICS for number in range(PARTITIONS)]
    return {each: batches(logs / f"{each[0]}-{each[1]}") for each in names}


def see(broker: KRaftBroker, stored: Mapping[Partition, list[Batch]] | None = None) -> Seen:
    """What there is of the topics. Batches are `stored`, by default those in the broker's directory."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    there = [topic for topic in TOPICS if topic in admin.list_topics(timeout=WAIT_S).topics]
    partitions = [(topic, number) for topic in there for number in range(PARTITIONS)]
    logs = Path(str(broker.config["log.dirs"]))
    starts = {each: _start(broker.bootstrap, *each) for each in partitions}
    stored = stored or stored_batches(logs)
    return Seen(
        {each: read(broker.bootstrap, *each, "read_committed") for each in partitions},
        {each: read(broker.bootstrap, *each, "read_uncommitted") for each in partitions},
        starts,
        {each: [one for one in stored[each] if one.last_offset >= starts[each]] for each in partitions},
        {topic: _own_configs(admin, topic) for topic in there},
        {topic: _topic_id(logs, topic) for topic in there},
        _committed_offsets(broker.bootstrap, partitions),
        frozenset(map(str, _acls(admin))),
        quotas(broker.peer, broker.bootstrap),
    )


def read(bootstrap: str, topic: str, partition: int, isolation: str) -> list[Message]:
    """All records that a reader gets, up to the end that it sees."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    found: list[Message] = []
    while (message := consumer.poll(WAIT_S)) is not None and message.error() is None:
        headers: list[Any] = list(message.headers() or ())
        found.append((message.offset(), message.timestamp(), message.key(), message.value(), headers))
    if message is None:
        raise BenchmarkError(f"{topic}-{partition} was not read within {WAIT_S} s")
    consumer.close()
    return found


def _start(bootstrap: str, topic: str, partition: int) -> int:
    """The log start offset. A broker that has just started may not lead yet."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    starts: list[int] = []

    def is_told() -> bool:
        try:
            starts.append(consumer.get_watermark_offsets(TopicPartition(topic, partition), WAIT_S)[0])
        except KafkaException:
            return False
        return True

    await_true(is_told, f"{topic}-{partition} has no leader")
    consumer.close()
    return starts[-1]


def _own_configs(admin: AdminClient, topic: str) -> dict[str, str]:
    """The configs that were set on a topic."""
    (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    of_topic = 1  # ConfigSource.DYNAMIC_TOPIC_CONFIG
    return {name: each.value for name, each in future.result(WAIT_S).items() if each.source == of_topic}


def _topic_id(logs: Path, topic: str) -> str:
    text = (logs / f"{topic}-0" / "partition.metadata").read_text()
    return text.partition("topic_id:")[2].strip()


def _committed_offsets(
    bootstrap: str, partitions: Iterable[Partition]
) -> dict[Partition, tuple[int, str | None]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    found = consumer.committed([TopicPartition(*each) for each in partitions], WAIT_S)
    consumer.close()
    return {(each.topic, each.partition): (each.offset, each.metadata) for each in found if each.offset >= 0}


def _acls(admin: AdminClient) -> list[Any]:
    every: list[Any] = [ResourceType.ANY, None, ResourcePatternType.ANY, None, None]
    anything = AclBindingFilter(*every, AclOperation.ANY, AclPermissionType.ANY)  # type: ignore[call-arg]
    return list(admin.describe_acls(anything).result(WAIT_S))


def verdicts(source: Seen, found: Seen) -> dict[str, str]:
    """For each property whether it came back equal. A partition that is missing makes all of it differ."""
    usual = [each for each in source.committed if each[0] != "open"]
    opened = [each for each in source.committed if each[0] == "open"]

    def of_readers(part: Callable[[Message], object], which: Iterable[Partition] = usual) -> str:
        return _verdict(
            [part(each) for each in source.committed[name]]
            == [part(each) for each in found.committed.get(name, [])]
            for name in which
        )

    def of_batches(part: Callable[[Batch], object]) -> str:
        """What the source's batches have, up to its end: markers that a restore adds come later."""
        return _verdict(
            [part(each) for each in theirs]
            == [part(each) for each in found.batches.get(name, [])][: len(theirs)]
            for name, theirs in source.batches.items()
        )

    return {
        "keys, values and order of records, for read_committed readers": of_readers(lambda each: each[2:4]),
        "timestamps": of_readers(lambda each: each[1], [each for each in usual if each[0] != "arrival"]),
        "timestamps of arrival (`LogAppendTime`)": of_readers(
            lambda each: each[1], [("arrival", number) for number in range(PARTITIONS)]
        ),
        "headers": of_readers(lambda each: each[4]),
        "records that were committed behind an open transaction": of_readers(lambda each: each[2:4], opened),
        "offsets": of_readers(lambda each: each[0]),
        "gaps of compacted logs": of_readers(
            lambda each: each[0], [("compacted", number) for number in range(PARTITIONS)]
        ),
        "log start offsets": _verdict([source.starts == found.starts]),
        "batches: their bytes": of_batches(lambda each: each.data),
        "their records as they were compressed": of_batches(lambda each: each.body),
        "their bounds": of_batches(lambda each: each.records),
        "their codecs": _codecs(source, found),
        "aborted records and markers": _aborted(source, found),
        "producer ids, epochs and sequences": of_batches(lambda each: each.producer),
        "leader epochs": of_batches(lambda each: each.leader_epoch),
        "committed offsets of groups": _verdict([_offsets(source) == _offsets(found)]),
        "the record that a group reads next": _verdict([_next_records(source) == _next_records(found)]),
        "metadata of committed offsets": _verdict([_texts(source) == _texts(found)]),
        "configs of topics": _verdict([source.topic_configs == found.topic_configs]),
        "topic ids": _verdict([source.topic_ids == found.topic_ids]),
        "ACLs": _verdict([source.acls == found.acls]),
        "quotas": _verdict([source.quotas == found.quotas]),
    }


def _verdict(holds: Iterable[bool]) -> str:
    return EQUAL if all(holds) else DIFFERENT


def _codecs(source: Seen, found: Seen) -> str:
    """Which codecs the batches of a partition have: where aborted records are missing, the same."""

    def codecs(seen: Seen, name: Partition) -> set[int]:
        return {each.codec for each in seen.batches.get(name, []) if not each.is_control}

    return _verdict(codecs(source, name) == codecs(found, name) for name in source.batches)


def _aborted(source: Seen, found: Seen) -> str:
    def part(seen: Seen, name: Partition) -> tuple[object, object]:
        control = [each.base_offset for each in seen.batches.get(name, []) if each.is_control]
        return [each[2:4] for each in seen.uncommitted.get(name, [])], control

    names = [("transactions", number) for number in range(PARTITIONS)]
    return _verdict(part(source, name) == part(found, name) for name in names)


def _offsets(seen: Seen) -> dict[Partition, int]:
    return {name: offset for name, (offset, _) in seen.groups.items()}


def _texts(seen: Seen) -> dict[Partition, str | None]:
    return {name: text for name, (_, text) in seen.groups.items()}


def _next_records(seen: Seen) -> dict[Partition, object]:
    """The first record that the group gets from where it is."""
    return {
        name: next((each[2:4] for each in seen.committed[name] if (each[0] or 0) >= offset), None)
        for name, (offset, _) in seen.groups.items()
    }
