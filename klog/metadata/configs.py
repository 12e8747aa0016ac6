"""Reads and writes configs of topics, brokers, clients, users and ips, and follows their change
notifications.

Rules: Kafka's AdminZkClient writes them, ZkNodeChangeNotificationListener reads the notifications. An entity
is named by its path with sanitised parts: `topics/t1`, `brokers/<default>`, `users/alice/clients/c1`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from klog.metadata import paths, znodes
from klog.metadata.errors import InvalidZnodeError
from klog.metadata.notifications import Notifications
from klog.metadata.retried_writes import put, write
from klog.metadata.store import Create, MetadataStore, children_of


def read_config(store: MetadataStore, entity_path: str) -> dict[str, str]:
    """The entity's own config; empty if it has none. Raises InvalidZnodeError."""
    node = store.get_many([paths.config(entity_path)])[0]
    return {} if node is None else znodes.decode_config(entity_path, node.data)


def valid_configs(
    store: MetadataStore, entity_type: str
) -> tuple[dict[str, dict[str, str]], dict[str, InvalidZnodeError]]:
    """The valid configs of one type by desanitised name, and the errors of the others."""
    names = children_of(store, paths.config(entity_type))
    nodes = store.get_many([paths.config(f"{entity_type}/{name}") for name in names])
    configs: dict[str, dict[str, str]] = {}
    invalid: dict[str, InvalidZnodeError] = {}
    for name, node in zip(names, nodes, strict=True):
        if node is not None:
            try:
                configs[znodes.desanitize(name)] = znodes.decode_config(f"{entity_type}/{name}", node.data)
            except InvalidZnodeError as error:
                invalid[znodes.desanitize(name)] = error
    return configs, invalid


def write_config(store: MetadataStore, entity_path: str, config: Mapping[str, str]) -> None:
    """Replaces an entity's config without a notification."""
    put(store, paths.config(entity_path), znodes.encode_config(config))


def change_config(store: MetadataStore, entity_path: str, config: Mapping[str, str]) -> None:
    """Replaces an entity's config, then notifies every broker."""
    write_config(store, entity_path, config)
    notify_of_change(store, entity_path)


def notify_of_change(store: MetadataStore, entity_path: str) -> None:
    """Tells every broker to read an entity's config again."""
    write(
        store, Create(paths.CONFIG_CHANGE_PREFIX, znodes.encode_config_change(entity_path), sequential=True)
    )


def config_change_notifications(
    store: MetadataStore, on_change: Callable[[str], None], now_ms: Callable[[], int]
) -> Notifications:
    """Calls `on_change(entity_path)` for each notification of a config change, in order."""
    return Notifications(
        store,
        paths.CONFIG_CHANGES,
        lambda path, data: on_change(znodes.decode_config_change(path, data)),
        now_ms,
    )
