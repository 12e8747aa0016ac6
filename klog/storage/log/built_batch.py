"""A batch that the broker has built itself: records of a coordinator, or a marker.

What `validation` would find out about its bytes is known, so only the limits of the topic are checked, and it
is written as a run of one batch (`BatchRun`). A test holds the effect equal to that of the
general append.
"""

from __future__ import annotations

from typing import Final

from klog.formats.constants import ENTRY_PREFIX_BYTES, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from klog.formats.packed import BATCH_HEADER_TO_LEADER_EPOCH
from klog.kernel.markers import Marker

_ALL_IN_SYNC: Final = -1


class BuiltBatch:
    """An uncompressed batch of magic 2 whose records have keys. All in-sync replicas acknowledge it.

    `timestamp_ms` is that of every record. `marker` is the transaction marker of a producer in the batch.
    """

    __slots__ = (
        "_batch",
        "has_producer_ids",
        "largest_size_bytes",
        "last_size_bytes",
        "marker",
        "max_timestamp",
        "max_timestamp_records",
        "producer_epoch",
        "producer_id",
        "records",
        "size_bytes",
        "smallest_timestamp",
    )

    acks: Final = _ALL_IN_SYNC
    frames: Final = 1
    keyless: Final = False
    is_transactional: Final = False  # a marker ends a transaction and begins none

    def __init__(
        self,
        batch: bytearray,
        timestamp_ms: int,
        records: int = 1,
        marker: Marker | None = None,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
    ) -> None:
        """The batch is changed when it is written."""
        self._batch = batch
        self.size_bytes = self.last_size_bytes = self.largest_size_bytes = len(batch)
        self.smallest_timestamp = self.max_timestamp = timestamp_ms
        self.records = self.max_timestamp_records = records
        self.marker = marker
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.has_producer_ids = producer_id >= 0

    def data(self, first_offset: int, leader_epoch: int) -> bytearray:
        """The batch with its offset and the leader epoch."""
        batch = self._batch
        follows = len(batch) - ENTRY_PREFIX_BYTES
        BATCH_HEADER_TO_LEADER_EPOCH.pack_into(batch, 0, first_offset, follows, leader_epoch)
        return batch

    def batch(self, number: int) -> tuple[int, int, int, int, int, int]:
        """Records, timestamp, producer id and epoch, base sequence and size of the batch, which is number 0.

        Raises IndexError for another one.
        """
        if number:
            raise IndexError(f"batch {number} of 1")
        producer = self.producer_id, self.producer_epoch, NO_SEQUENCE
        return self.records, self.max_timestamp, *producer, self.size_bytes

    def view(self) -> memoryview:
        """The bytes of the batch, to be changed by the general append."""
        return memoryview(self._batch)
