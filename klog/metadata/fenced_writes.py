"""The writes of a controller: partition states, assignments, and the deletion of topics and notifications."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from klog.formats.names import TopicPartition
from klog.metadata import paths, znodes
from klog.metadata.election import FencedStore
from klog.metadata.errors import (
    BadVersionError,
    InvalidZnodeError,
    NodeExistsError,
    NoNodeError,
    StoreError,
)
from klog.metadata.store import Create, Delete, NodeStat, Operation, SetData, children_of
from klog.metadata.values import FinalizedFeatures, LeaderAndIsr, LeaderIsrAndControllerEpoch, TopicAssignment


@dataclass(frozen=True, slots=True)
class StateUpdates:
    """The outcome of conditional writes.

    `updated` are the states that were written, with their new partition epoch. `outdated` are the partitions
    that another writer has changed: read them again and retry. `failed` are the others.
    """

    updated: Mapping[TopicPartition, LeaderAndIsr]
    outdated: tuple[TopicPartition, ...]
    failed: Mapping[TopicPartition, StoreError]


def create_partition_states(
    fenced: FencedStore, states: Mapping[TopicPartition, LeaderAndIsr]
) -> dict[TopicPartition, StoreError | None]:
    """Creates the first state of each partition, and the nodes above it. Returns an error or None for each.

    Raises ControllerMovedError.
    """
    above = dict.fromkeys(paths.partitions(partition.topic) for partition in states)
    above |= dict.fromkeys(paths.partition(partition) for partition in states)
    # A node above may exist already. If one is missing, the creation of the state below it fails.
    fenced.write_all([Create(path) for path in above])
    creations: list[Operation] = [
        Create(paths.partition_state(partition), _state_data(fenced, state))
        for partition, state in states.items()
    ]
    outcomes = fenced.write_all(creations)
    return {
        partition: outcome if isinstance(outcome, StoreError) else None
        for partition, outcome in zip(states, outcomes, strict=True)
    }


def update_partition_states(
    fenced: FencedStore, states: Mapping[TopicPartition, LeaderAndIsr]
) -> StateUpdates:
    """Writes each state if its partition epoch is still that of the tree. Raises ControllerMovedError."""
    writes: list[Operation] = [
        SetData(paths.partition_state(partition), _state_data(fenced, state), state.partition_epoch)
        for partition, state in states.items()
    ]
    updated: dict[TopicPartition, LeaderAndIsr] = {}
    outdated: list[TopicPartition] = []
    failed: dict[TopicPartition, StoreError] = {}
    for (partition, state), outcome in zip(states.items(), fenced.write_all(writes), strict=True):
        match outcome:
            case NodeStat():
                updated[partition] = replace(state, partition_epoch=outcome.version)
            case BadVersionError():
                outdated.append(partition)
            case StoreError():
                failed[partition] = outcome
    return StateUpdates(updated, tuple(outdated), failed)


def _state_data(fenced: FencedStore, state: LeaderAndIsr) -> bytes:
    return znodes.encode_partition_state(LeaderIsrAndControllerEpoch(state, fenced.epoch))


def write_topic(fenced: FencedStore, topic: TopicAssignment) -> None:
    """Replaces a topic's assignment. Raises NoNodeError, ControllerMovedError."""
    fenced.write(SetData(paths.topic(topic.topic), znodes.encode_topic(topic)))


def write_assignments(fenced: FencedStore, topic: TopicAssignment) -> None:
    """Writes the assignments of partitions. The topic's other partitions stay as they are in the tree:
    somebody may have added some of which the controller has not heard yet. Raises as `write_topic`.
    """
    path = paths.topic(topic.topic)
    while True:
        node = fenced.store.get(path)
        try:
            present = znodes.decode_topic(topic.topic, node.data).partitions
        except InvalidZnodeError:
            present = {}
        written = replace(topic, partitions={**present, **topic.partitions})
        try:
            fenced.write(SetData(path, znodes.encode_topic(written), node.stat.version))
        except BadVersionError:
            continue
        return


def delete_topic(fenced: FencedStore, topic: str) -> None:
    """Deletes a topic with everything below it, then its config, and
    last the mark that requested the deletion.
    """
    _delete_below(fenced, paths.topic(topic))
    delete_nodes(fenced, [paths.topic_config(topic)])
    delete_nodes(fenced, [paths.delete_topic(topic)])


def _delete_below(fenced: FencedStore, path: str) -> None:
    for name in children_of(fenced.store, path):
        _delete_below(fenced, f"{path}/{name}")
    delete_nodes(fenced, [path])


def delete_nodes(fenced: FencedStore, node_paths: Iterable[str]) -> None:
    """Deletes nodes, which need not exist. Raises StoreError, ControllerMovedError."""
    for outcome in fenced.write_all([Delete(path) for path in node_paths]):
        if isinstance(outcome, StoreError) and not isinstance(outcome, NoNodeError):
            raise outcome


def write_features(fenced: FencedStore, features: FinalizedFeatures) -> None:
    """Creates or replaces the finalized features."""
    data = znodes.encode_features(features)
    try:
        fenced.write(Create(paths.FEATURE, data))
    except NodeExistsError:
        fenced.write(SetData(paths.FEATURE, data))
