"""What the log asks of batches that are written as they are, with one write.

The readers of usual frames and the coordinators provide such runs; the log knows none of their messages.
"""

from __future__ import annotations

from typing import Protocol, TypeGuard


class BatchRun(Protocol):
    """Uncompressed batches of magic 2, each one frame, that follow each other in one partition.

    All of them are asked for with the same `acks`. `size_bytes` and `records` are of all batches together,
    `last_size_bytes` and `largest_size_bytes` of single ones. Timestamps are in ms, and -1 if no record has
    one. `max_timestamp_records` counts the records up to the end of the batch that brought the maximum first.
    `keyless`: a record has no key. `has_producer_ids`: a batch is of an idempotent producer.
    """

    records: int
    size_bytes: int
    last_size_bytes: int
    largest_size_bytes: int
    smallest_timestamp: int
    max_timestamp: int
    max_timestamp_records: int
    has_producer_ids: bool

    # Constants in runs of some kinds.
    @property
    def frames(self) -> int: ...
    @property
    def acks(self) -> int: ...
    @property
    def keyless(self) -> bool: ...

    def batch(self, number: int) -> tuple[int, int, int, int, int, int]:
        """Records, maximum timestamp, producer id and epoch, base sequence and size of one batch.

        Raises IndexError.
        """

    def data(self, first_offset: int, leader_epoch: int) -> bytes | bytearray:
        """The bytes of all batches, with their offsets and the leader epoch. Called once for each run."""


class ProducerRun(BatchRun, Protocol):
    """A run with batches of idempotent producers. It is cut before the first that is not simply the next."""

    @property
    def is_transactional(self) -> bool:
        """True if all batches are records of a transaction; else none is."""

    def keep(self, frames: int) -> None:
        """Forget all but the first batches. Raises IndexError if there are not so many."""


def has_producers(run: BatchRun) -> TypeGuard[ProducerRun]:
    """True if a batch of the run is of an idempotent producer."""
    return run.has_producer_ids
