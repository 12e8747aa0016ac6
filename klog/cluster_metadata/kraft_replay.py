"""Replays records of KRaft's metadata log into a cluster's metadata.

Rules: Kafka's `MetadataDelta` and the deltas of its parts. Records between BeginTransactionRecord and
EndTransactionRecord count when the transaction ends (KIP-868), and not at all if it is aborted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from klog.client.admin import Resource, ResourceType
from klog.cluster_metadata.kraft_values import (
    changed_partition,
    directories_of,
    endpoints_of,
    exact,
    ids,
    member,
    optional_text,
    quota_entity,
    scram_user,
    supported_versions,
    tagged,
    text,
    voter_of,
)
from klog.cluster_metadata.model import (
    Broker,
    Cluster,
    Controller,
    DelegationToken,
    Partition,
    ScramUser,
    Topic,
    Voter,
)
from klog.formats.errors import FormatError
from klog.formats.names import is_legal_topic
from klog.formats.values import Value
from klog.metadata.values import LeaderAndIsr, LeaderRecoveryState, ReplicaAssignment
from klog.protocol.acls import Acl, AclOperation, AclResourceType, PatternType, Permission, ResourcePattern
from klog.security.authentication.scram_credentials import ScramCredential
from klog.security.quotas.entities import QuotaEntity

KRAFT_VERSION: Final = "kraft.version"
_FENCE, _UNFENCE = 1, -1
_SHUTTING_DOWN: Final = 1

_Key = TypeVar("_Key")


class MetadataReplay:
    """What records have said so far. Records come in the order of their offsets."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}  # of topics, by id
        self._topic_ids: dict[str, str] = {}  # by name
        self._partitions: dict[str, dict[int, Partition]] = {}
        self._configs: dict[Resource, dict[str, str]] = {}
        self._acls: dict[str, Acl] = {}
        self._scram: dict[ScramUser, ScramCredential] = {}
        self._quotas: dict[QuotaEntity, dict[str, float]] = {}
        self._features: dict[str, int] = {}
        self._tokens: dict[str, DelegationToken] = {}
        self._brokers: dict[int, Broker] = {}
        self._controllers: dict[int, Controller] = {}
        self._voters: dict[int, Voter] = {}
        self._next_producer_id = 0
        self._migration_state = 0
        self._open: list[tuple[int, Value]] | None = None

    @property
    def is_in_transaction(self) -> bool:
        """Whether a metadata transaction is open: its records do not count yet."""
        return self._open is not None

    @property
    def voter_ids(self) -> set[int]:
        """The voters of a dynamic quorum."""
        return set(self._voters)

    def apply(self, record: Value) -> None:
        """Takes a parsed record of a type and version that are known. Raises FormatError."""
        kind, fields = record["type"], record["fields"]
        if kind == _BEGIN:
            self._open = []
        elif kind == _ABORT:
            self._open = None
        elif kind == _END:
            ended, self._open = self._open, None
            for each in ended or ():
                self._apply(*each)
        elif self._open is not None:
            self._open.append((kind, fields))
        else:
            self._apply(kind, fields)

    def _apply(self, kind: int, fields: Value) -> None:
        handler = _HANDLERS.get(kind)
        if handler is not None:
            handler(self, fields)

    def apply_control(self, kind: str, value: Value) -> None:
        """Takes a control record of the quorum: its voters and `kraft.version` are part of the metadata."""
        if kind == "KRAFT_VERSION":
            self._features[KRAFT_VERSION] = value["kRaftVersion"]
        elif kind == "KRAFT_VOTERS":
            self._voters = {each["voterId"]: voter_of(each) for each in value["voters"]}

    def cluster(self, cluster_id: str | None, controller_epoch: int) -> Cluster:
        """The metadata that the records make."""
        return Cluster(
            cluster_id=cluster_id,
            topics={
                name: Topic(topic_id, dict(sorted(self._partitions[topic_id].items())))
                for topic_id, name in self._names.items()
            },
            configs={resource: dict(each) for resource, each in self._configs.items() if each},
            acls=frozenset(self._acls.values()),
            scram=dict(self._scram),
            quotas={entity: dict(each) for entity, each in self._quotas.items() if each},
            features={name: level for name, level in self._features.items() if level},
            next_producer_id=self._next_producer_id,
            tokens=dict(self._tokens),
            brokers=dict(self._brokers),
            controllers=dict(self._controllers),
            voters=dict(self._voters),
            controller_epoch=controller_epoch,
            migration_state=self._migration_state,
        )

    # --- topics ---

    def _topic(self, fields: Value) -> None:
        name = fields["name"]
        if not is_legal_topic(name):
            raise FormatError(f"{name[:100]!r} is no name of a topic")
        known = self._topic_ids.setdefault(name, fields["topicId"])
        if known != fields["topicId"]:
            raise FormatError(f"topic {name} has two ids, {known} and {fields['topicId']}")
        other = self._names.get(fields["topicId"], name)
        if other != name:
            raise FormatError(f"topics {other} and {name} have the same id, {fields['topicId']}")
        self._names[fields["topicId"]] = name
        self._partitions[fields["topicId"]] = {}

    def _remove_topic(self, fields: Value) -> None:
        name = _found(self._names, fields["topicId"], "topic")
        del self._names[fields["topicId"]], self._partitions[fields["topicId"]], self._topic_ids[name]
        self._configs.pop(Resource(ResourceType.TOPIC, name), None)

    def _partition(self, fields: Value) -> None:
        partitions = _found(self._partitions, fields["topicId"], "topic")
        assignment = ReplicaAssignment(
            tuple(fields["replicas"]), tuple(fields["addingReplicas"]), tuple(fields["removingReplicas"])
        )
        state = LeaderAndIsr(
            fields["leader"],
            fields["leaderEpoch"],
            tuple(fields["isr"]),
            member(LeaderRecoveryState, tagged(fields, "leaderRecoveryState") or 0),
            fields["partitionEpoch"],
        )
        partitions[fields["partitionId"]] = Partition(
            assignment,
            state,
            directories_of(fields.get("directories")),
            ids(tagged(fields, "eligibleLeaderReplicas")) or (),
            ids(tagged(fields, "lastKnownElr")) or (),
        )

    def _change_partition(self, fields: Value) -> None:
        partitions = _found(self._partitions, fields["topicId"], "topic")
        old = _found(partitions, fields["partitionId"], "partition")
        partitions[fields["partitionId"]] = changed_partition(old, fields)

    def _clear_eligible_leaders(self, fields: Value) -> None:
        for topic_id, name in self._names.items():
            if fields["topicName"] in ("", name):
                self._partitions[topic_id] = {
                    number: replace(each, eligible_leaders=(), last_known_eligible_leaders=())
                    for number, each in self._partitions[topic_id].items()
                }

    # --- configs, security, quotas ---

    def _config(self, fields: Value) -> None:
        resource = Resource(member(ResourceType, fields["resourceType"]), text(fields["resourceName"]))
        _set_or_remove(self._configs, resource, text(fields["name"]), optional_text(fields["value"]))

    def _quota(self, fields: Value) -> None:
        value = None if fields["remove"] else fields["value"]
        if value is not None and not 0 <= value < float("inf"):
            raise FormatError(f"the quota {fields['key']} is {value}")
        _set_or_remove(self._quotas, quota_entity(fields["entity"]), text(fields["key"]), value)

    def _scram_credential(self, fields: Value) -> None:
        self._scram[scram_user(fields)] = ScramCredential(
            bytes(fields["salt"]),
            bytes(fields["storedKey"]),
            bytes(fields["serverKey"]),
            fields["iterations"],
        )

    def _remove_scram_credential(self, fields: Value) -> None:
        self._scram.pop(scram_user(fields), None)

    def _acl(self, fields: Value) -> None:
        self._acls[fields["id"]] = Acl(
            ResourcePattern(
                exact(AclResourceType, fields["resourceType"]),
                text(fields["resourceName"]),
                exact(PatternType, fields["patternType"]),
            ),
            text(fields["principal"]),
            text(fields["host"]),
            exact(AclOperation, fields["operation"]),
            exact(Permission, fields["permissionType"]),
        )

    def _remove_acl(self, fields: Value) -> None:
        self._acls.pop(fields["id"], None)

    def _token(self, fields: Value) -> None:
        self._tokens[text(fields["tokenId"])] = DelegationToken(
            text(fields["owner"]),
            text(fields["requester"]),
            tuple(map(text, fields["renewers"])),
            fields["issueTimestamp"],
            fields["maxTimestamp"],
            fields["expirationTimestamp"],
        )

    def _remove_token(self, fields: Value) -> None:
        self._tokens.pop(fields["tokenId"], None)

    # --- nodes, features, producer ids ---

    def _register_broker(self, fields: Value) -> None:
        self._brokers[fields["brokerId"]] = Broker(
            endpoints_of(fields["endPoints"]),
            optional_text(fields["rack"]),
            fields["brokerEpoch"],
            fields["incarnationId"],
            supported_versions(fields["features"]),
            tuple(tagged(fields, "logDirs") or ()),
            fields["fenced"],
            fields.get("inControlledShutdown", False),
            fields.get("isMigratingZkBroker", False),
        )

    def _unregister_broker(self, fields: Value) -> None:
        self._brokers.pop(fields["brokerId"], None)

    def _fence(self, fields: Value) -> None:
        self._change_broker(fields["id"], is_fenced=True)

    def _unfence(self, fields: Value) -> None:
        self._change_broker(fields["id"], is_fenced=False)

    def _change_broker(self, broker_id: int, **changes: Value) -> None:
        broker = _found(self._brokers, broker_id, "broker")
        self._brokers[broker_id] = replace(broker, **changes)

    def _change_registration(self, fields: Value) -> None:
        changes: dict[str, Value] = {}
        fenced = tagged(fields, "fenced")
        if fenced in (_FENCE, _UNFENCE):
            changes["is_fenced"] = fenced == _FENCE
        if tagged(fields, "inControlledShutdown") == _SHUTTING_DOWN:
            changes["is_shutting_down"] = True
        directories = tagged(fields, "logDirs")
        if directories:
            changes["directories"] = tuple(directories)
        self._change_broker(fields["brokerId"], **changes)

    def _register_controller(self, fields: Value) -> None:
        self._controllers[fields["controllerId"]] = Controller(
            endpoints_of(fields["endPoints"]),
            fields["incarnationId"],
            supported_versions(fields["features"]),
            fields["zkMigrationReady"],
        )

    def _feature(self, fields: Value) -> None:
        self._features[text(fields["name"])] = fields["featureLevel"]

    def _producer_ids(self, fields: Value) -> None:
        self._next_producer_id = fields["nextProducerId"]

    def _migration(self, fields: Value) -> None:
        self._migration_state = fields["zkMigrationState"]


_BEGIN, _END, _ABORT = 23, 24, 25
_HANDLERS: Final[Mapping[int, Callable[[MetadataReplay, Value], None]]] = {
    0: MetadataReplay._register_broker,
    1: MetadataReplay._unregister_broker,
    2: MetadataReplay._topic,
    3: MetadataReplay._partition,
    4: MetadataReplay._config,
    5: MetadataReplay._change_partition,
    7: MetadataReplay._fence,
    8: MetadataReplay._unfence,
    9: MetadataReplay._remove_topic,
    10: MetadataReplay._token,
    11: MetadataReplay._scram_credential,
    12: MetadataReplay._feature,
    14: MetadataReplay._quota,
    15: MetadataReplay._producer_ids,
    17: MetadataReplay._change_registration,
    18: MetadataReplay._acl,
    19: MetadataReplay._remove_acl,
    21: MetadataReplay._migration,
    22: MetadataReplay._remove_scram_credential,
    26: MetadataReplay._remove_token,
    27: MetadataReplay._register_controller,
    28: MetadataReplay._clear_eligible_leaders,
}


def _found(known: Mapping[_Key, Value], key: _Key, what: str) -> Value:
    if key not in known:
        raise FormatError(f"{what} {key} is changed, but was never created")
    return known[key]


def _set_or_remove(known: dict[_Key, dict[str, Value]], key: _Key, name: str, value: Value) -> None:
    if value is not None:
        known.setdefault(key, {})[name] = value
    elif key in known:
        known[key].pop(name, None)
