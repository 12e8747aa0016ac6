"""Names the partition directories that the metadata does not know, when a broker starts.

A directory has an owner if the metadata has its partition, with its topic id, and a replica on this broker.
If metadata was lost or restored from an older copy, directories remain without an owner. They are kept as
they are, and nothing is deleted from them. Kafka says nothing of them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition
from klog.metadata.store import MetadataStore
from klog.metadata.topics import read_partition_states, read_valid_topics, topic_names
from klog.metadata.values import TopicAssignment
from klog.storage.log.log_manager import LogManager

_log = logging.getLogger(__name__)

WAY_BACK: Final = (
    "if metadata was lost, stop the broker and restore the metadata, or run 'klog adopt', which puts the"
    " topics of such directories back (docs/broker.md, Lost metadata); if the topics are deleted for good,"
    " stop the broker and remove the directories"
)


class StoredReplica(NamedTuple):
    """A partition directory: its path, topic id (None: it has none) and latest leader epoch (-1: none).

    `only_copies` says that it holds gzip copies of segments and no segments.
    """

    path: str
    partition: TopicPartition
    topic_id: str | None
    latest_epoch: int
    only_copies: bool = False


class Unowned(NamedTuple):
    """A partition directory without an owner, and why the metadata does not own it."""

    replica: StoredReplica
    why: str


def unowned_replicas(
    replicas: Iterable[StoredReplica],
    topics: Mapping[str, TopicAssignment],
    unreadable: frozenset[str],
    broker_id: int,
) -> list[Unowned]:
    """The replicas without an owner, in order. `topics` are those of the metadata by name; `unreadable` are
    the names of those whose znode is invalid, about which nothing is known.
    """
    found = []
    for replica in sorted(replicas, key=lambda each: (each.partition, each.path)):
        topic, number = replica.partition
        if topic in unreadable:
            continue
        why = _why_unowned(replica, topics.get(topic), number, broker_id)
        if why is not None:
            found.append(Unowned(replica, why))
    return found


def _why_unowned(
    replica: StoredReplica, topic: TopicAssignment | None, number: int, broker_id: int
) -> str | None:
    if topic is None:
        return "the metadata has no topic of this name"
    if None not in (replica.topic_id, topic.topic_id) and replica.topic_id != topic.topic_id:
        return f"the topic of this name has another topic id, {topic.topic_id}"
    assignment = topic.partitions.get(number)
    if assignment is None:
        return f"the topic has {len(topic.partitions)} partitions in the metadata"
    if broker_id not in assignment.replicas:
        return f"its replicas are on other brokers: {', '.join(map(str, assignment.replicas))}"
    return None


def report_unowned_logs(store: MetadataStore, logs: LogManager, broker_id: int) -> None:
    """Log a warning for the directories without an owner, and for those that are newer than the metadata.

    From now on no log is confirmed until the controller names its replica, so nothing is deleted from it.
    A store that cannot be read is an error line; it does not keep the broker from serving.
    """
    for log in logs.logs():
        log.is_confirmed = False
    replicas = [
        StoredReplica(
            held.log.directory, held.log.partition, held.log.topic_id, max(held.log.epochs.latest, -1)
        )
        for directory in logs.online
        for held in logs.in_directory(directory)
    ]
    try:
        present = set(topic_names(store)).intersection(each.partition.topic for each in replicas)
        topics = read_valid_topics(store, sorted(present))
        unowned = unowned_replicas(replicas, topics, frozenset(present.difference(topics)), broker_id)
        without = {each.replica.path for each in unowned}
        owned = [each for each in replicas if each.path not in without]
        states = read_partition_states(store, [each.partition for each in owned])
    except KlogError as error:
        _log.error("the partition directories could not be compared with the metadata: %s", error)
        return
    for line in unowned_lines(unowned):
        _log.warning("%s", line)
    if unowned:
        _log.warning(
            "%d partition directories have no owner; they are kept and not served: %s", len(unowned), WAY_BACK
        )
    for each in owned:
        state = states.get(each.partition)
        if state is not None and each.latest_epoch > state.leader_and_isr.leader_epoch:
            _log.warning(
                "%s has records of leader epoch %d, but the metadata is at %d: it is older than the records."
                " If it was restored from a copy, stop the broker and run 'klog adopt' (docs/broker.md, Lost"
                " metadata)",
                each.path,
                each.latest_epoch,
                state.leader_and_isr.leader_epoch,
            )


def unowned_lines(unowned: Sequence[Unowned]) -> list[str]:
    """One line for the directories of one topic in one log directory for one reason; all are named."""
    groups: dict[tuple[str, str, str | None, str], list[str]] = {}
    for replica, why in unowned:
        parent, name = os.path.split(replica.path)
        key = (parent, replica.partition.topic, replica.topic_id, why)
        groups.setdefault(key, []).append(name)
    return [
        f"{parent}: no owner for {', '.join(names)}"
        f" ({'no topic id' if topic_id is None else f'topic id {topic_id}'}): {why}"
        for (parent, _, topic_id, why), names in groups.items()
    ]
