"""Consecutive OffsetCommit frames of the usual kind from one member: read, written and answered together.

A usual frame is an OffsetCommit request of version 2 to 9 with some topics and partitions, each named once:
all its text is ASCII, there are no tagged fields and no retention time. Such a request becomes one batch of
`__consumer_offsets`, as in Kafka: with base sequence 0, and one record for each offset. Every other frame
ends the run and is left to the general reader, which also finds the error to answer.
"""

class CommitRun:
    """A run of frames. `read` fills it, and what was read before is forgotten.

    Attributes: `frames` is how many there are, `records` how many offsets are in them, `end` the position
    after the last one; `version`, `group`, `generation`, `member` and `instance` (None: not static) are what
    they have in common. `largest_metadata_bytes` is that of an offset.

    After `stamp` it also has what `PartitionLog.append_run` asks of a run of batches: see `ProduceRun`.
    """

    frames: int
    version: int
    acks: int
    generation: int
    largest_metadata_bytes: int
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
    def group(self) -> str: ...
    @property
    def member(self) -> str: ...
    @property
    def instance(self) -> str | None: ...
    def read(self, buffer: bytearray, start: int, end: int) -> int:
        """Read as many whole frames as there are from `start` on, before `end`; returns how many.

        The buffer is remembered: the other methods must be called before it changes.
        """

    def partitions(self) -> list[tuple[bytes, int]]:
        """Topic and partition of each offset. Raises IndexError if the buffer has become smaller."""

    def offsets(self) -> list[tuple[int, int, str]]:
        """Each offset with its leader epoch and metadata.

        Raises IndexError if the buffer has become smaller.
        """

    def stamp(self, acks: int, now_ms: int) -> None:
        """Make the batches, with this time. Raises IndexError if the buffer has become smaller."""

    def batch(self, number: int) -> tuple[int, int, int, int, int, int]:
        """Records, maximum timestamp, producer id and epoch, base sequence and size of one batch.

        Raises IndexError.
        """

    def data(self, first_offset: int, leader_epoch: int) -> bytes:
        """The batches, with their offsets and the leader epoch. They are given away: once only."""

    def answers(self) -> bytes:
        """The answers to all frames, without errors. Raises IndexError if the buffer has become smaller."""
