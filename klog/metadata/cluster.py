"""Registers brokers in the tree, and reads the cluster's id and the registrations.

Rules: Kafka's KafkaZkClient. The epoch of a broker is the czxid of its registration.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from klog.formats.constants import INT32_MAX
from klog.metadata import paths, znodes
from klog.metadata.errors import (
    BrokerIdInUseError,
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
)
from klog.metadata.retried_writes import create_missing, write
from klog.metadata.store import (
    Create,
    Delete,
    MetadataStore,
    NodeStat,
    Operation,
    SetData,
    Watch,
    find,
    missing_parents,
)
from klog.metadata.values import BrokerRegistration

RESERVED_BROKER_MAX_ID = 1000
_BROKER_ID: Final = re.compile("[0-9]{1,10}")


def create_persistent_nodes(store: MetadataStore, wanted: Iterable[str] = paths.PERSISTENT) -> None:
    """Creates the nodes below which all others are, if they are missing."""
    for path in wanted:
        if store.exists(path) is None:
            create_missing(store, (*missing_parents(path), path))


def get_or_create_cluster_id(store: MetadataStore, new_id: str) -> str:
    """The id of the cluster. The first broker sets it to its `new_id`."""
    if store.exists(paths.CLUSTER_ID) is None:
        create_missing(store, missing_parents(paths.CLUSTER_ID))
        with suppress(NodeExistsError):
            write(store, Create(paths.CLUSTER_ID, znodes.encode_cluster_id(new_id)))
    return znodes.decode_cluster_id(store.get(paths.CLUSTER_ID).data)


def generate_broker_id(store: MetadataStore, reserved_max_id: int = RESERVED_BROKER_MAX_ID) -> int:
    """An id above `reserved.broker.max.id` that no broker got before. A lost reply skips one id."""
    while True:
        try:
            return reserved_max_id + store.set(paths.BROKER_SEQUENCE, b"").version
        except NoNodeError:
            create_missing(store, (*missing_parents(paths.BROKER_SEQUENCE), paths.BROKER_SEQUENCE))
        except ConnectionLossError:
            store.wait_connected()


def register_broker(
    store: MetadataStore, broker: BrokerRegistration, previous_session: int | None = None
) -> int:
    """Registers a broker for the lifetime of the store's session, and returns its epoch.

    A node that this process left behind in its expired `previous_session` is replaced (ZOOKEEPER-2985).
    Raises BrokerIdInUseError if another session owns the id.
    """
    path, data = paths.broker(broker.broker_id), znodes.encode_broker(broker)
    # Created empty and then set, as Kafka does: when the node appears, its data has version 1.
    operations: list[Operation] = [Create(path, None, ephemeral=True), SetData(path, data, 0)]
    while True:
        try:
            stat = store.multi(operations)[1]
        except ConnectionLossError:
            store.wait_connected()
        except NodeExistsError:
            epoch = _registered_before(store, path, previous_session)
            if epoch is not None:
                return epoch
        else:
            return stat.created_zxid if isinstance(stat, NodeStat) else -1


def _registered_before(store: MetadataStore, path: str, previous_session: int | None) -> int | None:
    """The epoch if this session owns the node already; None if the node is gone now."""
    stat = store.exists(path)
    if stat is None:
        return None
    if stat.ephemeral_owner == store.session_id:
        return stat.created_zxid
    if stat.ephemeral_owner == previous_session:
        with suppress(NoNodeError):
            write(store, Delete(path, stat.version))
        return None
    raise BrokerIdInUseError(
        f"broker id {path.rpartition('/')[2]} is in use by another live broker",
        cure="give this one another broker.id, or wait until the other's session has ended",
    )


def update_broker(store: MetadataStore, broker: BrokerRegistration) -> None:
    """Rewrites a registration whose endpoints have changed. Raises NoNodeError if it is gone."""
    write(store, SetData(paths.broker(broker.broker_id), znodes.encode_broker(broker)))


def announce_log_dir_failure(store: MetadataStore, broker_id: int) -> None:
    """Notifies the controller that a broker has lost a log directory,
    so that it asks which replicas were there.
    """
    note = znodes.encode_log_dir_event(broker_id)
    write(store, Create(paths.LOG_DIR_EVENT_PREFIX, note, sequential=True))


def live_brokers(store: MetadataStore, watch: Watch | None = None) -> dict[int, BrokerRegistration]:
    """The registered brokers in the order of their ids; `watch` fires when one comes or goes.

    An invalid registration is logged and left out.
    """
    names = store.children(paths.BROKER_IDS, watch)
    ids = sorted(int(name) for name in names if _BROKER_ID.fullmatch(name) and int(name) <= INT32_MAX)
    nodes = store.get_many([paths.broker(broker_id) for broker_id in ids])
    return znodes.decode_valid(ids, nodes, znodes.decode_broker)


def read_broker(
    store: MetadataStore, broker_id: int, watch: Watch | None = None
) -> BrokerRegistration | None:
    """One registration; `watch` fires when it changes or goes."""
    node = find(store, paths.broker(broker_id), watch)
    return None if node is None else znodes.decode_broker(broker_id, node)
