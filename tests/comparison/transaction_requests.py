"""The requests of transactions, in any version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from klog.protocol.apis import ApiKey
from tests.comparison.group_requests import Commit, Identity, committed_topics
from tests.comparison.messages import Ask, Part

TIMEOUT: Final = timedelta(seconds=600)
NO_ID: Final = -1
Topics = Mapping[str, tuple[int, ...]]


class Producer(NamedTuple):
    """A producer in one of its epochs; its id is a symbol, or a number that no producer has."""

    producer_id: str | int = NO_ID
    epoch: int = -1


NOBODY: Final = Producer()
NO_MEMBER: Final = Identity()


def init(
    version: int, transactional_id: str | None, expected: Producer = NOBODY, timeout: timedelta = TIMEOUT
) -> Ask:
    values = {
        "transactional_id": transactional_id,
        "transaction_timeout": timeout,
        "producer_id": expected.producer_id,
        "producer_epoch": expected.epoch,
    }
    return Ask(ApiKey.INIT_PRODUCER_ID, version, values)


class Addition(NamedTuple):
    """One transaction in AddPartitionsToTxn."""

    transactional_id: str
    producer: Producer
    topics: Topics
    verify_only: bool = False


def add_partitions(version: int, *additions: Addition) -> Ask:
    """Versions before 4 have room for the first transaction only."""
    first = additions[0]
    transactions = tuple(
        Part(
            "AddPartitionsToTxnTransaction",
            {
                "transactional_id": each.transactional_id,
                "producer_id": each.producer.producer_id,
                "producer_epoch": each.producer.epoch,
                "verify_only": each.verify_only,
                "topics": _topics(each.topics),
            },
        )
        for each in additions
    )
    values = {
        "v3_and_below_transactional_id": first.transactional_id,
        "v3_and_below_producer_id": first.producer.producer_id,
        "v3_and_below_producer_epoch": first.producer.epoch,
        "v3_and_below_topics": _topics(first.topics),
        "transactions": transactions,
    }
    return Ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, values)


def _topics(topics: Topics) -> tuple[Part, ...]:
    return tuple(
        Part("AddPartitionsToTxnTopic", {"name": name, "partitions": numbers})
        for name, numbers in topics.items()
    )


def _of(transactional_id: str, producer: Producer) -> dict[str, object]:
    return {
        "transactional_id": transactional_id,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
    }


def add_offsets(version: int, transactional_id: str, producer: Producer, group: str) -> Ask:
    return Ask(ApiKey.ADD_OFFSETS_TO_TXN, version, {**_of(transactional_id, producer), "group_id": group})


def commit_offsets(
    version: int,
    transactional_id: str,
    producer: Producer,
    group: str,
    commits: Sequence[Commit],
    who: Identity = NO_MEMBER,
) -> Ask:
    member = {
        "generation_id": who.generation_id,
        "member_id": who.member_id,
        "group_instance_id": who.instance_id,
    }
    values = {**_of(transactional_id, producer), "group_id": group, **member}
    values["topics"] = committed_topics("TxnOffsetCommit", commits)
    return Ask(ApiKey.TXN_OFFSET_COMMIT, version, values)


def end(version: int, transactional_id: str, producer: Producer, *, committed: bool) -> Ask:
    return Ask(ApiKey.END_TXN, version, {**_of(transactional_id, producer), "committed": committed})


def write_markers(
    version: int, producer: Producer, topics: Topics, *, committed: bool, coordinator_epoch: int
) -> Ask:
    parts = tuple(
        Part("WritableTxnMarkerTopic", {"name": name, "partition_indexes": numbers})
        for name, numbers in topics.items()
    )
    marker = {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "transaction_result": committed,
        "topics": parts,
        "coordinator_epoch": coordinator_epoch,
    }
    return Ask(ApiKey.WRITE_TXN_MARKERS, version, {"markers": (Part("WritableTxnMarker", marker),)})


def describe(*transactional_ids: str) -> Ask:
    return Ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": transactional_ids})


def list_transactions(
    version: int,
    states: tuple[str, ...] = (),
    producer_ids: tuple[str | int, ...] = (),
    longer_than_ms: int = -1,
) -> Ask:
    values = {
        "state_filters": states,
        "producer_id_filters": producer_ids,
        "duration_filter": longer_than_ms,
    }
    return Ask(ApiKey.LIST_TRANSACTIONS, version, values)


def describe_producers(topics: Topics) -> Ask:
    parts = tuple(
        Part("TopicRequest", {"name": name, "partition_indexes": numbers}) for name, numbers in topics.items()
    )
    return Ask(ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": parts})


def produce(
    version: int,
    transactional_id: str | None,
    producer: Producer,
    partition: tuple[str, int],
    sequence: int,
    *,
    is_transactional: bool = True,
) -> Ask:
    """One record."""
    topic, number = partition
    values = {
        "transactional_id": transactional_id,
        "topic": topic,
        "partition": number,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "base_sequence": sequence,
        "is_transactional": is_transactional,
    }
    return Ask(ApiKey.PRODUCE, version, values)


def fetch(version: int, partition: tuple[str, int], *, isolation: int) -> Ask:
    """All records of the partition. Versions from 13 on name topics by id."""
    topic, number = partition
    return Ask(
        ApiKey.FETCH, version, {"topic": topic, "partition": number, "offset": 0, "isolation": isolation}
    )
