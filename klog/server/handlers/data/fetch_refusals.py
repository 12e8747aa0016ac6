"""An error of a partition in Kafka's three forms: they differ in what is null and what is empty."""

from __future__ import annotations

from typing import Final

from klog.protocol.error_codes import ErrorCode
from klog.protocol.fetch_response import PartitionFetched

_UNKNOWN: Final = -1
_NO_RECORDS: Final = b""


def not_served(partition: int, error: ErrorCode) -> PartitionFetched:
    """The request failed, or is too old for the partition: no transactions, null for records."""
    return PartitionFetched(partition, error, _UNKNOWN, aborted_transactions=(), records=None)


def not_known(partition: int, error: ErrorCode) -> PartitionFetched:
    """The cluster has no such partition: no transactions, no records."""
    return PartitionFetched(partition, error, _UNKNOWN, aborted_transactions=(), records=_NO_RECORDS)


def not_read(partition: int, error: ErrorCode) -> PartitionFetched:
    """The replica could not be read: null for transactions, no records."""
    return PartitionFetched(partition, error, _UNKNOWN, aborted_transactions=None, records=_NO_RECORDS)
