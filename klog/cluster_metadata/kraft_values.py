"""Values of a cluster's metadata from fields of records of KRaft's metadata log. All raise FormatError."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, TypeVar

from klog.cluster_metadata.model import Partition, ScramUser, SupportedVersions, Voter, VoterEndpoint
from klog.config.security_protocols import SECURITY_PROTOCOLS
from klog.formats import schema
from klog.formats.errors import FormatError
from klog.formats.values import Value
from klog.metadata.values import ZERO_TOPIC_ID, Endpoint, LeaderAndIsr, LeaderRecoveryState, ReplicaAssignment
from klog.security.authentication.scram_administration import MECHANISMS
from klog.security.quotas.entities import DEFAULT, Part, QuotaEntity

UNKNOWN_DIRECTORY: Final = ZERO_TOPIC_ID
"""`DirectoryId.MIGRATING`: the replica's directory was never told, as in records without directories."""
_ENTITY_PARTS: Final = {"user": "user", "client-id": "client_id", "ip": "ip"}
_LEADER_UNCHANGED: Final = -2

_Member = TypeVar("_Member", bound=IntEnum)


def changed_partition(old: Partition, fields: Value) -> Partition:
    """A partition after a PartitionChangeRecord, in the next partition epoch; a leader begins an epoch."""
    state, assignment = old.state, old.assignment
    if state is None:
        raise FormatError("a partition without a state is changed")
    leader, isr = tagged(fields, "leader"), ids(tagged(fields, "isr"))
    recovery = tagged(fields, "leaderRecoveryState")
    has_leader = leader is not None and leader != _LEADER_UNCHANGED
    directories = tagged(fields, "directories")
    replicas = ids(tagged(fields, "replicas"))
    if replicas is not None and directories is None and len(replicas) != len(old.directories):
        directories = ()
    return Partition(
        ReplicaAssignment(
            _kept(replicas, assignment.replicas),
            _kept(ids(tagged(fields, "addingReplicas")), assignment.adding),
            _kept(ids(tagged(fields, "removingReplicas")), assignment.removing),
        ),
        LeaderAndIsr(
            leader if has_leader else state.leader,
            state.leader_epoch + has_leader,
            _kept(isr, state.isr),
            state.recovery_state if recovery in (None, -1) else member(LeaderRecoveryState, recovery),
            state.partition_epoch + 1,
        ),
        old.directories if directories is None else directories_of(directories),
        _kept(ids(tagged(fields, "eligibleLeaderReplicas")), old.eligible_leaders),
        _kept(ids(tagged(fields, "lastKnownElr")), old.last_known_eligible_leaders),
    )


def _kept(new: tuple[int, ...] | None, old: tuple[int, ...]) -> tuple[int, ...]:
    return old if new is None else new


def ids(found: Value) -> tuple[int, ...] | None:
    return None if found is None else tuple(found)


def tagged(fields: Value, name: str) -> Value:
    """A tagged field; None if it is absent."""
    return schema.tagged(fields, name)


def directories_of(found: Iterable[str] | None) -> tuple[str, ...]:
    directories = tuple(found or ())
    return () if set(directories) <= {UNKNOWN_DIRECTORY} else directories


def member(kind: type[_Member], number: int) -> _Member:
    if number not in kind.__members__.values():
        raise FormatError(f"{number} is no {kind.__name__}")
    return kind(number)


def exact(kind: type[_Member], number: int) -> _Member:
    """One that is not for filters only."""
    found = member(kind, number)
    if found.name in ("ANY", "MATCH"):
        raise FormatError(f"{found.name} is for filters, not for ACLs")
    return found


def optional_text(value: str | None) -> str | None:
    return None if value is None else text(value)


def text(value: str) -> str:
    """Text that can be written: a definition reads invalid bytes as lone surrogates."""
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise FormatError(f"{value[:100]!r} is not UTF-8") from None
    return value


def quota_entity(parts: Value) -> QuotaEntity:
    found: dict[str, Part] = {}
    for part in parts:
        field = _ENTITY_PARTS.get(part["entityType"])
        if field is None:
            raise FormatError(f"{part['entityType'][:100]!r} is no type of entities with quotas")
        found[field] = DEFAULT if part["entityName"] is None else text(part["entityName"])
    return QuotaEntity(**found)


def scram_user(fields: Value) -> ScramUser:
    mechanism = MECHANISMS.get(fields["mechanism"])
    if mechanism is None:
        raise FormatError(f"{fields['mechanism']} is no SCRAM mechanism")
    return ScramUser(text(fields["name"]), mechanism)


def endpoints_of(found: Value) -> tuple[Endpoint, ...]:
    endpoints = []
    for each in found:
        number = each["securityProtocol"]
        if not 0 <= number < len(SECURITY_PROTOCOLS):
            raise FormatError(f"{number} is no security protocol")
        protocol = SECURITY_PROTOCOLS[number]
        endpoints.append(Endpoint(text(each["name"]), protocol, text(each["host"]), each["port"]))
    return tuple(endpoints)


def supported_versions(features: Value) -> dict[str, SupportedVersions]:
    return {
        text(each["name"]): SupportedVersions(each["minSupportedVersion"], each["maxSupportedVersion"])
        for each in features
    }


def voter_of(found: Value) -> Voter:
    versions = found["kRaftVersionFeature"]
    return Voter(
        found["voterDirectoryId"],
        tuple(
            VoterEndpoint(text(each["name"]), text(each["host"]), each["port"]) for each in found["endpoints"]
        ),
        SupportedVersions(versions["minSupportedVersion"], versions["maxSupportedVersion"]),
    )
