"""What the coordinators' topics say after the cut, where it differs from what they said before. Pure.

`__transaction_state`: every transaction is over. What was decided is complete, and what was not is aborted.
The producer of the latter is fenced by the next epoch, as after a timeout of its transaction: it must not go
on with a transaction whose first half is gone. `__consumer_offsets`: no committed offset is beyond the
restored end of its partition, and topics that come back under new names have the offsets there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from klog.coordinator.groups.records import offset_key, offset_value
from klog.coordinator.groups.values import CommittedOffset
from klog.coordinator.transactions.records import TransactionRecord, transaction_key, transaction_value
from klog.coordinator.transactions.values import TransactionState
from klog.formats.constants import INT16_MAX
from klog.formats.names import PartitionKey, TopicPartition

KeyValue = tuple[bytes, bytes | None]

_ENDED: Final = {
    TransactionState.ONGOING: TransactionState.COMPLETE_ABORT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
}


def ended(record: TransactionRecord, moment_ms: int) -> TransactionRecord | None:
    """The record of an id whose transaction is ended by the cut; None if it has no open transaction."""
    state = _ENDED.get(record.state)
    if state is None:
        return None
    producer = record.producer
    if record.state is TransactionState.ONGOING:
        producer = producer._replace(epoch=min(producer.epoch + 1, INT16_MAX))
    return record._replace(
        producer=producer,
        state=state,
        partitions=frozenset(),
        last_update_ms=max(moment_ms, record.last_update_ms),
    )


def fenced_epochs(states: Iterable[TransactionRecord]) -> dict[int, int]:
    """The epochs that fence the producers of undecided transactions, by producer id."""
    return {
        record.producer.producer_id: after.producer.epoch
        for record in states
        if record.state is TransactionState.ONGOING and (after := ended(record, 0)) is not None
    }


def transaction_corrections(states: Mapping[str, TransactionRecord], moment_ms: int) -> list[KeyValue]:
    """The records that end the open transactions of a partition of `__transaction_state`."""
    return [
        (transaction_key(transactional_id), transaction_value(after))
        for transactional_id, record in sorted(states.items())
        if (after := ended(record, moment_ms)) is not None
    ]


def offset_corrections(
    group_id: str,
    offsets: Mapping[PartitionKey, CommittedOffset],
    ends: Mapping[TopicPartition, int],
    names: Mapping[str, str],
) -> list[KeyValue]:
    """The records that correct the offsets of a group.

    `ends` are those of the restored partitions, under the names that they have now; `names` has the new name
    of each topic that was renamed. The offsets of a topic that was not restored stay.
    """
    corrections: list[KeyValue] = []
    for (topic, number), committed in sorted(offsets.items()):
        target = TopicPartition(names.get(topic, topic), number)
        offset = min(committed.offset, ends.get(target, committed.offset))
        moved = target.topic != topic and target in ends
        if moved and TopicPartition(topic, number) not in ends:
            corrections.append((offset_key(group_id, (topic, number)), None))
        if moved or offset != committed.offset:
            value = offset_value(committed._replace(offset=offset))
            corrections.append((offset_key(group_id, target), value))
    return corrections
