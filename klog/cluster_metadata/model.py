"""A cluster's metadata as one immutable value, whatever form it was read from.

Its parts are those of ZooKeeper's tree and of KRaft's records. Mappings have no order; forms write them
sorted. An entity without configs or quotas is not in its mapping, so equal clusters are equal values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from klog.client.admin import Resource, ResourceType
from klog.config.broker import KEYS_BY_NAME
from klog.config.dynamic import THROTTLES, base_name, passwords
from klog.formats.names import TopicPartition
from klog.metadata.values import Endpoint, LeaderAndIsr, ReplicaAssignment
from klog.protocol.acls import Acl
from klog.security.authentication.scram_credentials import ScramCredential
from klog.security.quotas.entities import QuotaEntity

METADATA_VERSION: Final = "metadata.version"


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition: its replicas, and its leader and ISR (None until the controller has elected one).

    `directories` has the id of the log directory of each replica (KIP-858); it is empty if they are unknown.
    The lists of eligible leader replicas are those of KIP-966.
    """

    assignment: ReplicaAssignment
    state: LeaderAndIsr | None = None
    directories: tuple[str, ...] = ()
    eligible_leaders: tuple[int, ...] = ()
    last_known_eligible_leaders: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic. Its id is None if an old broker created it."""

    topic_id: str | None
    partitions: Mapping[int, Partition]


class ScramUser(NamedTuple):
    """Whose credential, for which mechanism (`SCRAM-SHA-256`)."""

    user: str
    mechanism: str


class SupportedVersions(NamedTuple):
    """The levels of a feature that a node understands."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker's registration. `directories` has the ids of its log directories that are online."""

    endpoints: tuple[Endpoint, ...] = ()
    rack: str | None = None
    epoch: int = -1
    incarnation_id: str | None = None
    features: Mapping[str, SupportedVersions] = field(default_factory=dict)
    directories: tuple[str, ...] = ()
    is_fenced: bool = False
    is_shutting_down: bool = False
    is_migrating: bool = False


@dataclass(frozen=True, slots=True)
class Controller:
    """A KRaft controller's registration."""

    endpoints: tuple[Endpoint, ...] = ()
    incarnation_id: str | None = None
    features: Mapping[str, SupportedVersions] = field(default_factory=dict)
    is_migration_ready: bool = False


class VoterEndpoint(NamedTuple):
    """An address of a voter, by the name of its listener."""

    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Voter:
    """A voter of a dynamic quorum (KIP-853), with the levels of `kraft.version` that it understands."""

    directory_id: str
    endpoints: tuple[VoterEndpoint, ...]
    kraft_versions: SupportedVersions


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A delegation token (KIP-48). Its HMAC is nowhere: brokers make it from their secret and the id."""

    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    max_ms: int
    expires_ms: int


@dataclass(frozen=True, slots=True)
class Cluster:
    """The metadata of a cluster.

    A config's value or a credential is None if it is a secret that was left out. `controller_epoch` is that
    of the last controller (in KRaft: of the quorum's leader). `requested_reassignments` have not begun; they
    are in ZooKeeper only. `generated_broker_ids` counts the ids that were given to brokers.
    """

    cluster_id: str | None = None
    topics: Mapping[str, Topic] = field(default_factory=dict)
    configs: Mapping[Resource, Mapping[str, str | None]] = field(default_factory=dict)
    acls: frozenset[Acl] = frozenset()
    scram: Mapping[ScramUser, ScramCredential | None] = field(default_factory=dict)
    quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    next_producer_id: int = 0
    tokens: Mapping[str, DelegationToken] = field(default_factory=dict)
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    controllers: Mapping[int, Controller] = field(default_factory=dict)
    voters: Mapping[int, Voter] = field(default_factory=dict)
    controller_epoch: int = 0
    deletions: frozenset[str] = frozenset()
    requested_reassignments: Mapping[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    generated_broker_ids: int = 0
    migration_state: int = 0

    @property
    def partitions(self) -> Iterator[tuple[TopicPartition, Partition]]:
        """All partitions in the order of their topics' names and numbers."""
        for name, topic in sorted(self.topics.items()):
            for number, partition in sorted(topic.partitions.items()):
                yield TopicPartition(name, number), partition

    @property
    def reassignments(self) -> dict[TopicPartition, ReplicaAssignment]:
        """The reassignments under way."""
        return {
            partition: found.assignment
            for partition, found in self.partitions
            if found.assignment.is_being_reassigned
        }

    @property
    def hidden_secrets(self) -> list[str]:
        """What was left out, in words. A cluster with hidden secrets cannot be written into another form."""
        hidden = [
            f"{name} of {resource.type.name.lower()} {resource.name or 'default'}"
            for resource, configs in sorted(self.configs.items())
            for name, value in sorted(configs.items())
            if value is None
        ]
        return hidden + [
            f"the {user.mechanism} credential of user {user.user}"
            for user, credential in sorted(self.scram.items(), key=lambda item: item[0])
            if credential is None
        ]

    def without_secrets(self) -> Cluster:
        """The same cluster with None in place of passwords and credentials."""
        return replace(
            self,
            scram=dict.fromkeys(self.scram),
            configs={
                resource: {
                    name: None if is_secret(resource, name) else value for name, value in configs.items()
                }
                for resource, configs in self.configs.items()
            },
        )


def is_secret(resource: Resource, config: str) -> bool:
    """Whether the value of a config must not be shown.

    As in DescribeConfigs, that is so for passwords, and for configs of brokers that nobody knows.
    """
    if resource.type is not ResourceType.BROKER:
        return False
    if passwords([config]):
        return True
    return base_name(config) not in KEYS_BY_NAME and config not in THROTTLES
