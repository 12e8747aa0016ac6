"""Consecutive Produce frames of the usual kind that go to one partition: read, placed and answered together.

A usual frame is a Produce request of version 7 to 11 with one batch of magic 2 for one partition: no tagged
fields, not compressed, its checksum and records valid. It has a transactional id if its batch belongs to a
transaction of a producer, and else none. Such a batch stands in the log as it came, but for its base offset
and its leader epoch, which no checksum covers. Every other frame ends the run and is left to the general
reader, which also finds the error to answer.
"""

class ProduceRun:
    """A run of frames. `read` fills it, and what was read before is forgotten.

    Attributes: `frames` is how many there are, `end` the position after the last one; `version`, `acks`,
    `topic` and `transactional_id` (bytes, the id None without a transaction) and `partition` are what they
    have in common, and the producer of a transaction. Of all batches together: `size_bytes`, `records`,
    `smallest_timestamp` and `max_timestamp` in ms (-1: no record has one), `keyless` (a record has no key),
    `has_producer_ids`. `max_timestamp_records` counts the records up to the end of the batch that brought the
    maximum first. `last_size_bytes` and `largest_size_bytes` are of single batches. `is_transactional`: all
    batches belong to a transaction; else none does.
    """

    frames: int
    version: int
    acks: int
    partition: int
    end: int
    size_bytes: int
    last_size_bytes: int
    largest_size_bytes: int
    records: int
    smallest_timestamp: int
    max_timestamp: int
    max_timestamp_records: int
    keyless: bool
    has_producer_ids: bool

    @property
    def topic(self) -> bytes: ...
    @property
    def is_transactional(self) -> bool: ...
    @property
    def transactional_id(self) -> bytes | None: ...
    def read(self, buffer: bytearray, start: int, end: int) -> int:
        """Read as many whole frames as there are from `start` on, before `end`; returns how many.

        The buffer is remembered, not copied: `topic` and `data` must be asked for before it changes.
        """

    def keep(self, frames: int) -> None:
        """Forget all but the first frames. Raises IndexError if there are not so many."""

    def batch(self, number: int) -> tuple[int, int, int, int, int, int]:
        """Records, maximum timestamp, producer id and epoch, base sequence and size of one batch.

        Raises IndexError.
        """

    def data(self, first_offset: int, leader_epoch: int) -> bytes:
        """A copy of all batches, with their offsets and the leader epoch.

        Raises IndexError if the buffer has become smaller.
        """

    def answers(self, template: bytes, numbers_at: int, first_offset: int, log_start_offset: int) -> bytes:
        """An answer for every frame: the template with the frame's correlation id and base offset.

        `numbers_at` is where partition, error, base offset, append time and log start offset stand in it.
        Raises IndexError if they cannot stand there.
        """
