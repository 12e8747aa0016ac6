"""Reads and writes configs of topics, brokers, clients, users and ips, and follows their change
notifications.

Rules: Kafka's AdminZkClient writes them, ZkNodeChangeNotificationListener reads the notifications. An entity
is named by its path with sanitised parts: `topics/t1`, `brokers/<default>`, `users/alice/clients/c1`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress

from klog.metadata import paths, znodes
from klog.metadata.errors import InvalidZnodeError, NodeExistsError, NoNodeError, StoreError
from klog.metadata.retried_writes import write
from klog.metadata.store import Create, Delete, MetadataStore, SetData, WatchEvent, missing_parents

NOTIFICATION_LIFETIME_MS = 15 * 60 * 1000

_log = logging.getLogger(__name__)


def read_config(store: MetadataStore, entity_path: str) -> dict[str, str]:
    """The entity's own config; empty if it has none. Raises InvalidZnodeError."""
    node = store.get_many([paths.config(entity_path)])[0]
    return {} if node is None else znodes.decode_config(entity_path, node.data)


def valid_configs(
    store: MetadataStore, entity_type: str
) -> tuple[dict[str, dict[str, str]], dict[str, InvalidZnodeError]]:
    """The valid configs of one type by desanitised name, and the errors of the others."""
    try:
        names = store.children(paths.config(entity_type))
    except NoNodeError:
        return {}, {}
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
    path, data = paths.config(entity_path), znodes.encode_config(config)
    while True:
        try:
            write(store, SetData(path, data))
        except NoNodeError:
            for parent in missing_parents(path):
                with suppress(NodeExistsError):
                    write(store, Create(parent))
        else:
            return
        with suppress(NodeExistsError):
            write(store, Create(path, data))
            return


def change_config(store: MetadataStore, entity_path: str, config: Mapping[str, str]) -> None:
    """Replaces an entity's config, then notifies every broker."""
    write_config(store, entity_path, config)
    write(
        store, Create(paths.CONFIG_CHANGE_PREFIX, znodes.encode_config_change(entity_path), sequential=True)
    )


class ConfigChangeNotifications:
    """Calls `on_change(entity_path)` for each notification of a config change, in order, and deletes old
    ones.

    Notifications that exist at the start are passed on once.
    """

    def __init__(
        self, store: MetadataStore, on_change: Callable[[str], None], now_ms: Callable[[], int]
    ) -> None:
        self._store = store
        self._on_change = on_change
        self._now_ms = now_ms
        self._last_read = ""

    def follow(self) -> None:
        """Reads new notifications and watches for more. Must be called again for a new session."""
        names = self._store.children(paths.CONFIG_CHANGES, self._on_children_changed)
        for name in names:
            if name > self._last_read:
                self._handle(f"{paths.CONFIG_CHANGES}/{name}")
                self._last_read = name
        self._purge(names)

    def _on_children_changed(self, _event: WatchEvent) -> None:
        # The session has expired or is closed. A new session calls `follow` again.
        with suppress(StoreError):
            self.follow()

    def _handle(self, path: str) -> None:
        node = self._store.get_many([path])[0]
        if node is None:
            return
        try:
            entity_path = znodes.decode_config_change(path, node.data)
        except InvalidZnodeError as error:
            # An invalid notification must not stop those after it.
            _log.error("%s", error)
            return
        self._on_change(entity_path)

    def _purge(self, names: list[str]) -> None:
        for name in names:
            path = f"{paths.CONFIG_CHANGES}/{name}"
            stat = self._store.exists(path)
            if stat is not None and self._now_ms() - stat.created_ms <= NOTIFICATION_LIFETIME_MS:
                # Names grow with time, so that the other notifications are younger.
                return
            with suppress(NoNodeError):
                write(self._store, Delete(path))
