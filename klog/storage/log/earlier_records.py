"""Records of a log that are not in its directory: all those below its first segment.

Kafka calls that tiered storage (KIP-405). klog has it where a log is served from elsewhere without a copy, as
in `klog serve --read-only` of a backup. Such records never change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from klog.formats.errors import KlogError, StorageError
from klog.storage.log.cold_reads import ColdReadError
from klog.storage.log.open_file import OpenFile
from klog.storage.reading.producer_state import AbortedTxn


class TimedOffset(NamedTuple):
    """A record's timestamp and offset; `leader_epoch` is -1 if it is not known."""

    timestamp: int
    offset: int
    leader_epoch: int


class EarlierRead(NamedTuple):
    """Batches as a range of a file; `base_offset` is that of the file's first batch."""

    file: OpenFile
    position: int
    size: int
    base_offset: int
    aborted: tuple[AbortedTxn, ...] = ()


class UnreadableRecordsError(StorageError):
    """These records cannot be read now. The log's directory is all right, and so are its other records."""


class FarReadError(ColdReadError):
    """The records have to be fetched first. `fetch` does that."""

    def __init__(self, path: str, fetch: Callable[[], object]) -> None:
        super().__init__(path, 0, 0)
        self._fetch = fetch

    def load(self) -> None:
        """Fetch them. A read that may wait will meet the errors, and say so."""
        try:
            self._fetch()
        except (KlogError, OSError):
            return


class EarlierRecords(Protocol):
    """The earlier records of one log. Methods raise `UnreadableRecordsError`, and `CorruptRecordError` for
    damaged ones. They are safe for threads.
    """

    start_offset: int
    """Where the log starts."""
    size_bytes: int
    """The bytes of all batches, about."""

    def read(
        self,
        offset: int,
        max_bytes: int,
        limit_offset: int,
        *,
        at_least_one: bool,
        committed: bool,
        may_wait: bool,
    ) -> EarlierRead | None:
        """As `ReadableLog.read`; None if there is nothing. Raises `FarReadError` if it may not wait."""

    def first_at_or_after(self, timestamp: int) -> TimedOffset | None:
        """The first record whose timestamp is at least `timestamp`; None if there is none."""

    def with_max_timestamp(self) -> TimedOffset | None:
        """The first record with the largest timestamp; None if there is none, or it has magic 0."""
