"""Who is in the cluster: its id, the brokers' registrations, broker ids.

Rules from Kafka's KafkaZkClient; a broker's epoch is the czxid of its registration.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from klog.metadata import paths, znodes
from klog.metadata.errors import (
    BrokerIdInUseError,
    ConnectionLossError,
    InvalidZnodeError,
    NodeExistsError,
    NoNodeError,
)
from klog.metadata.retried_writes import write
from klog.metadata.store import Create, Delete, MetadataStore, NodeStat, Operation, SetData, Watch
from klog.metadata.values import BrokerRegistration

RESERVED_BROKER_MAX_ID = 1000

_log = logging.getLogger(__name__)


def create_persistent_nodes(store: MetadataStore) -> None:
    """Makes sure that the nodes are there that everything else hangs on."""
    for path in paths.PERSISTENT:
        if store.exists(path) is None:
            _create_if_missing(store, path, None)


def _create_if_missing(store: MetadataStore, path: str, data: bytes | None) -> None:
    while True:
        try:
            store.create(path, data, make_parents=True)
        except NodeExistsError:
            return
        except ConnectionLossError:
            store.wait_connected()
            continue
        return


def get_or_create_cluster_id(store: MetadataStore, new_id: str) -> str:
    """The cluster's id; the first broker's `new_id` becomes it."""
    if store.exists(paths.CLUSTER_ID) is None:
        _create_if_missing(store, paths.CLUSTER_ID, znodes.encode_cluster_id(new_id))
    return znodes.decode_cluster_id(store.get(paths.CLUSTER_ID).data)


def generate_broker_id(store: MetadataStore, reserved_max_id: int = RESERVED_BROKER_MAX_ID) -> int:
    """An id above `reserved.broker.max.id` that no broker got before. A lost reply skips one."""
    while True:
        try:
            return reserved_max_id + store.set(paths.BROKER_SEQUENCE, b"").version
        except NoNodeError:
            _create_if_missing(store, paths.BROKER_SEQUENCE, None)
        except ConnectionLossError:
            store.wait_connected()


def register_broker(
    store: MetadataStore, broker: BrokerRegistration, previous_session: int | None = None
) -> int:
    """Registers a broker for as long as the store's session lives, and returns its epoch.

    A node that `previous_session`, this process' own expired one, has left behind is replaced
    (ZOOKEEPER-2985). Raises BrokerIdInUseError when another session owns the id.
    """
    path, data = paths.broker(broker.broker_id), znodes.encode_broker(broker)
    # Created empty and then set, as Kafka does: whoever sees the node created sees data of version 1.
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
    """The epoch if this session owns the node already; None when it is out of the way now."""
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
    """Rewrites a registration whose endpoints have changed. Raises NoNodeError when it is gone."""
    write(store, SetData(paths.broker(broker.broker_id), znodes.encode_broker(broker)))


def announce_log_dir_failure(store: MetadataStore, broker_id: int) -> None:
    """Tells the controller that a broker has lost a log directory: it asks which replicas were there."""
    note = znodes.encode_log_dir_event(broker_id)
    write(store, Create(paths.LOG_DIR_EVENT_PREFIX, note, sequential=True))


def live_brokers(store: MetadataStore, watch: Watch | None = None) -> dict[int, BrokerRegistration]:
    """The registered brokers by id, in order; `watch` waits for one to come or go. A broken registration is
    left out, with a line in the log."""
    ids = sorted(int(name) for name in store.children(paths.BROKER_IDS, watch) if name.isdigit())
    nodes = store.get_many([paths.broker(broker_id) for broker_id in ids])
    brokers = {}
    for broker_id, node in zip(ids, nodes, strict=True):
        if node is not None:
            try:
                brokers[broker_id] = znodes.decode_broker(broker_id, node)
            except InvalidZnodeError as error:
                _log.error("%s", error)
    return brokers


def read_broker(
    store: MetadataStore, broker_id: int, watch: Watch | None = None
) -> BrokerRegistration | None:
    """One registration; `watch` waits for it to change or go."""
    try:
        return znodes.decode_broker(broker_id, store.get(paths.broker(broker_id), watch))
    except NoNodeError:
        return None
