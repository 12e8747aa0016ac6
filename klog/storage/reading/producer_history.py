"""What a log that is appended to knows of its producers in addition to the last batch of each.

Rules: Kafka's `ProducerStateEntry` (five batches for each producer, to recognise a retried one) and
`ProducerStateManager` (transactions whose markers are not replicated yet). A replay of the log collects it.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from klog.formats.wrapping import sequence_before

BATCHES_REMEMBERED: Final = 5
DEFAULT_PRODUCER_EXPIRATION_MS: Final = 86_400_000
"""Kafka's default of `producer.id.expiration.ms`."""


class SentBatch(NamedTuple):
    """One batch that a producer has written."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


def sent_batch(last_sequence: int, last_offset: int, offset_delta: int, timestamp: int) -> SentBatch:
    """The batch that ends with these values; sequence numbers wrap from 2^31-1 to 0."""
    first_sequence = last_sequence - offset_delta
    if first_sequence < 0 <= last_sequence:
        first_sequence = sequence_before(last_sequence, offset_delta)
    return SentBatch(first_sequence, last_sequence, last_offset - offset_delta, last_offset, timestamp)


class History:
    """The last batches of producers. `ended` are transactions: the offsets of their first record and
    marker.
    """

    def __init__(self) -> None:
        self.ended: list[tuple[int, int]] = []
        self._batches: dict[int, deque[tuple[int, SentBatch]]] = {}

    def sent(self, producer_id: int, epoch: int, batch: SentBatch) -> None:
        """Add a producer's next batch, written in that epoch."""
        batches = self._batches.get(producer_id)
        if batches is None:
            batches = self._batches[producer_id] = deque(maxlen=BATCHES_REMEMBERED)
        batches.append((epoch, batch))

    def batches(self, producer_id: int, epoch: int) -> list[SentBatch]:
        """The last batches that a producer has written in that epoch."""
        return [batch for written_in, batch in self._batches.get(producer_id, ()) if written_in == epoch]
