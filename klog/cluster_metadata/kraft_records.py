"""A cluster's metadata as records of KRaft's metadata log, in the order of Kafka's `MetadataImage`.

The versions of the records follow from the cluster's metadata.version.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import starmap
from types import MappingProxyType
from typing import Final, TypeAlias

from klog.cluster_metadata.forms import Held
from klog.cluster_metadata.kraft_replay import KRAFT_VERSION
from klog.cluster_metadata.kraft_values import UNKNOWN_DIRECTORY
from klog.cluster_metadata.metadata_versions import SCRAM, TOKENS
from klog.cluster_metadata.model import (
    METADATA_VERSION,
    Broker,
    Cluster,
    Controller,
    Partition,
    SupportedVersions,
)
from klog.config.security_protocols import SECURITY_PROTOCOLS
from klog.formats import cluster_metadata
from klog.formats.names import encode_uuid
from klog.formats.values import Value
from klog.metadata.values import ZERO_TOPIC_ID, Endpoint, LeaderAndIsr, LeaderRecoveryState
from klog.protocol.acls import Acl
from klog.security.authentication.scram_administration import MECHANISMS
from klog.security.quotas.entities import DEFAULT, QuotaEntity

_Fields: TypeAlias = dict[str, Value]

# The first levels of metadata.version with a feature (Kafka's `MetadataVersion`).
IN_CONTROLLED_SHUTDOWN: Final = 7  # 3.3-IV3, the first that Kafka 4 reads
MIGRATION: Final = 8  # 3.4-IV0
CONTROLLER_REGISTRATION: Final = 15  # 3.7-IV0
DIRECTORIES: Final = 17  # 3.7-IV2
ELIGIBLE_LEADERS: Final = 23  # 4.0-IV1
NO_LEADER: Final = -1
"""The leader of a partition that has none."""
_ENTITY_TYPES: Final = (("user", "user"), ("client_id", "client-id"), ("ip", "ip"))
_MECHANISM_NUMBERS: Final = {name: number for number, name in MECHANISMS.items()}


def held(cluster: Cluster) -> Held:
    """What records of the cluster's metadata.version can hold. Topics must have ids."""
    level = cluster.features.get(METADATA_VERSION, 0)
    losses = []
    if cluster.deletions:
        losses.append(f"marks of topics for deletion: {', '.join(sorted(cluster.deletions))} stay topics")
    if cluster.requested_reassignments:
        losses.append("reassignments that have not begun")
    if cluster.generated_broker_ids:
        losses.append("the counter of generated broker ids")
    partitions = [each for _, each in cluster.partitions]
    if any(each.state is None for each in partitions):
        losses.append("that partitions have no leader yet: all their replicas become in-sync")
    if level < DIRECTORIES and any(each.directories for each in partitions):
        losses.append("directories of replicas: they need metadata.version 3.7-IV2")
    if level < ELIGIBLE_LEADERS and any(
        each.eligible_leaders or each.last_known_eligible_leaders for each in partitions
    ):
        losses.append("eligible leaders: they need metadata.version 4.0-IV1")
    topics = {
        name: replace(
            topic,
            partitions={number: _held_partition(each, level) for number, each in topic.partitions.items()},
        )
        for name, topic in cluster.topics.items()
    }
    scram = cluster.scram if level >= SCRAM else {}
    if scram != cluster.scram:
        losses.append("SCRAM credentials: they need metadata.version 3.5-IV2")
    tokens = cluster.tokens if level >= TOKENS else {}
    if tokens != cluster.tokens:
        losses.append("delegation tokens: they need metadata.version 3.6-IV2")
    brokers = {broker_id: _held_broker(broker, level) for broker_id, broker in cluster.brokers.items()}
    if brokers != cluster.brokers:
        losses.append("details of brokers' registrations that this metadata.version has not")
    controllers = cluster.controllers if level >= CONTROLLER_REGISTRATION else {}
    if controllers != cluster.controllers:
        losses.append("registrations of controllers: they need metadata.version 3.7-IV0")
    return Held(
        replace(
            cluster,
            topics=topics,
            scram=scram,
            tokens=tokens,
            controllers=controllers,
            brokers=brokers,
            deletions=frozenset(),
            requested_reassignments={},
            generated_broker_ids=0,
        ),
        tuple(losses),
    )


def _held_partition(partition: Partition, level: int) -> Partition:
    replicas = partition.assignment.replicas
    has_directories = level >= DIRECTORIES and set(partition.directories) != {UNKNOWN_DIRECTORY}
    has_leaders = level >= ELIGIBLE_LEADERS
    found = Partition(
        partition.assignment,
        partition.state or LeaderAndIsr(NO_LEADER, 0, replicas),
        partition.directories if has_directories else (),
        partition.eligible_leaders if has_leaders else (),
        partition.last_known_eligible_leaders if has_leaders else (),
    )
    return partition if found == partition else found  # two of each would need much memory


def _held_broker(broker: Broker, level: int) -> Broker:
    return replace(
        broker,
        incarnation_id=broker.incarnation_id or ZERO_TOPIC_ID,
        directories=broker.directories if level >= DIRECTORIES else (),
        is_shutting_down=broker.is_shutting_down and level >= IN_CONTROLLED_SHUTDOWN,
        is_migrating=broker.is_migrating and level >= MIGRATION,
    )


def values(cluster: Cluster) -> Iterator[bytes]:
    """The values of the records of a cluster that `held` has made. Its secrets must be there."""
    return starmap(cluster_metadata.write, _records(cluster))


def _fields(tagged: Mapping[str, Value] = MappingProxyType({}), **fields: Value) -> _Fields:
    """The fields of a record or a struct. Tagged ones that are None are absent."""
    return {**fields, **{name: value for name, value in tagged.items() if value is not None}}


def _records(cluster: Cluster) -> Iterator[tuple[int, int, _Fields]]:
    level = cluster.features.get(METADATA_VERSION, 0)
    # Each level says how later records are read, so the metadata version comes first.
    for name, feature_level in sorted(
        cluster.features.items(), key=lambda item: (item[0] != METADATA_VERSION, item)
    ):
        if name != KRAFT_VERSION:
            yield 12, 0, _fields(name=name, featureLevel=feature_level)
    yield from (_broker(broker_id, each, level) for broker_id, each in sorted(cluster.brokers.items()))
    yield from (_controller(node_id, each) for node_id, each in sorted(cluster.controllers.items()))
    yield from _topics(cluster, level)
    for resource, configs in sorted(cluster.configs.items()):
        for name, value in sorted(configs.items()):
            kind = int(resource.type)
            yield 4, 0, _fields(resourceType=kind, resourceName=resource.name, name=name, value=value)
    for entity, limits in sorted(cluster.quotas.items(), key=lambda item: item[0].path):
        for key, limit in sorted(limits.items()):
            yield 14, 0, _fields(entity=_entity(entity), key=key, value=limit, remove=False)
    if cluster.next_producer_id:
        yield 15, 0, _fields(brokerId=-1, brokerEpoch=-1, nextProducerId=cluster.next_producer_id)
    yield from (_acl(each) for each in sorted(cluster.acls))
    for user, credential in sorted(cluster.scram.items(), key=lambda item: item[0]):
        if credential is not None:
            yield (
                11,
                0,
                _fields(
                    name=user.user,
                    mechanism=_MECHANISM_NUMBERS[user.mechanism],
                    salt=credential.salt,
                    storedKey=credential.stored_key,
                    serverKey=credential.server_key,
                    iterations=credential.iterations,
                ),
            )
    for token_id, token in sorted(cluster.tokens.items()):
        yield (
            10,
            0,
            _fields(
                owner=token.owner,
                requester=token.requester,
                renewers=list(token.renewers),
                issueTimestamp=token.issued_ms,
                maxTimestamp=token.max_ms,
                expirationTimestamp=token.expires_ms,
                tokenId=token_id,
            ),
        )
    if cluster.migration_state:
        yield 21, 0, _fields(zkMigrationState=cluster.migration_state)


def _topics(cluster: Cluster, level: int) -> Iterator[tuple[int, int, _Fields]]:
    for name, topic in sorted(cluster.topics.items()):
        yield 2, 0, _fields(name=name, topicId=topic.topic_id)
        for number, partition in sorted(topic.partitions.items()):
            yield 3, partition_version(level), _partition(topic.topic_id, number, partition)


def partition_version(level: int) -> int:
    """The version of PartitionRecord in a metadata.version."""
    return (level >= DIRECTORIES) + (level >= ELIGIBLE_LEADERS)


def _partition(topic_id: str | None, number: int, partition: Partition) -> _Fields:
    state, assignment = partition.state, partition.assignment
    if state is None:
        raise AssertionError("a partition without a state is not held by KRaft")
    is_recovering = state.recovery_state is not LeaderRecoveryState.RECOVERED
    return _fields(
        {
            "leaderRecoveryState": int(state.recovery_state) if is_recovering else None,
            "eligibleLeaderReplicas": partition.eligible_leaders or None,
            "lastKnownElr": partition.last_known_eligible_leaders or None,
        },
        partitionId=number,
        topicId=topic_id,
        replicas=assignment.replicas,
        isr=state.isr,
        removingReplicas=assignment.removing,
        addingReplicas=assignment.adding,
        leader=state.leader,
        leaderEpoch=state.leader_epoch,
        partitionEpoch=state.partition_epoch,
        directories=partition.directories or [UNKNOWN_DIRECTORY] * len(assignment.replicas),
    )


def _broker(broker_id: int, broker: Broker, level: int) -> tuple[int, int, _Fields]:
    version = (level >= IN_CONTROLLED_SHUTDOWN) + (level >= MIGRATION) + (level >= DIRECTORIES)
    return (
        0,
        version,
        _fields(
            {"logDirs": broker.directories or None},
            brokerId=broker_id,
            isMigratingZkBroker=broker.is_migrating,
            incarnationId=broker.incarnation_id,
            brokerEpoch=broker.epoch,
            endPoints=_endpoints(broker.endpoints),
            features=_supported(broker.features.items()),
            rack=broker.rack,
            fenced=broker.is_fenced,
            inControlledShutdown=broker.is_shutting_down,
        ),
    )


def _controller(node_id: int, controller: Controller) -> tuple[int, int, _Fields]:
    return (
        27,
        0,
        _fields(
            controllerId=node_id,
            incarnationId=controller.incarnation_id or ZERO_TOPIC_ID,
            zkMigrationReady=controller.is_migration_ready,
            endPoints=_endpoints(controller.endpoints),
            features=_supported(controller.features.items()),
        ),
    )


def _endpoints(endpoints: Sequence[Endpoint]) -> list[_Fields]:
    return [
        _fields(
            name=each.listener,
            host=each.host,
            port=each.port,
            securityProtocol=SECURITY_PROTOCOLS.index(each.security_protocol),
        )
        for each in endpoints
    ]


def _supported(features: Iterable[tuple[str, SupportedVersions]]) -> list[_Fields]:
    return [
        _fields(name=name, minSupportedVersion=each.first, maxSupportedVersion=each.last)
        for name, each in sorted(features)
    ]


def _entity(entity: QuotaEntity) -> list[_Fields]:
    parts = [(kind, getattr(entity, attribute)) for attribute, kind in _ENTITY_TYPES]
    return [
        _fields(entityType=kind, entityName=None if part is DEFAULT else part)
        for kind, part in parts
        if part is not None
    ]


def _acl(acl: Acl) -> tuple[int, int, _Fields]:
    """An entry with an id that follows from its content, so that the same cluster makes the same records."""
    pattern = acl.pattern
    return (
        18,
        0,
        _fields(
            id=encode_uuid(hashlib.sha256(str((*acl[1:], *pattern)).encode()).digest()[:16]),
            resourceType=int(pattern.resource_type),
            resourceName=pattern.name,
            patternType=int(pattern.pattern_type),
            principal=acl.principal,
            host=acl.host,
            operation=int(acl.operation),
            permissionType=int(acl.permission),
        ),
    )
