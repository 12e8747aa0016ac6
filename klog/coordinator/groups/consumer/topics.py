"""The topics of the cluster as consumer groups see them, and the hash by which a change is noticed.

Rules: Kafka 4.1's metadata hash: XXH3 (64 bits) of each topic's id, name, partitions and their racks, and of
the hashes of all topics in the order of their names. A group's record keeps it, so a coordinator that loads
the group knows whether the topics have changed since.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cached_property
from typing import Final, NamedTuple

import xxhash

from klog.coordinator.groups.consumer.values import TopicId
from klog.formats.errors import FormatError
from klog.formats.names import decode_uuid
from klog.metadata.cache import ClusterSnapshot

_HASH_VERSION: Final = b"\0"
_UTF16: Final = "utf-16-le"
_SIGNED_BITS: Final = 64


class Topic(NamedTuple):
    """A topic that can be assigned."""

    topic_id: TopicId
    name: str
    partitions: int


class Topics:
    """All topics of one snapshot of the cluster. A new snapshot has a new `Topics`."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot = snapshot
        self._hashes: dict[str, int] = {}

    @cached_property
    def names(self) -> Collection[str]:
        """The names of all topics."""
        return self._snapshot.topics.keys()

    def get(self, name: str) -> Topic | None:
        """The topic of that name; None if there is none, or if it has no id."""
        partitions, topic_id = self._snapshot.topics.get(name), self._snapshot.topic_ids.get(name)
        return Topic(topic_id, name, len(partitions)) if partitions and topic_id else None

    def name_of(self, topic_id: TopicId) -> str | None:
        """The name of a topic; None if it does not exist any more."""
        return self._snapshot.topic_names.get(topic_id)

    def hash_of(self, names: Iterable[str]) -> int:
        """The hash of these topics, those that do not exist left out; 0 if none does."""
        hashes = [self._topic_hash(name) for name in sorted(names)]
        known = [each for each in hashes if each]
        return _xxh3(b"".join(map(_int64, known))) if known else 0

    def _topic_hash(self, name: str) -> int:
        found = self._hashes.get(name)
        if found is None:
            topic = self.get(name)
            found = self._hashes[name] = 0 if topic is None else self._compute_hash(topic)
        return found

    def _compute_hash(self, topic: Topic) -> int:
        try:
            topic_id = decode_uuid(topic.topic_id)
        except FormatError:
            return 0
        # Two numbers of 64 bits, which the hash takes with their lowest byte first.
        parts = [_HASH_VERSION, topic_id[7::-1], topic_id[:7:-1], _text(topic.name), _int32(topic.partitions)]
        brokers, states = self._snapshot.brokers, self._snapshot.topics[topic.name]
        for number in range(topic.partitions):
            parts.append(_int32(number))
            state = states.get(number)
            replicas = () if state is None else state.replicas
            racks = (brokers[replica].rack for replica in replicas if replica in brokers)
            for rack in sorted(rack for rack in racks if rack):
                parts += (_int32(len(rack)), _text(rack))
        return _xxh3(b"".join(parts))


NO_TOPICS: Final = Topics(ClusterSnapshot())


def _text(text: str) -> bytes:
    data = text.encode(_UTF16, "surrogatepass")
    return data + _int32(len(data) // 2)


def _int32(value: int) -> bytes:
    return value.to_bytes(4, "little", signed=True)


def _int64(value: int) -> bytes:
    return value.to_bytes(8, "little", signed=True)


def _xxh3(data: bytes) -> int:
    unsigned = xxhash.xxh3_64_intdigest(data)
    return unsigned - (1 << _SIGNED_BITS) if unsigned >> (_SIGNED_BITS - 1) else unsigned
