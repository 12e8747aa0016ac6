"""Plans which records are deleted, from texts or from the JSON of `kafka-delete-records`.

The file: `{"partitions": [{"topic": "orders", "partition": 0, "offset": 10}], "version": 1}`. The offset -1
stands for the high watermark.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from klog.admin.offsets import ranges
from klog.admin.requests.record_deletion import HIGH_WATERMARK
from klog.client.cluster import Cluster
from klog.client.errors import UnknownTopicError
from klog.formats.errors import FormatError, KlogError, UsageError
from klog.formats.names import TopicPartition

_VERSION: Final = 1
_CURE: Final = 'write {"partitions": [{"topic": "orders", "partition": 0, "offset": 10}], "version": 1}'


class Deletion(NamedTuple):
    """What is to go from a partition: all records before `before`. `error` is why nothing is known of it."""

    partition: TopicPartition
    earliest: int | None
    latest: int | None
    before: int
    error: KlogError | None

    @property
    def records(self) -> int | None:
        """How many offsets go, None if it is not known."""
        if self.earliest is None or self.latest is None:
            return None
        end = self.latest if self.before == HIGH_WATERMARK else min(self.before, self.latest)
        return max(0, end - self.earliest)

    def to_json(self) -> dict[str, object]:
        """The fields by Kafka's names."""
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "logStartOffset": self.earliest,
            "logEndOffset": self.latest,
            "offset": self.before,
            "deletedOffsets": self.records,
        }


def parse_targets(texts: Iterable[str]) -> dict[TopicPartition, int]:
    """The offsets of `TOPIC:PARTITION:OFFSET`. Raises UsageError."""
    found: dict[TopicPartition, int] = {}
    for text in texts:
        topic, _, rest = text.partition(":")
        number, _, offset = rest.partition(":")
        try:
            partition, before = TopicPartition(topic, int(number)), int(offset)
        except ValueError as error:
            raise _not_a_target(text) from error
        if not topic or partition.partition < 0 or before < HIGH_WATERMARK:
            raise _not_a_target(text)
        if partition in found:
            raise UsageError(f"{partition} is given twice")
        found[partition] = before
    return found


def _not_a_target(text: str) -> UsageError:
    return UsageError(
        f"{text!r} is not TOPIC:PARTITION:OFFSET",
        cure="orders:0:100 deletes what is before offset 100, orders:0:-1 everything",
    )


def parse_json(text: str, file: str) -> dict[TopicPartition, int]:
    """The offsets of a file of `kafka-delete-records`. Raises FormatError."""
    try:
        found = json.loads(text)
        if found.get("version", _VERSION) != _VERSION:
            raise FormatError(f"has version {found['version']!r}, not {_VERSION}", file=file, cure=_CURE)
        listed = [
            (TopicPartition(_text(each["topic"]), _whole(each["partition"])), _whole(each["offset"]))
            for each in found["partitions"]
        ]
    except json.JSONDecodeError as error:
        raise FormatError(f"is no JSON: {error}", file=file, cure=_CURE) from error
    except (KeyError, TypeError, AttributeError) as error:
        raise FormatError(
            f"does not say which records to delete: {error!r}", file=file, cure=_CURE
        ) from error
    before = dict(listed)
    if len(before) < len(listed):
        raise FormatError("names a partition twice", file=file)
    if wrong := [partition for partition, offset in listed if offset < HIGH_WATERMARK]:
        raise FormatError(f"has an offset below {HIGH_WATERMARK} for {wrong[0]}", file=file)
    return before


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not the name of a topic")
    return value


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not a whole number")
    return value


def plan(cluster: Cluster, before: Mapping[TopicPartition, int]) -> list[Deletion]:
    """What would go from each partition, as its leader says now. Raises ClientError, ChannelError."""
    cluster.refresh_existing({partition.topic for partition in before})
    return [
        Deletion(
            each.partition,
            each.earliest,
            each.latest,
            before[each.partition],
            _unknown(cluster, each.partition) or each.error,
        )
        for each in ranges(cluster, list(before))
    ]


def _unknown(cluster: Cluster, partition: TopicPartition) -> UnknownTopicError | None:
    """Why there is no such partition; None if there is."""
    topic, number = partition
    known = cluster.partitions(topic)
    if number in known:
        return None
    if known:
        return UnknownTopicError(f"topic {topic} has no partition {number}")
    return UnknownTopicError(f"topic {topic} does not exist", cure="`klog topics list` shows what does")
