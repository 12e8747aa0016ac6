"""Finds which partitions need an election of their leader, and reads the files of `kafka-leader-election`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final

from klog.admin.topics import Topic
from klog.formats.errors import FormatError
from klog.formats.names import TopicPartition

_CURE: Final = 'write {"partitions": [{"topic": "orders", "partition": 0}]}'


def without_leader(topics: Iterable[Topic], live_brokers: Sequence[int]) -> list[TopicPartition]:
    """The partitions that have no leader, or one that is not alive."""
    return [
        TopicPartition(topic.name, each.partition)
        for topic in topics
        for each in topic.partitions
        if each.leader not in live_brokers
    ]


def parse_json(text: str, file: str) -> list[TopicPartition]:
    """The partitions of `{"partitions": [{"topic": "orders", "partition": 0}]}`. Raises FormatError."""
    try:
        listed = [(each["topic"], each["partition"]) for each in json.loads(text)["partitions"]]
    except json.JSONDecodeError as error:
        raise FormatError(f"is no JSON: {error}", file=file, cure=_CURE) from error
    except (KeyError, TypeError) as error:
        raise FormatError(f"does not name partitions: {error!r}", file=file, cure=_CURE) from error
    found = [TopicPartition(topic, number) for topic, number in listed if _is_partition(topic, number)]
    if len(found) < len(listed):
        raise FormatError("has a topic that is no text, or a partition that is no number", file=file)
    if len(set(found)) < len(found):
        raise FormatError("names a partition twice", file=file, cure="name each once")
    return found


def _is_partition(topic: object, number: object) -> bool:
    return isinstance(topic, str) and isinstance(number, int) and not isinstance(number, bool)
