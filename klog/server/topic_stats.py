"""What goes in and out by topic: counted by the handlers of Produce and Fetch, read by the metrics.

Kafka's `BrokerTopicStats`. No lock is taken: each count is one addition without a call in it, between whose
parts the interpreter does not hand over to another thread.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final


class TopicStats:
    """The counts of one topic, since it came to this broker or the broker started."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "messages_in",
        "produces",
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
        self.replication_bytes_out = 0

    def add(self, other: TopicStats) -> None:
        """Take in what another one has counted."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class _Topics(dict[str, TopicStats]):
    """A topic's counts begin when somebody first looks for them."""

    def __missing__(self, topic: str) -> TopicStats:
        # Of two threads that come at once, one wins, and both count with the winner's.
        return self.setdefault(topic, TopicStats())


class BrokerTopicStats:
    """The counts of all topics: `topics[name]` are one's. Ask only for topics that exist."""

    def __init__(self) -> None:
        self.topics: Final[dict[str, TopicStats]] = _Topics()
        self._gone = TopicStats()

    def read(self, hosted: Collection[str]) -> tuple[TopicStats, Mapping[str, TopicStats]]:
        """The sum over all topics there ever were, and the counts of those that this broker hosts.

        The others are forgotten: topics that come and go would otherwise fill the memory. One caller at a
        time.
        """
        for topic in [topic for topic in list(self.topics) if topic not in hosted]:
            self._gone.add(self.topics.pop(topic))
        total = TopicStats()
        total.add(self._gone)
        found = dict(self.topics)
        for counts in found.values():
            total.add(counts)
        return total, found
