"""Makes of a stopped cluster's metadata that of a KRaft cluster whose nodes have not started yet.

What Kafka's controller would do, or an upgrade, is done here: topics get ids, partitions have no leader
while no broker runs (one of the ISR becomes it when it registers), reassignments that were requested begin,
configs that Kafka 4 dropped are left out or renamed. Each change is said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from klog.client.admin import Resource, ResourceType
from klog.cluster_metadata.directory_check import Replica
from klog.cluster_metadata.kraft_layout import Layout, new_id, nodes_of
from klog.cluster_metadata.kraft_records import NO_LEADER
from klog.cluster_metadata.kraft_replay import KRAFT_VERSION
from klog.cluster_metadata.kraft_values import UNKNOWN_DIRECTORY
from klog.cluster_metadata.metadata_versions import ELIGIBLE_LEADERS, LEVELS, features_at, name_of
from klog.cluster_metadata.model import METADATA_VERSION, Cluster, Partition, Topic
from klog.cluster_metadata.reassignments import with_begun_reassignments
from klog.config.dynamic import passwords
from klog.config.password_encoder import SECRET, PasswordEncoder, is_encrypted
from klog.formats.errors import UsageError
from klog.formats.names import TopicPartition
from klog.metadata.values import LeaderAndIsr

KAFKA_4: Final = LEVELS["4.0-IV0"]
"""The first level that only Kafka 4 has."""
# Kafka 4 knows these no more. Kafka 4.1 does not start with a smaller segment.bytes (KIP-1030).
_DROPPED: Final = frozenset({"message.format.version", "message.downconversion.enable"})
_DIFFERENCE: Final = "message.timestamp.difference.max.ms"
_INSTEAD_OF_DIFFERENCE: Final = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
_SEGMENT_BYTES: Final = "segment.bytes"
_SEGMENT_BYTES_MIN: Final = 1 << 20
_BROKER_PREFIX: Final = "log."
_NO_LONGER_DYNAMIC: Final = frozenset({"advertised.listeners"})
_MIGRATION_ENDED: Final = 4


class Prepared(NamedTuple):
    """The metadata for the new nodes, and what was changed, in words."""

    cluster: Cluster
    changes: tuple[str, ...]


def prepared(
    cluster: Cluster,
    layout: Layout,
    replicas: Mapping[int, Mapping[TopicPartition, Replica]],
    features: Mapping[str, int],
    password_secret: str | None,
    random_bytes: Callable[[int], bytes],
) -> Prepared:
    """The metadata for the nodes of a layout in the chosen features, `metadata.version` among them.

    `replicas` are those found in the directories of each broker. Raises UsageError.
    """
    cluster, moving = with_begun_reassignments(cluster)
    changes = [f"reassignments that were requested begin: {_some(moving)}"] if moving else []
    level = features[METADATA_VERSION]
    chosen = {name: each for name, each in features.items() if name != METADATA_VERSION}
    found = replace(
        cluster,
        topics=_with_places(_with_ids(cluster, replicas, random_bytes, changes), layout, replicas),
        configs=_configs(cluster, level, password_secret, changes),
        features={METADATA_VERSION: level, **features_at(level, cluster.features, chosen)},
        brokers={
            broker_id: replace(each, is_fenced=True)
            for broker_id, each in cluster.brokers.items()
            if each.incarnation_id is not None  # others have registered with ZooKeeper
        },
        controllers={},
        voters={},
        migration_state=cluster.migration_state if cluster.migration_state == _MIGRATION_ENDED else 0,
    )
    if found.features.get(ELIGIBLE_LEADERS) and not nodes_of(found) <= found.brokers.keys():
        raise UsageError(
            f"{ELIGIBLE_LEADERS} cannot be on: a broker that was not registered counts as one that crashed,"
            " and its partitions get no leader",
            cure=f"--feature {ELIGIBLE_LEADERS}=0; kafka-features turns it on when all brokers run",
        )
    found = _stopped(found)
    changes += _sentences(cluster, found, layout)
    changes.append(f"features: {', '.join(f'{n}={v}' for n, v in found.features.items())} ({name_of(level)})")
    lost = cluster.features.keys() - found.features.keys() - {KRAFT_VERSION}
    changes += [f"feature {name} is turned off" for name in sorted(lost)]
    return Prepared(found, tuple(changes))


def _sentences(before: Cluster, after: Cluster, layout: Layout) -> Iterator[str]:
    """What else is different while no node runs."""
    if any(each.state is None or each.state.leader != NO_LEADER for _, each in before.partitions):
        yield "partitions have no leader until a broker of their ISR registers"
    if any(
        _eligible(each) != _eligible(after.topics[name].partitions[n])
        for (name, n), each in before.partitions
    ):
        yield (
            "eligible leaders are all replicas that were in sync (KIP-966), as when all brokers have stopped"
            if after.features.get(ELIGIBLE_LEADERS)
            else "eligible leaders become the ISR of partitions that have none"
        )
    places = (
        (each.directories, after.topics[name].partitions[number].directories)
        for (name, number), each in before.partitions
    )
    if any(old != new for old, new in places):
        yield "directories of replicas are those where the logs are"
    if before.brokers.keys() - after.brokers.keys():
        yield "registrations of brokers go: they register when they start"
    if any(not each.is_fenced for each in before.brokers.values()):
        yield "brokers are fenced until they start"
    if before.controllers or before.voters or layout.voters:
        yield "the quorum is that of the new nodes, which register when they start"
    if before.migration_state != after.migration_state:
        yield "the state of a migration is reset"


def _eligible(partition: Partition) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return partition.eligible_leaders, partition.last_known_eligible_leaders


def _with_ids(
    cluster: Cluster,
    replicas: Mapping[int, Mapping[TopicPartition, Replica]],
    random_bytes: Callable[[int], bytes],
    changes: list[str],
) -> dict[str, Topic]:
    """Topics without an id get that of their directories, or a new one."""
    on_disk: dict[str, Counter[str]] = {}
    for partition, replica in (each for found in replicas.values() for each in found.items()):
        if replica.topic_id is not None:
            on_disk.setdefault(partition.topic, Counter())[replica.topic_id] += 1
    topics = dict(cluster.topics)
    without = [name for name, topic in sorted(topics.items()) if topic.topic_id is None]
    for name in without:
        known = on_disk.get(name)
        topic_id = known.most_common(1)[0][0] if known else new_id(random_bytes)
        topics[name] = replace(topics[name], topic_id=topic_id)
    if without:
        changes.append(f"topics without an id get one: {_some(without)}")
    return topics


def _with_places(
    topics: Mapping[str, Topic],
    layout: Layout,
    replicas: Mapping[int, Mapping[TopicPartition, Replica]],
) -> dict[str, Topic]:
    """Replicas whose directories are here get the ids of these (KIP-858).

    An id that no directory of a broker here has is left out: Kafka would take it for a disk that is gone.
    """
    own = {node.node_id: frozenset(node.directories.values()) for node in layout.nodes if node.is_broker}
    ids = {directory: each for node in layout.nodes for directory, each in node.directories.items()}
    places = {
        (broker, partition): ids[replica.log_directory]
        for broker, found in replicas.items()
        for partition, replica in found.items()
        if replica.log_directory in ids
    }
    return {
        name: replace(
            topic,
            partitions={
                number: _with_place(TopicPartition(name, number), each, places, own)
                for number, each in topic.partitions.items()
            },
        )
        for name, topic in topics.items()
    }


def _with_place(
    name: TopicPartition,
    partition: Partition,
    places: Mapping[tuple[int, TopicPartition], str],
    own: Mapping[int, Collection[str]],
) -> Partition:
    brokers = partition.assignment.replicas
    known = partition.directories or (UNKNOWN_DIRECTORY,) * len(brokers)

    def place(broker: int, before: str) -> str:
        kept = before if before in own.get(broker, (before,)) else UNKNOWN_DIRECTORY
        return places.get((broker, name), kept)

    found = tuple(place(*each) for each in zip(brokers, known, strict=False))
    directories = () if set(found) <= {UNKNOWN_DIRECTORY} else found
    return partition if directories == partition.directories else replace(partition, directories=directories)


def _stopped(cluster: Cluster) -> Cluster:
    """The cluster while no broker runs: partitions have no leader."""
    change = _with_eligible_leaders if cluster.features.get(ELIGIBLE_LEADERS) else _with_isr
    return replace(
        cluster,
        topics={
            name: replace(
                topic, partitions={number: change(each) for number, each in topic.partitions.items()}
            )
            for name, topic in cluster.topics.items()
        },
    )


def _with_isr(partition: Partition) -> Partition:
    """The ISR stays. Eligible leaders become that of a partition that has none."""
    state = partition.state or LeaderAndIsr(NO_LEADER, 0, partition.assignment.replicas)
    isr = state.isr or partition.eligible_leaders
    return replace(
        partition,
        state=replace(state, leader=NO_LEADER, isr=isr),
        eligible_leaders=(),
        last_known_eligible_leaders=(),
    )


def _with_eligible_leaders(partition: Partition) -> Partition:
    """As Kafka's controller leaves it once all brokers are gone (KIP-966): the ISR is eligible to lead.

    A broker that has crashed is struck off the ISR and the eligible leaders when it registers. If nobody is
    left, the last known leader leads: without one the partition would have no leader any more.
    """
    state = partition.state or LeaderAndIsr(NO_LEADER, 0, partition.assignment.replicas)
    eligible = tuple(dict.fromkeys((*state.isr, *partition.eligible_leaders)))
    last = tuple(each for each in (state.leader, *partition.last_known_eligible_leaders) if each != NO_LEADER)
    return replace(
        partition,
        state=replace(state, leader=NO_LEADER, isr=()),
        eligible_leaders=eligible,
        last_known_eligible_leaders=(last or eligible)[:1],
    )


# --- configs ---


def _configs(
    cluster: Cluster, level: int, password_secret: str | None, changes: list[str]
) -> dict[Resource, dict[str, str | None]]:
    found = {}
    for resource, configs in sorted(cluster.configs.items()):
        kept = dict(configs)
        where = f"{resource.type.name.lower()} {resource.name or 'default'}"
        if resource.type is ResourceType.BROKER:
            kept = _passwords(kept, where, password_secret, changes)
        if level >= KAFKA_4:
            kept = _of_kafka_4(resource, kept, where, changes)
        if kept:
            found[resource] = kept
    return found


def _passwords(
    configs: Mapping[str, str | None], where: str, secret: str | None, changes: list[str]
) -> dict[str, str | None]:
    """KRaft has passwords of dynamic configs as they are, the tree encrypted."""
    found = dict(configs)
    for name in passwords(configs):
        value = configs[name]
        if value is None or not is_encrypted(value):
            continue
        if secret is None:
            del found[name]
            changes.append(f"{name} of {where} is encrypted and left out: set it again, or give {SECRET}")
            continue
        try:
            found[name] = PasswordEncoder(secret).decode(value)
        except UsageError as error:
            raise UsageError(f"{name} of {where}: {error.what}", cure=f"check {SECRET}") from None
    return found


def _of_kafka_4(
    resource: Resource, configs: Mapping[str, str | None], where: str, changes: list[str]
) -> dict[str, str | None]:
    if resource.type not in (ResourceType.TOPIC, ResourceType.BROKER):
        return dict(configs)
    prefix = _BROKER_PREFIX if resource.type is ResourceType.BROKER else ""
    found = dict(configs)
    gone = {prefix + name for name in _DROPPED} | (_NO_LONGER_DYNAMIC if prefix else set())
    changes += [
        f"{name}={found.pop(name)} of {where} is left out: Kafka 4 has no such config"
        for name in sorted(gone & found.keys())
    ]
    difference = found.pop(prefix + _DIFFERENCE, None)
    if difference is not None:
        instead = [prefix + name for name in _INSTEAD_OF_DIFFERENCE]
        for name in instead:
            found.setdefault(name, difference)
        changes.append(f"{prefix}{_DIFFERENCE} of {where} becomes {' and '.join(instead)}")
    size = found.get(prefix + _SEGMENT_BYTES)
    if size is not None and size.strip().isdecimal() and int(size) < _SEGMENT_BYTES_MIN:
        found[prefix + _SEGMENT_BYTES] = str(_SEGMENT_BYTES_MIN)
        changes.append(
            f"{prefix}{_SEGMENT_BYTES}={size} of {where} becomes {_SEGMENT_BYTES_MIN}, the least of Kafka 4"
        )
    return found


def _some(names: Sequence[str]) -> str:
    rest = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + rest
