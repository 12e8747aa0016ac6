"""Gives the replica manager the logs of this broker, and decides which are deleted or kept as strays."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from klog.formats.errors import StorageError
from klog.formats.names import TopicPartition
from klog.metadata.errors import StoreError
from klog.storage.log.partition_log import PartitionLog

_log = logging.getLogger(__name__)


class Logs(Protocol):
    """What the replica manager needs of the log manager."""

    def get(self, partition: TopicPartition) -> PartitionLog | None:
        """The log that serves a replica, if there is one."""

    def get_or_create(self, partition: TopicPartition, topic_id: str | None, *, is_new: bool) -> PartitionLog:
        """The log of a replica; created if there is none. Raises `StorageError`, `OSError`."""

    def creating(self) -> AbstractContextManager[object]:
        """What many logs that are created inside have in common is done once. They are durable after it."""

    def delete(self, replicas: Iterable[TopicPartition]) -> Mapping[TopicPartition, Exception]:
        """Delete replicas' logs: renamed now, removed later. Returns the errors of those that failed."""

    def set_aside_strays(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, Exception]:
        """Rename logs to `-stray` and keep them out of use. Returns the errors of those that failed."""


def is_of_another_topic(log: PartitionLog, topic_id: str | None, is_new: bool) -> bool:
    """Whether a log belongs to an earlier topic of the same name.

    A log without an id gets the topic's, as in Kafka: older brokers wrote none. But it cannot be a log of a
    topic that has just been created if it has records.
    """
    if topic_id is None:
        return False
    if log.topic_id is None:
        return is_new and not log.is_confirmed and log.log_end_offset > 0
    return log.topic_id != topic_id


def keep_as_stray(logs: Logs, key: TopicPartition, log: PartitionLog, why: str) -> None:
    """Put a log that belongs to another topic out of use. Raises `StorageError`, `OSError`."""
    for error in logs.set_aside_strays((key,)).values():
        raise error
    was = "has no topic id" if log.topic_id is None else f"belongs to topic id {log.topic_id}"
    _log.warning("%s %s, and %s: it is kept, out of use, as %s", key, was, why, log.directory)


def delete_logs(
    logs: Logs,
    keys: Collection[TopicPartition],
    read_topic_ids: Callable[[Collection[str]], Mapping[str, str | None]],
) -> dict[TopicPartition, Exception]:
    """Delete the logs of partitions; returns the errors of those that failed.

    StopReplica names topics without their ids. So a log that no LeaderAndIsr request has confirmed is
    deleted only if the tree has its topic id. Otherwise it is kept as a stray.
    """
    failed: dict[TopicPartition, Exception] = {}
    wanted = set(keys)
    found = ((key, logs.get(key)) for key in keys)
    unconfirmed = {key: log for key, log in found if log is not None and not log.is_confirmed}
    try:
        ids = read_topic_ids({key.topic for key in unconfirmed}) if unconfirmed else {}
    except StoreError as error:
        failed |= dict.fromkeys(unconfirmed, error)
        wanted -= failed.keys()
        unconfirmed = {}
    for key, log in unconfirmed.items():
        if key.topic in ids and log.topic_id == ids[key.topic]:
            continue
        wanted.discard(key)
        try:
            keep_as_stray(logs, key, log, "the topic that is deleted has another one")
        except (OSError, StorageError) as error:
            failed[key] = error
    return failed | dict(logs.delete(wanted))
