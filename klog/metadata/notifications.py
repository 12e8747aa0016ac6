"""Notifications of changes: sequential nodes that every broker reads and anyone deletes when they are old.

Rules: Kafka's `ZkNodeChangeNotificationListener`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from klog.metadata.errors import InvalidZnodeError, NoNodeError, StoreError
from klog.metadata.retried_writes import write
from klog.metadata.store import Delete, MetadataStore, WatchEvent

NOTIFICATION_LIFETIME_MS: Final = 15 * 60 * 1000

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Notifications:
    """Calls `on_note(path, data)` for each notification below a node, in order, and deletes old ones.

    Notifications that exist at the start are passed on once. `InvalidZnodeError` of `on_note` is logged.
    """

    store: MetadataStore
    parent: str
    on_note: Callable[[str, bytes | None], None]
    now_ms: Callable[[], int]
    _last_read: str = field(default="", init=False)

    def follow(self) -> None:
        """Reads new notifications and watches for more. Must be called again for a new session."""
        names = self.store.children(self.parent, self._on_children_changed)
        for name in names:
            if name > self._last_read:
                self._handle(f"{self.parent}/{name}")
                self._last_read = name
        self._purge(names)

    def _on_children_changed(self, _event: WatchEvent) -> None:
        # The session has expired or is closed. A new session calls `follow` again.
        with suppress(StoreError):
            self.follow()

    def _handle(self, path: str) -> None:
        node = self.store.get_many([path])[0]
        if node is None:
            return
        try:
            self.on_note(path, node.data)
        except InvalidZnodeError as error:
            # An invalid notification must not stop those after it.
            _log.error("%s", error)

    def _purge(self, names: list[str]) -> None:
        for name in names:
            path = f"{self.parent}/{name}"
            stat = self.store.exists(path)
            if stat is not None and self.now_ms() - stat.created_ms <= NOTIFICATION_LIFETIME_MS:
                # Names grow with time, so that the other notifications are younger.
                return
            with suppress(NoNodeError):
                write(self.store, Delete(path))
