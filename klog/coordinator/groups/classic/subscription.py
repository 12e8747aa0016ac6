"""Reads the topics that a consumer subscribes to from its JoinGroup metadata.

Rules: Kafka's ConsumerProtocolSubscription. Every version begins with the fields of version 0: the version
and the topics.
"""

from __future__ import annotations

from collections.abc import Iterable

from klog.coordinator.groups.values import CONSUMER_PROTOCOL
from klog.formats.errors import FormatError
from klog.formats.packed import INT16, INT32


def subscribed_topics(protocol_type: str | None, metadata: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all members; None if they are not known, as for other protocols than consumers'."""
    if protocol_type != CONSUMER_PROTOCOL:
        return None
    topics: set[str] = set()
    try:
        for each in metadata:
            topics.update(_topics(each))
    except FormatError:
        return None
    return frozenset(topics)


def _topics(metadata: bytes) -> Iterable[str]:
    if len(metadata) < INT16.size + INT32.size or INT16.unpack_from(metadata)[0] < 0:
        raise FormatError("a subscription has no topics")
    (count,) = INT32.unpack_from(metadata, INT16.size)
    position = INT16.size + INT32.size
    # A topic takes at least its length.
    if not 0 <= count <= len(metadata):
        raise FormatError(f"a subscription has {count} topics")
    topics = []
    for _ in range(count):
        start = position + INT16.size
        if start > len(metadata):
            raise FormatError("a subscription ends too early")
        (size,) = INT16.unpack_from(metadata, position)
        position = start + size
        if size < 0 or position > len(metadata):
            raise FormatError("a subscription ends too early")
        topics.append(metadata[start:position].decode("utf-8", "replace"))
    return topics
