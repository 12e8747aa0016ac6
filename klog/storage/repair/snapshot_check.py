"""Checks whether a producer snapshot fits the batches before its offset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from klog.storage.reading.producer_state import ProducerEntry


def contradicts(
    entries: Iterable[ProducerEntry], replayed: Mapping[int, ProducerEntry], offset: int, log_start: int
) -> bool:
    """Whether a snapshot at `offset` contradicts the producers that the batches before it show."""
    return any(entry_contradiction(one, replayed.get(one.producer_id), offset, log_start) for one in entries)


def entry_contradiction(
    entry: ProducerEntry, replayed: ProducerEntry | None, offset: int, log_start: int
) -> str | None:
    """The contradiction between a snapshot's entry and the batches before `offset`, if there is one.

    The entry may know more than the batches: retention and cleaning remove batches, and brokers before 1.0
    counted markers as batches. It may know less of those below the log start offset, as Kafka rebuilds
    producers from there on (`UnifiedLog.rebuildProducerState`).
    """
    if entry.last_offset >= offset:
        return f"has last offset {entry.last_offset}, after the snapshot's own offset"
    if replayed is None:
        return None
    if entry.last_offset < replayed.last_offset >= log_start:
        return f"has last offset {entry.last_offset}, its last batch ends at {replayed.last_offset}"
    if entry.last_offset == replayed.last_offset and entry.epoch == replayed.epoch:
        if entry.last_sequence != replayed.last_sequence:
            return (
                f"has last sequence {entry.last_sequence}, its last batch ends with {replayed.last_sequence}"
            )
        if entry.txn_first_offset < 0 <= replayed.txn_first_offset:
            return f"has no open transaction, the log has one since offset {replayed.txn_first_offset}"
    return None
