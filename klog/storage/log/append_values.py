"""The values of an append: its origin, the batches as they are written, and refusals."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from klog.formats.constants import CONTROL_BIT, TRANSACTIONAL_BIT
from klog.formats.errors import DecompressionLimitError, FormatError, KlogError
from klog.storage.log.batch_run import BatchRun, has_producers


class Origin(Enum):
    """Who appends: a client, one of the broker's coordinators, or a follower that copies its leader."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


class RecordError(NamedTuple):
    """One bad record, by its index in the batch (KIP-467)."""

    record_index: int
    what: str


class AppendError(KlogError):
    """Records are refused.

    `error` is the name of Kafka's error code; `record_errors` names single bad records.
    """

    def __init__(self, error: str, what: str, record_errors: tuple[RecordError, ...] = ()) -> None:
        super().__init__(what)
        self.error = error
        self.record_errors = record_errors


class OwnLimitError(AppendError):
    """Records are refused because of a limit that Kafka does not have; the broker logs it."""

    def __init__(self, what: str) -> None:
        super().__init__("MESSAGE_TOO_LARGE", what)


def decompression_refused(error: FormatError) -> AppendError:
    """The refusal of a block that cannot be decompressed.

    The checksum matches, so the producer made the block like this, and a retry would not help.
    """
    if isinstance(error, DecompressionLimitError):
        return OwnLimitError(error.what)
    return AppendError("UNKNOWN_SERVER_ERROR", error.what)


class UnexpectedOffsetError(AppendError):
    """Batches `first_offset` to `last_offset` from a leader that do not continue the follower's log."""

    def __init__(self, what: str, first_offset: int, last_offset: int) -> None:
        super().__init__("UNKNOWN_SERVER_ERROR", what)
        self.first_offset = first_offset
        self.last_offset = last_offset


class BatchInfo(NamedTuple):
    """One batch as it is written. `position` is its position in the data that is appended."""

    first_offset: int
    last_offset: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    attributes: int
    size: int
    leader_epoch: int
    position: int = 0

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Whether it is a marker."""
        return bool(self.attributes & CONTROL_BIT)


def run_batches(run: BatchRun, first_offset: int, leader_epoch: int) -> list[BatchInfo]:
    """The batches of a run as they stand in the log from `first_offset` on."""
    batches: list[BatchInfo] = []
    position = 0
    for number in range(run.frames):
        batch = run_batch(run, number, first_offset, leader_epoch, position)
        batches.append(batch)
        first_offset = batch.last_offset + 1
        position += batch.size
    return batches


def run_batch(
    run: BatchRun, number: int, first_offset: int, leader_epoch: int, position: int = 0
) -> BatchInfo:
    """One batch of a run as it stands in the log from `first_offset` on."""
    records, max_timestamp, producer_id, epoch, sequence, size = run.batch(number)
    last_offset = first_offset + records - 1
    is_transactional = has_producers(run) and run.is_transactional
    return BatchInfo(
        first_offset,
        last_offset,
        max_timestamp,
        producer_id,
        epoch,
        sequence,
        TRANSACTIONAL_BIT if is_transactional else 0,
        size,
        leader_epoch,
        position,
    )


class Validated(NamedTuple):
    """Records that are ready to be written.

    `data` holds the batches; `log_append_time_ms` is -1 if the records keep their own times. `roll_offset`
    is the offset at which a new segment for this data may start, if the log ends before it. They are
    `converted` if they came in another message format or codec.
    """

    data: memoryview | bytearray
    batches: tuple[BatchInfo, ...]
    first_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time_ms: int
    roll_offset: int
    converted: bool = False
