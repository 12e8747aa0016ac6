"""Strategies for a cluster's metadata: values that any form could hold."""

from __future__ import annotations

from typing import TypeVar

from hypothesis import strategies as st

from klog.client.admin import Resource, ResourceType
from klog.cluster_metadata.kraft_values import UNKNOWN_DIRECTORY
from klog.cluster_metadata.model import (
    Broker,
    Cluster,
    Controller,
    DelegationToken,
    Partition,
    ScramUser,
    SupportedVersions,
    Topic,
    Voter,
    VoterEndpoint,
)
from klog.config.security_protocols import SECURITY_PROTOCOLS
from klog.formats.constants import INT32_MAX, INT64_MAX
from klog.formats.names import TopicPartition
from klog.metadata.values import Endpoint, LeaderAndIsr, LeaderRecoveryState, ReplicaAssignment
from klog.protocol.acls import Acl, AclOperation, AclResourceType, PatternType, Permission, ResourcePattern
from klog.security.authentication.scram_credentials import HASHES, ScramCredential
from klog.security.quotas.entities import DEFAULT, QuotaEntity, quotas_of
from tests.strategies import int64s, topics, uuids

_T = TypeVar("_T")
ids = st.integers(0, 9) | st.integers(0, INT32_MAX)
epochs = st.integers(0, 100) | st.integers(0, INT32_MAX - 1)
words = st.from_regex(r"[a-zA-Z0-9.*/%~ äß☃-]{1,12}", fullmatch=True).filter(
    lambda word: word.strip() == word
)
config_names = st.from_regex(r"[a-z]{1,8}(\.[a-z]{1,8}){0,2}", fullmatch=True)
configs = st.dictionaries(
    config_names, st.text(st.characters(codec="utf-8"), max_size=20), min_size=1, max_size=3
)


def _some(
    keys: st.SearchStrategy[_T], values: st.SearchStrategy[object]
) -> st.SearchStrategy[dict[_T, object]]:
    return st.dictionaries(keys, values, max_size=3)


@st.composite
def assignments(draw: st.DrawFn) -> ReplicaAssignment:
    """A partition's replicas, at times with a reassignment under way."""
    replicas = tuple(draw(st.lists(ids, min_size=1, max_size=4, unique=True)))
    split = sorted((draw(st.integers(0, len(replicas))), draw(st.integers(0, len(replicas)))))
    return ReplicaAssignment(replicas, replicas[: split[0]], replicas[split[1] :])


@st.composite
def partitions(draw: st.DrawFn) -> Partition:
    """A partition with or without a state, and with the directory of each replica or of none."""
    assignment = draw(assignments())
    replicas = assignment.replicas
    some_of = st.lists(st.sampled_from(replicas), unique=True).map(tuple)
    state = draw(
        st.none()
        | st.builds(
            LeaderAndIsr,
            st.sampled_from((-1, *replicas)),
            epochs,
            some_of,
            st.sampled_from(LeaderRecoveryState),
            epochs,
        )
    )
    directories = draw(
        st.just(()) | st.lists(uuids, min_size=len(replicas), max_size=len(replicas)).map(tuple)
    )
    known = directories if set(directories) != {UNKNOWN_DIRECTORY} else ()  # nobody writes only unknown ones
    return Partition(assignment, state, known, draw(some_of), draw(some_of))


_partition_maps = st.lists(partitions(), min_size=1, max_size=3).map(lambda found: dict(enumerate(found)))
acls = st.builds(
    Acl,
    st.builds(
        ResourcePattern,
        st.sampled_from([kind for kind in AclResourceType if kind is not AclResourceType.ANY]),
        words.map(lambda word: word.replace("/", "-")),
        st.sampled_from((PatternType.LITERAL, PatternType.PREFIXED)),
    ),
    words.map(lambda word: f"User:{word}"),
    words,
    st.sampled_from([operation for operation in AclOperation if operation is not AclOperation.ANY]),
    st.sampled_from((Permission.DENY, Permission.ALLOW)),
)
credentials = st.builds(
    ScramCredential, st.binary(max_size=8), st.binary(max_size=8), st.binary(max_size=8), epochs
)
_parts = st.just(DEFAULT) | words
quota_entities = st.one_of(
    st.builds(QuotaEntity, _parts, st.none() | _parts, st.none()),
    st.builds(QuotaEntity, st.none(), _parts, st.none()),
    st.builds(QuotaEntity, st.none(), st.none(), _parts),
)


@st.composite
def quotas(draw: st.DrawFn) -> dict[QuotaEntity, dict[str, float]]:
    """Quotas of some entities, whole numbers where Kafka wants them."""
    whole, any_number = st.integers(1, INT32_MAX).map(float), st.floats(0.01, 1e12)
    return {
        entity: {
            kind.value: draw(whole if kind.is_whole else any_number)
            for kind in draw(st.lists(st.sampled_from(quotas_of(entity)), min_size=1, unique=True))
        }
        for entity in draw(st.lists(quota_entities, max_size=3, unique=True))
    }


_hosts = st.from_regex(r"[a-z0-9.-]{1,10}", fullmatch=True)
_listeners = st.from_regex(r"[A-Z_]{1,8}", fullmatch=True)
_ports = st.integers(0, 65535)
_endpoints = st.lists(
    st.builds(Endpoint, _listeners, st.sampled_from(sorted(SECURITY_PROTOCOLS)), _hosts, _ports),
    max_size=3,
    unique_by=lambda endpoint: endpoint.listener,
).map(tuple)
_versions = st.builds(SupportedVersions, st.integers(0, 30), st.integers(0, 30))
_features = _some(config_names, _versions)
brokers = st.builds(
    Broker,
    _endpoints,
    st.none() | words,
    int64s,
    st.none() | uuids,
    _features,
    st.lists(uuids, max_size=2).map(tuple),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
voters = st.builds(
    Voter,
    uuids,
    st.lists(
        st.builds(VoterEndpoint, _listeners, _hosts, _ports),
        max_size=2,
        unique_by=lambda endpoint: endpoint.listener,
    ).map(tuple),
    _versions,
)
tokens = st.builds(
    DelegationToken,
    words.map(lambda word: f"User:{word}"),
    words.map(lambda word: f"User:{word}"),
    st.lists(words.map(lambda word: f"User:{word}"), max_size=2).map(tuple),
    st.integers(0, INT64_MAX),
    st.integers(0, INT64_MAX),
    st.integers(0, INT64_MAX),
)
resources = st.one_of(
    st.builds(Resource, st.just(ResourceType.TOPIC), topics),
    st.builds(Resource, st.just(ResourceType.BROKER), st.just("") | ids.map(str)),
    st.builds(Resource, st.sampled_from((ResourceType.CLIENT_METRICS, ResourceType.GROUP)), words),
)
clusters = st.builds(
    Cluster,
    cluster_id=st.none() | uuids,
    topics=_some(topics, st.builds(Topic, st.none() | uuids, _partition_maps)),
    configs=_some(resources, configs),
    acls=st.frozensets(acls, max_size=4),
    scram=_some(st.builds(ScramUser, words, st.sampled_from(sorted(HASHES))), credentials),
    quotas=quotas(),
    features=_some(config_names, st.integers(0, 2**15 - 1)),
    next_producer_id=st.just(0) | st.integers(0, INT64_MAX),
    tokens=_some(uuids, tokens),
    brokers=_some(ids, brokers),
    controllers=_some(ids, st.builds(Controller, _endpoints, uuids, _features, st.booleans())),
    voters=_some(ids, voters),
    controller_epoch=epochs,
    deletions=st.frozensets(topics, max_size=2),
    requested_reassignments=_some(
        st.builds(TopicPartition, topics, ids), st.lists(ids, min_size=1, unique=True).map(tuple)
    ),
    generated_broker_ids=st.integers(0, 20),
    migration_state=st.integers(0, 4),
)
