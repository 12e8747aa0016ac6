"""Counts requests, records and bytes by topic, for the metrics.

Rules: Kafka's `BrokerTopicStats`. The handlers of Produce and Fetch and the coordinators count, without a
lock: each count is one addition without a call, and the interpreter does not switch threads inside it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final


class TopicStats:
    """The counts of one topic since the broker started or the topic came to it."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetches",
        "failed_produces",
        "fetch_conversions",
        "fetches",
        "messages_in",
        "produce_conversions",
        "produces",
        "reassignment_bytes_in",
        "reassignment_bytes_out",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        self.produces = 0
        self.fetches = 0
        self.failed_produces = 0
        self.failed_fetches = 0
        self.fetch_conversions = 0
        self.produce_conversions = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0
        self.reassignment_bytes_in = 0
        self.reassignment_bytes_out = 0

    def add(self, other: TopicStats) -> None:
        """Add the counts of another object."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class _Topics(dict[str, TopicStats]):
    """The counts of a topic are created at the first look-up."""

    def __missing__(self, topic: str) -> TopicStats:
        # If two threads come at once, both use the value that was set first.
        return self.setdefault(topic, TopicStats())


class BrokerTopicStats:
    """The counts of all topics by name, in `topics`. Look up only topics that exist."""

    def __init__(self) -> None:
        self.topics: Final[dict[str, TopicStats]] = _Topics()
        self._gone = TopicStats()

    def count_append(self, topic: str, records: int, size_bytes: int) -> None:
        """A coordinator has written records; as in Kafka, they count as those of producers do."""
        stats = self.topics[topic]
        stats.produces += 1
        stats.messages_in += records
        stats.bytes_in += size_bytes

    def read(self, hosted: Collection[str]) -> tuple[TopicStats, Mapping[str, TopicStats]]:
        """The sum over all topics there ever were, and the counts of those that this broker hosts.

        The others are forgotten, because topics that come and go would fill the memory. Only one thread may
        call this at a time.
        """
        for topic in [topic for topic in list(self.topics) if topic not in hosted]:
            self._gone.add(self.topics.pop(topic))
        total = TopicStats()
        total.add(self._gone)
        found = dict(self.topics)
        for counts in found.values():
            total.add(counts)
        return total, found
