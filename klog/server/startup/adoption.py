"""Puts the topics of partition directories back that the metadata has lost: `klog adopt`.

The directories say what is needed: a topic's name and id, its partitions, and their latest leader epochs.
They do not have the topic's configs. Without a file that has them, an adopted topic keeps all its records
until its retention is set again; the coordinators' topics are compacted, as they were created.
`plan_adoption` decides (pure); `with_configs` adds the configs; `adopt` writes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from klog.config.broker import BrokerConfig
from klog.formats.constants import INT32_MAX
from klog.formats.errors import KlogError
from klog.formats.names import DirectoryState, TopicPartition
from klog.metadata import paths, znodes
from klog.metadata.configs import read_config, write_config
from klog.metadata.store import Create, MetadataStore, Operation, SetData
from klog.metadata.values import (
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    TopicAssignment,
)
from klog.server.coordinators.internal_topics import internal_topic
from klog.server.logs.topic_reads import KEEP_ALL_RECORDS
from klog.server.logs.unowned_logs import StoredReplica, Unowned, unowned_replicas
from klog.server.startup.kraft_takeover import TakenOver
from klog.storage.files.checkpoint_files import read_leader_epochs
from klog.storage.files.partition_files import list_partition
from klog.storage.log.directory_loading import partition_directories, read_topic_id

States = Mapping[TopicPartition, LeaderIsrAndControllerEpoch]


@dataclass(frozen=True, slots=True)
class Adoption:
    """A topic as it will be in the metadata. `epochs` has the leader epoch of each partition that is added;
    those in `empty` have no directory. `is_new` if the metadata has no topic of this name. `configs` are to
    be written (None: those that the metadata has stay).
    """

    assignment: TopicAssignment
    epochs: Mapping[int, int]
    empty: tuple[int, ...]
    is_new: bool
    configs: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class AdoptionPlan:
    """What to write: topics, and states whose leader epoch is below that of the records. `left` are the
    directories that stay without an owner. `taken_over` is what a KRaft node's metadata log has given.
    """

    adoptions: Sequence[Adoption]
    raised: States
    left: Sequence[Unowned]
    taken_over: TakenOver | None = None

    @property
    def keeps_all_records(self) -> bool:
        """Whether a topic keeps all its records, because its own configs are not known."""
        return any(each.configs is KEEP_ALL_RECORDS for each in self.adoptions)


def stored_replicas(log_directory: str) -> list[StoredReplica]:
    """The replicas in a log directory that are in use. Raises `StorageError`, `FormatError`, `OSError`."""
    found = []
    for name in partition_directories(log_directory):
        if name.state is DirectoryState.CURRENT:
            path = os.path.join(log_directory, str(name))
            epochs = read_leader_epochs(path)
            latest = epochs[-1].epoch if epochs else -1
            only_copies = list_partition(path).holds_only_copies
            found.append(StoredReplica(path, name.partition, read_topic_id(path), latest, only_copies))
    return found


def plan_adoption(
    replicas: Sequence[StoredReplica],
    topics: Mapping[str, TopicAssignment],
    unreadable: frozenset[str],
    states: States,
    broker_id: int,
    *,
    allow_missing: bool = False,
) -> AdoptionPlan:
    """What to write so that each replica has an owner. With `allow_missing`, partitions between the others
    that have no directory come back empty, and those of which there are only gzip copies; without it, their
    topics are left.
    """
    adoptions: list[Adoption] = []
    left: list[Unowned] = []
    groups: dict[str, list[Unowned]] = {}
    for each in unowned_replicas(replicas, topics, unreadable, broker_id):
        groups.setdefault(each.replica.partition.topic, []).append(each)
    for topic, group in groups.items():
        found = _adoption(group, topics.get(topic), broker_id, allow_missing)
        if isinstance(found, Adoption):
            adoptions.append(found)
        else:
            left += found
    left += [
        Unowned(each, "the topic's znode is invalid")
        for each in replicas
        if each.partition.topic in unreadable
    ]
    return AdoptionPlan(adoptions, _raised(replicas, states), left)


def _adoption(
    group: Sequence[Unowned], present: TopicAssignment | None, broker_id: int, allow_missing: bool
) -> Adoption | list[Unowned]:
    by_number = {each.replica.partition.partition: each.replica for each in group}
    known = {} if present is None else present.partitions
    ids = {each.topic_id for each in by_number.values()} - {None}
    if present is not None and (known.keys() & by_number.keys() or not ids <= {present.topic_id}):
        return list(group)  # another topic id, or replicas on other brokers
    if len(ids) > 1:
        listed = ", ".join(sorted(filter(None, ids)))
        return [
            Unowned(each.replica, f"the directories have different topic ids: {listed}") for each in group
        ]
    empty = tuple(
        number for number in range(max(by_number)) if number not in known and number not in by_number
    )
    if empty and not allow_missing:
        why = f"partitions {', '.join(map(str, empty))} have no directory (--allow-missing makes them empty)"
        return [Unowned(each.replica, why) for each in group]
    copies = [number for number, each in sorted(by_number.items()) if each.only_copies]
    if copies and not allow_missing:
        why = (
            f"of partitions {', '.join(map(str, copies))} there are only gzip copies of segments"
            " (unpack them first; --allow-missing makes the partitions empty)"
        )
        return [Unowned(each.replica, why) for each in group]
    added = {number: ReplicaAssignment((broker_id,)) for number in sorted({*by_number, *empty})}
    topic_id = next(iter(ids), None) if present is None else present.topic_id
    topic = next(iter(by_number.values())).partition.topic
    epochs = {
        number: _next_epoch(by_number[number].latest_epoch) if number in by_number else 0 for number in added
    }
    return Adoption(TopicAssignment(topic, topic_id, {**known, **added}), epochs, empty, present is None)


def _next_epoch(latest: int) -> int:
    """The epoch above that of the records. An epoch that leaves no room for elections is damage: the checksum
    of a batch does not cover its epoch.
    """
    return latest + 1 if latest < INT32_MAX // 2 else 0


def _raised(replicas: Iterable[StoredReplica], states: States) -> States:
    """The states whose leader epoch is below that of the replica's records, with the next epoch."""
    raised = {}
    for each in replicas:
        state = states.get(each.partition)
        if state is not None and state.leader_and_isr.leader_epoch < _next_epoch(each.latest_epoch) - 1:
            newer = replace(state.leader_and_isr, leader_epoch=_next_epoch(each.latest_epoch))
            raised[each.partition] = replace(state, leader_and_isr=newer)
    return raised


def with_configs(
    store: MetadataStore, plan: AdoptionPlan, config: BrokerConfig, given: Mapping[str, Mapping[str, str]]
) -> AdoptionPlan:
    """The plan with the configs of its new topics: those that are given, or else those in the metadata."""
    adoptions = [
        replace(one, configs=_configs(store, one.assignment.topic, config, given)) if one.is_new else one
        for one in plan.adoptions
    ]
    return replace(plan, adoptions=adoptions)


def _configs(
    store: MetadataStore, topic: str, config: BrokerConfig, given: Mapping[str, Mapping[str, str]]
) -> Mapping[str, str] | None:
    if topic in given:
        return given[topic]
    if _has_config(store, topic):
        return None
    internal = internal_topic(topic, config)
    return KEEP_ALL_RECORDS if internal is None else internal.configs


def adopt(store: MetadataStore, plan: AdoptionPlan, broker_id: int) -> None:
    """Write a plan, each topic in one transaction. No broker may be running. Raises `StoreError`."""
    for adoption in plan.adoptions:
        if adoption.configs is not None:
            # Before the topic is there, so that nothing of it is deleted by the default retention.
            write_config(store, f"topics/{adoption.assignment.topic}", adoption.configs)
        store.multi(_operations(store, adoption, broker_id))
    for partition, state in plan.raised.items():
        store.set(paths.partition_state(partition), znodes.encode_partition_state(state))


def _has_config(store: MetadataStore, topic: str) -> bool:
    try:
        return bool(read_config(store, f"topics/{topic}"))
    except KlogError:
        return False  # it is invalid, so it is replaced


def _operations(store: MetadataStore, adoption: Adoption, broker_id: int) -> list[Operation]:
    topic = adoption.assignment.topic
    nodes: dict[str, bytes | None] = {
        paths.topic(topic): znodes.encode_topic(adoption.assignment),
        paths.partitions(topic): None,
    }
    for number, epoch in adoption.epochs.items():
        partition = TopicPartition(topic, number)
        state = LeaderIsrAndControllerEpoch(LeaderAndIsr(broker_id, epoch, (broker_id,)), 0)
        nodes[paths.partition(partition)] = None
        nodes[paths.partition_state(partition)] = znodes.encode_partition_state(state)
    present = store.get_many(list(nodes))
    return [
        Create(path, data) if node is None else SetData(path, data)
        for (path, data), node in zip(nodes.items(), present, strict=True)
    ]
