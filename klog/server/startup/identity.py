"""Determines the ids of a broker and of its cluster from configs, log directories and the tree.

Rules: Kafka's `KafkaServer.getOrGenerateBrokerId`, `createBrokerInfo` and `MetaPropertiesEnsemble`. All
directories must agree with each other, with `broker.id` and with the cluster. A generated id is stored in
`meta.properties`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from klog.config.broker import BrokerConfig
from klog.config.broker_checks import broker_id
from klog.formats.errors import StorageError, UsageError
from klog.formats.meta_properties import MetaProperties
from klog.metadata.cluster import generate_broker_id, get_or_create_cluster_id
from klog.metadata.store import MetadataStore
from klog.metadata.values import BrokerRegistration


class Identity(NamedTuple):
    """The ids of a broker and of its cluster."""

    broker_id: int
    cluster_id: str


def resolve_identity(
    config: BrokerConfig,
    directories: Mapping[str, MetaProperties | None],
    store: MetadataStore,
    new_cluster_id: str,
) -> Identity:
    """The ids on which everything agrees. Raises `StorageError` if something does not."""
    kraft = [path for path, found in directories.items() if found is not None and found.version != 0]
    if kraft:
        raise StorageError(
            "the directory belongs to a KRaft node",
            file=kraft[0],
            cure="'klog adopt' takes its metadata over (docs/metadata.md); or set another log.dirs",
        )
    cluster_id = get_or_create_cluster_id(store, new_cluster_id)
    for path, found in directories.items():
        if found is not None and found.cluster_id not in (None, cluster_id):
            raise StorageError(
                f"the directory belongs to cluster {found.cluster_id}, this is cluster {cluster_id}",
                file=path,
                cure="check zookeeper.connect and log.dirs"
                if config.text("zookeeper.connect")
                else "this one's metadata is in the first of log.dirs: if its file was removed or replaced,"
                " restore it or run 'klog adopt' (docs/broker.md, Lost metadata)",
            )
    return Identity(_broker_id(config, directories, store), cluster_id)


def _broker_id(
    config: BrokerConfig, directories: Mapping[str, MetaProperties | None], store: MetadataStore
) -> int:
    stored = {
        found.node_id: path
        for path, found in directories.items()
        if found is not None and found.node_id is not None
    }
    if len(stored) > 1:
        ids = ", ".join(f"{node_id} in {path}" for node_id, path in stored.items())
        raise StorageError(f"the log directories belong to different brokers: {ids}", cure="check log.dirs")
    kept = next(iter(stored), None)
    configured = broker_id(config)
    if configured >= 0:
        if kept is not None and kept != configured:
            raise StorageError(
                f"the directory belongs to broker {kept}, broker.id is {configured}",
                file=stored[kept],
                cure="set broker.id to what the directory says, or use another directory",
            )
        return configured
    if kept is not None:
        return kept
    return generate_broker_id(store, config.number("reserved.broker.max.id"))


def require_own_endpoints(broker: BrokerRegistration, registered: Mapping[int, BrokerRegistration]) -> None:
    """Raises `UsageError` if another live broker has registered one of this broker's endpoints, because
    clients would confuse the two.
    """
    own = {(each.host, each.port) for each in broker.endpoints}
    for other in registered.values():
        taken = [f"{each.host}:{each.port}" for each in other.endpoints if (each.host, each.port) in own]
        if taken and other.broker_id != broker.broker_id:
            raise UsageError(
                f"{', '.join(taken)} in advertised.listeners is registered by broker {other.broker_id}",
                cure="advertise an address of this broker's own",
            )
