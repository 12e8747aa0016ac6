"""Reads a cluster's metadata from the metadata tree: a live ZooKeeper's, klog's own, or one of files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from klog.client.admin import Resource, ResourceType
from klog.cluster_metadata import token_znodes
from klog.cluster_metadata.forms import OnProblem, Reading, raise_problem
from klog.cluster_metadata.model import (
    Broker,
    Cluster,
    Partition,
    ScramUser,
    SupportedVersions,
    Topic,
)
from klog.formats.constants import INT32_MAX
from klog.formats.errors import FormatError, KlogError, UsageError
from klog.formats.names import TopicPartition, is_legal_topic
from klog.metadata import paths, znodes
from klog.metadata.errors import InvalidZnodeError, NoNodeError
from klog.metadata.store import Node
from klog.metadata.values import BrokerRegistration
from klog.protocol.acls import Acl, ResourcePattern
from klog.security.authentication.scram_credentials import HASHES, ScramCredential, parse_credential
from klog.security.authorization import acl_znodes
from klog.security.quotas.entities import QuotaEntity, entity_of_path, limits_in, quotas_of

MIGRATION: Final = "/migration"
ENTITIES: Final[Mapping[ResourceType, str]] = {
    ResourceType.TOPIC: "topics",
    ResourceType.BROKER: "brokers",
    ResourceType.GROUP: "groups",
}
"""The folders of configs. Those of groups are klog's own: Kafka has them in KRaft only."""
_MIN_VERSION: Final = "min_version"
_MAX_VERSION: Final = "max_version"

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Tree(Protocol):
    """What is read of a tree. A `MetadataStore` is one."""

    def children(self, path: str) -> list[str]:
        """The names of a node's children. Raises NoNodeError."""

    def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Nodes; None for those that do not exist."""


def read(tree: Tree, form: str, on_problem: OnProblem = raise_problem) -> Reading:
    """The cluster in a tree. Raises `InvalidZnodeError`, `StoreError`."""
    return _Reader(tree, on_problem).read(form)


class _Reader:
    def __init__(self, tree: Tree, on_problem: OnProblem) -> None:
        self._tree = tree
        self._on_problem = on_problem
        self._notes: list[str] = []

    def read(self, form: str) -> Reading:
        users = self._users()
        cluster = Cluster(
            cluster_id=self._single(paths.CLUSTER_ID, znodes.decode_cluster_id, None),
            topics=self._topics(),
            configs=self._configs(),
            acls=self._acls(),
            scram={user: credential for found, _ in users.values() for user, credential in found.items()},
            quotas={entity: limits for entity, (_, limits) in users.items() if limits},
            features=self._single(paths.FEATURE, lambda data: znodes.decode_features(data).features, {}),
            next_producer_id=self._single(
                paths.PRODUCER_ID_BLOCK, lambda data: znodes.decode_producer_id_block(data).last + 1, 0
            ),
            tokens=self._each_data(
                self._children(token_znodes.TOKENS), token_znodes.path, token_znodes.decode
            ),
            brokers=self._brokers(),
            controller_epoch=self._single(paths.CONTROLLER_EPOCH, znodes.decode_epoch, 0),
            deletions=frozenset(self._legal(self._children(paths.DELETE_TOPICS), paths.DELETE_TOPICS)),
            requested_reassignments=self._requested_reassignments(),
            generated_broker_ids=self._generated_broker_ids(),
        )
        self._note_what_stays()
        return Reading(cluster, form, tuple(self._notes))

    def _children(self, path: str) -> list[str]:
        try:
            return self._tree.children(path)
        except NoNodeError:
            return []

    def _single(self, path: str, decode: Callable[[bytes | None], _Value], absent: _Value) -> _Value:
        """The value of a node; `absent` without one, or if it has no data."""
        node = self._tree.get_many([path])[0]
        if node is None or not node.data:
            return absent
        try:
            return decode(node.data)
        except KlogError as error:
            self._on_problem(error)
            return absent

    def _each_data(
        self,
        keys: Iterable[_Key],
        path: Callable[[_Key], str],
        decode: Callable[[_Key, bytes | None], _Value],
    ) -> dict[_Key, _Value]:
        return self._each(keys, path, lambda key, node: decode(key, node.data))

    def _each(
        self, keys: Iterable[_Key], path: Callable[[_Key], str], decode: Callable[[_Key, Node], _Value]
    ) -> dict[_Key, _Value]:
        """The values of those nodes that exist."""
        wanted = list(keys)
        found = {}
        nodes = self._tree.get_many([path(key) for key in wanted])
        for key, node in zip(wanted, nodes, strict=True):
            if node is not None:
                try:
                    found[key] = decode(key, node)
                except KlogError as error:
                    self._on_problem(error)
        return found

    def _topics(self) -> dict[str, Topic]:
        assignments = self._each_data(self._children(paths.TOPICS), paths.topic, znodes.decode_topic)
        numbers = [partition for each in assignments.values() for partition, _ in each]
        states = self._each(numbers, paths.partition_state, znodes.decode_partition_state)
        topics = {}
        for name, assignment in assignments.items():
            partitions = {}
            for partition, replicas in assignment:
                state = states.get(partition)
                partitions[partition.partition] = Partition(
                    replicas, None if state is None else state.leader_and_isr
                )
            topics[name] = Topic(assignment.topic_id, partitions)
        return topics

    def _brokers(self) -> dict[int, Broker]:
        names = self._children(paths.BROKER_IDS)
        ids = [int(name) for name in names if name.isdecimal() and int(name) <= INT32_MAX]
        return self._each(ids, paths.broker, _broker)

    def _configs(self) -> dict[Resource, Mapping[str, str | None]]:
        found: dict[Resource, Mapping[str, str | None]] = {}
        for kind, folder in ENTITIES.items():
            entities = [f"{folder}/{name}" for name in self._children(paths.config(folder))]
            for path, configs in self._each_data(entities, paths.config, znodes.decode_config).items():
                name = znodes.desanitize(path.partition("/")[2])
                if configs:
                    found[Resource(kind, "" if name == paths.DEFAULT_ENTITY else name)] = configs
        return found

    def _users(self) -> dict[QuotaEntity, tuple[dict[ScramUser, ScramCredential], dict[str, float]]]:
        """Credentials and quotas of users, clients and addresses."""
        found = {}
        entities = list(self._quota_entities())
        for path, configs in self._each_data(entities, paths.config, znodes.decode_config).items():
            entity = entity_of_path(path)
            if entity is not None:
                found[entity] = (self._credentials(entity, configs), self._limits(entity, configs))
                known = {each.value for each in quotas_of(entity)}
                if entity == QuotaEntity(user=entity.user) and isinstance(entity.user, str):
                    known.update(HASHES)
                self._notes += [
                    f"{path} has a config that is neither a quota nor a credential: {name}"
                    for name in sorted(configs.keys() - known)
                ]
        return found

    def _quota_entities(self) -> Iterator[str]:
        for kind in ("clients", "ips", "users"):
            for name in self._children(paths.config(kind)):
                yield f"{kind}/{name}"
                if kind == "users":
                    clients = f"{kind}/{name}/clients"
                    yield from (f"{clients}/{client}" for client in self._children(paths.config(clients)))

    def _credentials(
        self, entity: QuotaEntity, configs: Mapping[str, str]
    ) -> dict[ScramUser, ScramCredential]:
        found: dict[ScramUser, ScramCredential] = {}
        if not isinstance(entity.user, str) or entity.client_id is not None:
            return found
        for mechanism in sorted(HASHES.keys() & configs.keys()):
            try:
                found[ScramUser(entity.user, mechanism)] = parse_credential(configs[mechanism])
            except FormatError as error:
                path = paths.config(entity.path)
                self._on_problem(
                    InvalidZnodeError(f"znode {path} has an invalid {mechanism} credential: {error.what}")
                )
        return found

    def _limits(self, entity: QuotaEntity, configs: Mapping[str, str]) -> dict[str, float]:
        try:
            return {quota.value: limit for quota, limit in limits_in(entity, configs).items()}
        except UsageError as error:
            self._on_problem(InvalidZnodeError(f"znode {paths.config(entity.path)}: {error.what}"))
            return {}

    def _requested_reassignments(self) -> dict[TopicPartition, tuple[int, ...]]:
        path = paths.REASSIGN_PARTITIONS
        none: dict[TopicPartition, tuple[int, ...]] = {}
        found = self._single(path, znodes.decode_reassignments, none)
        legal = self._legal({partition.topic for partition in found}, path)
        return {partition: replicas for partition, replicas in found.items() if partition.topic in legal}

    def _legal(self, topics: Collection[str], path: str) -> set[str]:
        for name in sorted(topics):
            if not is_legal_topic(name):
                self._on_problem(InvalidZnodeError(f"znode {path} names no topic: {name[:100]!r}"))
        return set(filter(is_legal_topic, topics))

    def _acls(self) -> frozenset[Acl]:
        patterns = [
            ResourcePattern(kind, name, pattern_type)
            for pattern_type in acl_znodes.PATTERN_TYPES
            for kind in acl_znodes.RESOURCE_TYPES
            for name in self._children(acl_znodes.type_path(pattern_type, kind))
        ]
        return frozenset().union(
            *self._each_data(patterns, acl_znodes.pattern_path, acl_znodes.decode_acls).values()
        )

    def _generated_broker_ids(self) -> int:
        node = self._tree.get_many([paths.BROKER_SEQUENCE])[0]
        return 0 if node is None else node.stat.version

    def _note_what_stays(self) -> None:
        election, migration = self._tree.get_many([paths.PREFERRED_REPLICA_ELECTION, MIGRATION])
        if election is not None:
            self._notes.append(
                "an election of preferred leaders was requested and is not part of the metadata"
            )
        groups = len(self._children(paths.CONSUMERS))
        if groups:
            self._notes.append(f"the offsets of {groups} old groups are in {paths.CONSUMERS} and stay there")
        if migration is not None:
            self._notes.append("a migration to KRaft has begun: KRaft's controllers may have later metadata")


def _broker(broker_id: int, node: Node) -> Broker:
    found: BrokerRegistration = znodes.decode_broker(broker_id, node)
    features = {
        name: SupportedVersions(versions.get(_MIN_VERSION, 0), versions.get(_MAX_VERSION, 0))
        for name, versions in found.features.items()
    }
    return Broker(found.endpoints, found.rack, found.epoch, features=features)


def partition_paths(topic: str, number: int) -> tuple[str, str]:
    """The nodes of a partition and of its state."""
    partition = TopicPartition(topic, number)
    return paths.partition(partition), paths.partition_state(partition)
