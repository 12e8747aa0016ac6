"""What requests between brokers about transactions have in common."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode


def by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, tuple[int, ...]]]:
    """The numbers of partitions by topic, sorted."""
    return [
        (topic, tuple(each.partition for each in group))
        for topic, group in groupby(sorted(partitions), key=lambda each: each.topic)
    ]


def known_error(code: int) -> ErrorCode:
    """An error code of another broker; UNKNOWN_SERVER_ERROR if this version does not know it."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
