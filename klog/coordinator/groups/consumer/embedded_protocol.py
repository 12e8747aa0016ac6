"""Translates between topics by name, as the classic protocol has them, and by id, as consumer groups do.

The client core reads and writes the bytes of subscriptions and assignments.
"""

from __future__ import annotations

from collections.abc import Iterable

from klog.client.consumer_protocol import encode_assignment
from klog.coordinator.groups.consumer.topics import Topics
from klog.coordinator.groups.consumer.values import ClassicMember, Partitions
from klog.formats.names import TopicPartition
from klog.formats.packed import INT16

_LAST_VERSION = 3


def by_id(named: Iterable[TopicPartition], topics: Topics) -> Partitions:
    """The partitions whose topics exist."""
    found = ((topics.get(each.topic), each.partition) for each in named)
    return frozenset((topic.topic_id, number) for topic, number in found if topic is not None)


def assignment_of(classic: ClassicMember, assigned: Partitions, topics: Topics) -> bytes:
    """An assignment as a leader would make it, in the version of the member's subscription."""
    metadata = classic.protocols[0][1] if classic.protocols else b""
    version = INT16.unpack_from(metadata)[0] if len(metadata) >= INT16.size else 0
    found = ((topics.name_of(topic_id), number) for topic_id, number in sorted(assigned))
    named = [TopicPartition(name, number) for name, number in found if name is not None]
    return encode_assignment(named, max(0, min(version, _LAST_VERSION)))
