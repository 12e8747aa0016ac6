"""The effects that a transactional id asks for: answers, records and markers, in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from klog.coordinator.transactions.records import TransactionRecord
from klog.protocol.error_codes import ErrorCode

Done: TypeAlias = Callable[[ErrorCode], None]


class Reply(NamedTuple):
    """Call `send`: it answers a request."""

    send: Callable[[], None]


class Write(NamedTuple):
    """Write a record, then call `on_written` with the client's error and the time (ms), under the lock.

    A record that completes a transaction is written again later if it cannot be written now.
    """

    record: TransactionRecord
    on_written: Callable[[ErrorCode, int], None]
    completes: bool = False


class SendMarkers(NamedTuple):
    """Write the markers of a transaction, and give `markers_written` its record and what is done."""

    prepared: TransactionRecord


Effect: TypeAlias = Reply | Write | SendMarkers
