"""Reads, creates and grows topics in the tree, and requests their deletion.

Rules: Kafka's AdminZkClient and Topic. The controller acts on what is written here: it elects leaders for new
partitions and carries out deletions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from klog.formats.names import MAX_TOPIC_LENGTH, TopicPartition, encode_uuid, is_legal_topic
from klog.metadata import paths, znodes
from klog.metadata.assignment import validate_assignment
from klog.metadata.configs import write_config
from klog.metadata.errors import (
    BadVersionError,
    InvalidTopicError,
    NodeExistsError,
    NoNodeError,
    TopicDeletionInProgressError,
    TopicExistsError,
    UnknownTopicError,
)
from klog.metadata.retried_writes import write
from klog.metadata.store import Create, MetadataStore, SetData, Watch, find
from klog.metadata.values import LeaderIsrAndControllerEpoch, ReplicaAssignment, TopicAssignment


def topic_names(store: MetadataStore, watch: Watch | None = None) -> list[str]:
    """All topics, including those that are being deleted; `watch` fires when one comes or goes."""
    return store.children(paths.TOPICS, watch)


def present_topic_names(store: MetadataStore) -> list[str]:
    """All topics, without those whose deletion only this session's server has not seen yet."""
    store.sync()
    return topic_names(store)


def read_topics(store: MetadataStore, names: Sequence[str]) -> dict[str, TopicAssignment]:
    """The assignments of those topics that exist. Raises InvalidZnodeError."""
    nodes = store.get_many([paths.topic(name) for name in names])
    return {
        name: znodes.decode_topic(name, node.data)
        for name, node in zip(names, nodes, strict=True)
        if node is not None
    }


def existing_partitions(store: MetadataStore, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
    """Those partitions that exist. Raises InvalidZnodeError."""
    topics = read_topics(store, sorted({each.topic for each in partitions}))
    return {
        each
        for each in partitions
        if each.topic in topics and each.partition in topics[each.topic].partitions
    }


def read_valid_topics(store: MetadataStore, names: Sequence[str]) -> dict[str, TopicAssignment]:
    """The assignments of those topics that exist. An invalid one is logged and left out."""
    nodes = store.get_many([paths.topic(name) for name in names])
    return znodes.decode_valid(names, nodes, lambda name, node: znodes.decode_topic(name, node.data))


def watch_topic(store: MetadataStore, name: str, watch: Watch) -> TopicAssignment | None:
    """The assignment of a topic, or None; `watch` fires when it changes or goes. Raises InvalidZnodeError."""
    node = find(store, paths.topic(name), watch)
    return None if node is None else znodes.decode_topic(name, node.data)


def read_partition_states(
    store: MetadataStore, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, LeaderIsrAndControllerEpoch]:
    """The states of those partitions that have one. An invalid state is logged and left out, so that it does
    not affect the other partitions.
    """
    nodes = store.get_many([paths.partition_state(partition) for partition in partitions])
    return znodes.decode_valid(partitions, nodes, znodes.decode_partition_state)


def topics_to_delete(store: MetadataStore, watch: Watch | None = None) -> list[str]:
    """The topics whose deletion was requested; `watch` fires when there are more."""
    return store.children(paths.DELETE_TOPICS, watch)


def validate_topic_name(name: str, existing: Iterable[str] = ()) -> None:
    """Raises InvalidTopicError if the name is not legal, or collides with an existing one in metric names, in
    which `.` and `_` are the same.
    """
    if not is_legal_topic(name):
        raise InvalidTopicError(
            f"topic name {name!r} is not allowed",
            cure=f"1 to {MAX_TOPIC_LENGTH} of the characters a-z A-Z 0-9 . _ -, and neither . nor ..",
        )
    if "." in name or "_" in name:
        flat = name.replace(".", "_")
        for other in existing:
            if other != name and other.replace(".", "_") == flat:
                raise InvalidTopicError(f"topic {name!r} collides with {other!r} in metric names")


def new_topic_id(random_bytes: Callable[[int], bytes]) -> str:
    """A random (version 4) UUID as text.

    It does not start with a dash, because tools would read an option.
    """
    while True:
        raw = bytearray(random_bytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        text = encode_uuid(bytes(raw))
        if not text.startswith("-"):
            return text


def validate_new_topic(
    store: MetadataStore, name: str, partitions: Mapping[int, Sequence[int]], broker_ids: Collection[int]
) -> None:
    """Raises the errors of `create_topic`. `broker_ids` are the live brokers."""
    validate_topic_name(name)
    marked, there = store.get_many([paths.delete_topic(name), paths.topic(name)])
    if marked is not None:
        raise TopicExistsError(f"topic {name!r} is marked for deletion")
    if there is not None:
        raise TopicExistsError(f"topic {name!r} already exists")
    validate_topic_name(name, topic_names(store) if "." in name or "_" in name else ())
    validate_assignment(partitions, range(len(partitions)), broker_ids)


def create_topic(
    store: MetadataStore,
    name: str,
    topic_id: str,
    partitions: Mapping[int, Sequence[int]],
    config: Mapping[str, str],
    broker_ids: Collection[int],
) -> None:
    """Writes the config of a topic, then the topic itself, in two steps as Kafka does.

    Raises TopicExistsError, InvalidTopicError, InvalidReplicaAssignmentError.
    """
    validate_new_topic(store, name, partitions, broker_ids)
    write_config(store, f"topics/{name}", config)
    assignment = {number: ReplicaAssignment(tuple(replicas)) for number, replicas in partitions.items()}
    data = znodes.encode_topic(TopicAssignment(name, topic_id, assignment))
    try:
        write(store, Create(paths.topic(name), data))
    except NodeExistsError as error:
        raise TopicExistsError(f"topic {name!r} already exists") from error


def add_partitions(store: MetadataStore, name: str, new_partitions: Mapping[int, Sequence[int]]) -> None:
    """Adds partitions whose numbers follow the present ones and whose assignment was validated before.

    Raises UnknownTopicError, TopicDeletionInProgressError, BadVersionError (the topic has changed meanwhile).
    """
    if store.exists(paths.delete_topic(name)) is not None:
        raise TopicDeletionInProgressError(f"topic {name!r} is marked for deletion")
    try:
        node = store.get(paths.topic(name))
    except NoNodeError as error:
        raise UnknownTopicError(f"no topic {name!r}") from error
    topic = znodes.decode_topic(name, node.data)
    if min(new_partitions) != len(topic.partitions):
        raise BadVersionError(f"topic {name!r} has {len(topic.partitions)} partitions by now")
    added = {number: ReplicaAssignment(tuple(replicas)) for number, replicas in new_partitions.items()}
    grown = TopicAssignment(name, topic.topic_id, {**topic.partitions, **added})
    write(store, SetData(paths.topic(name), znodes.encode_topic(grown), node.stat.version))


def request_deletion(store: MetadataStore, name: str) -> None:
    """Marks a topic for deletion by the controller.

    Raises UnknownTopicError, TopicDeletionInProgressError.
    """
    if store.exists(paths.topic(name)) is None:
        raise UnknownTopicError(f"no topic {name!r}")
    try:
        write(store, Create(paths.delete_topic(name)))
    except NodeExistsError as error:
        raise TopicDeletionInProgressError(f"topic {name!r} is already marked for deletion") from error
