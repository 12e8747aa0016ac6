"""Opens what `klog adopt` works on: the log directories under their locks, and the metadata store.

No broker may run meanwhile. A dry run works on a copy of the embedded store, so that it changes no file.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from klog.cluster_metadata import tree_output
from klog.cluster_metadata.forms import OnProblem, raise_problem
from klog.cluster_metadata.without_kraft import identity_without_kraft, is_of_kraft, rewrite_identities
from klog.config.broker import BrokerConfig
from klog.config.broker_checks import broker_id as configured_broker_id
from klog.config.broker_topics import check_topic_overrides
from klog.formats.errors import KlogError, StorageError, UsageError
from klog.formats.meta_properties import MetaProperties
from klog.formats.names import encode_uuid
from klog.metadata import paths, znodes
from klog.metadata.cluster import create_persistent_nodes, live_brokers
from klog.metadata.embedded import FILE_NAME, EmbeddedStore
from klog.metadata.retried_writes import put
from klog.metadata.store import MetadataStore
from klog.metadata.topics import read_partition_states, read_valid_topics, topic_names
from klog.metadata.znodes import encode_cluster_id
from klog.server.startup.adoption import AdoptionPlan, adopt, plan_adoption, stored_replicas, with_configs
from klog.server.startup.identity import resolve_identity
from klog.server.startup.kraft_takeover import metadata_directories, take_over
from klog.server.startup.settings import log_directories
from klog.server.startup.stores import open_store
from klog.storage.files.directory_lock import locked
from klog.storage.files.scratch_directory import scratch_directory
from klog.storage.log.data_directory import DataDirectory

_Identities: TypeAlias = Mapping[str, MetaProperties | None]


def run_adoption(
    config: BrokerConfig,
    *,
    dry_run: bool,
    allow_missing: bool,
    topic_configs: Mapping[str, Mapping[str, str]] | None = None,
    agreed: AdoptionPlan | None = None,
    on_problem: OnProblem = raise_problem,
) -> AdoptionPlan:
    """Plan, and unless it is a dry run write, what gives the partition directories of a broker an owner.

    New topics get their `topic_configs`. If a plan was `agreed` to, no other one is written. `on_problem` is
    told what cannot be read in the metadata log of a KRaft node. Raises
    `UsageError` (no broker id, no log directory, an unknown config), `ConfigError`, `StorageError`,
    `StoreError`, `FormatError`.
    """
    given = topic_configs or {}
    for topic, configs in given.items():
        _require_valid(config, topic, configs)
    directories = log_directories(config)
    for directory in directories:
        if not os.path.isdir(directory):
            raise StorageError("the log directory does not exist", file=directory, cure="check log.dirs")
    with ExitStack() as closing:
        for directory in directories:
            closing.enter_context(locked(directory, only_reading=dry_run))
        identities = {each: DataDirectory(each).read_identity() for each in directories}
        store = closing.enter_context(_opened(config, directories[0], dry_run=dry_run))
        _require_no_broker(store)
        taken_over = None
        if is_of_kraft(identities):
            _require_configured_id(config, identities)
            for place in metadata_directories(config, directories):
                # A controller that runs has written more than what is read.
                if os.path.abspath(place) not in directories:
                    closing.enter_context(locked(place, only_reading=True))
            if dry_run and config.text("zookeeper.connect"):
                store = closing.enter_context(_instead_of_empty(store))
            taken_over = take_over(store, config, directories, on_problem)
            if not dry_run:
                rewrite_identities(identities)
            identities = {each: identity_without_kraft(found) for each, found in identities.items()}
        _require_broker_id(config, identities)
        broker_id = _identify(config, identities, store, dry_run=dry_run)
        replicas = [each for directory in directories for each in stored_replicas(directory)]
        present = set(_topic_names(store)).intersection(each.partition.topic for each in replicas)
        topics = read_valid_topics(store, sorted(present))
        plan = plan_adoption(
            replicas,
            topics,
            frozenset(present.difference(topics)),
            read_partition_states(store, [each.partition for each in replicas]),
            broker_id,
            allow_missing=allow_missing,
        )
        plan = replace(with_configs(store, plan, config, given), taken_over=taken_over)
        if agreed not in (None, plan):
            raise StorageError(
                "the directories or the metadata have changed meanwhile; nothing was changed",
                file=directories[0],
                cure="run the command again",
            )
        if not dry_run:
            adopt(store, plan, broker_id)
        return plan


def _require_valid(config: BrokerConfig, topic: str, configs: Mapping[str, str]) -> None:
    try:
        check_topic_overrides(config, configs)
    except KlogError as error:
        raise UsageError(f"topic {topic}: {error}") from None


@contextmanager
def _opened(config: BrokerConfig, first_directory: str, *, dry_run: bool) -> Iterator[MetadataStore]:
    with ExitStack() as closing:
        if dry_run and not config.text("zookeeper.connect"):
            copies = Path(closing.enter_context(scratch_directory("klog-adopt-")))
            for file in Path(first_directory).glob(f"{FILE_NAME}*"):
                shutil.copy(file, copies)
            store: MetadataStore = EmbeddedStore(copies / FILE_NAME)
        else:
            store = open_store(config, first_directory)
        closing.callback(store.close)
        yield store


@contextmanager
def _instead_of_empty(store: MetadataStore) -> Iterator[MetadataStore]:
    """A tree that may be written, in place of an empty one that may not; or the tree, if it is not empty.

    Raises `StorageError` if it has something and no cluster's id.
    """
    present = store.get_many([paths.CLUSTER_ID])[0]
    if present is None:
        tree_output.require_empty(store)
    elif not znodes.is_unfinished_tree(present.data):
        yield store
        return
    with ExitStack() as closing:
        own = EmbeddedStore(Path(closing.enter_context(scratch_directory("klog-adopt-"))) / FILE_NAME)
        closing.callback(own.close)
        yield own


def _require_no_broker(store: MetadataStore) -> None:
    live = live_brokers(store) if store.exists(paths.BROKER_IDS) else {}
    if live:
        raise UsageError(
            f"brokers are registered in the metadata store: {', '.join(map(str, live))}",
            cure="stop all brokers of the cluster first: their controller must not run meanwhile",
        )


def _require_broker_id(config: BrokerConfig, identities: _Identities) -> None:
    stored = any(found is not None and found.node_id is not None for found in identities.values())
    if not stored and configured_broker_id(config) < 0:
        raise UsageError(
            "the broker's id is neither in meta.properties nor in the configs",
            cure="-o broker.id=N, the id that the broker had",
        )


def _require_configured_id(config: BrokerConfig, identities: _Identities) -> None:
    """Refuses a KRaft node's directory with another id before anything is written."""
    configured = configured_broker_id(config)
    for directory, found in identities.items():
        if found is not None and configured >= 0 and found.node_id != configured:
            raise UsageError(
                f"the directory belongs to node {found.node_id}, broker.id is {configured}",
                file=directory,
                cure=f"-o broker.id={found.node_id}",
            )


def _topic_names(store: MetadataStore) -> list[str]:
    return topic_names(store) if store.exists(paths.TOPICS) else []


def _identify(config: BrokerConfig, identities: _Identities, store: MetadataStore, *, dry_run: bool) -> int:
    """The broker's id. A store that was lost gets the directories' cluster id and the nodes of a new one."""
    known = {each.cluster_id for each in identities.values() if each is not None} - {None}
    cluster_id = next(iter(known), None) if len(known) == 1 else None
    in_zookeeper = bool(config.text("zookeeper.connect"))
    if dry_run and in_zookeeper and store.exists(paths.CLUSTER_ID) is None:
        # Nothing is written. Without a cluster id in the tree, the ids of directories and configs count.
        stored = (each.node_id for each in identities.values() if each is not None)
        return next((each for each in stored if each is not None), configured_broker_id(config))
    if not (dry_run and in_zookeeper):
        create_persistent_nodes(store)
        if cluster_id is not None and not in_zookeeper and not topic_names(store):
            # The start of a broker may have given the new store a cluster id of its own.
            put(store, paths.CLUSTER_ID, encode_cluster_id(cluster_id))
    new_cluster_id = cluster_id or encode_uuid(secrets.token_bytes(16))
    return resolve_identity(config, identities, store, new_cluster_id).broker_id
