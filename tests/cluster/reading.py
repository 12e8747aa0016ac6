"""Reads what a cluster serves, while its brokers may still name earlier leaders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException

from tests.cluster.world import Cluster
from tests.swap.clients import Record, Written, read
from tests.waiting import eventually

Answer = TypeVar("Answer")

# A broker whose metadata is a moment old names a leader that is none any more, or none yet: a new leader may
# not know that it is one, or how far its followers are.
_OLD_METADATA: Final = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError._TRANSPORT,
)


def check(world: Cluster, written: Written) -> None:
    """Checks that exactly these records are served.

    A new leader serves the last records only when it knows how far its followers are, and a reader takes its
    high watermark for the end until then.
    """
    reads: list[Written] = []

    def is_read_to_the_end() -> bool:
        reads.append(read_all(world, written))
        return all(max(records) in reads[-1][partition] for partition, records in written.items() if records)

    eventually(
        is_read_to_the_end, problem=lambda: "the last acknowledged record of a partition has not been served"
    )
    found = reads[-1]
    written = {
        partition: {
            offset: _sent_once(record, found[partition].get(offset)) for offset, record in records.items()
        }
        for partition, records in written.items()
    }
    assert found == written, "; ".join(
        f"{partition} at {offset}: {found[partition].get(offset)} is served,"
        f" {records.get(offset)} is acknowledged"
        for partition, records in written.items()
        for offset in sorted({*found[partition], *records})
        if found[partition].get(offset) != records.get(offset)
    )


def _sent_once(acknowledged: Record, served: Record | None) -> Record:
    """A record as it is acknowledged if it is sent once.

    One that the producer has sent again is a duplicate. It is acknowledged with its own timestamp as the time
    of its append, also by Kafka (`UnifiedLog.append`).
    """
    if served is None or acknowledged.timestamp != (TIMESTAMP_LOG_APPEND_TIME, served.timestamp[1]):
        return acknowledged
    return acknowledged._replace(timestamp=served.timestamp)


def read_all(world: Cluster, partitions: Written) -> Written:
    return settled(lambda: read(world.bootstrap, partitions))


def settled(ask: Callable[[], Answer]) -> Answer:
    """The first answer that does not come from old metadata."""

    def answered() -> bool:
        try:
            found.append(ask())
        except KafkaException as error:
            if error.args[0].code() in _OLD_METADATA:
                return False
            raise
        return True

    found: list[Answer] = []
    eventually(answered)
    return found[-1]
