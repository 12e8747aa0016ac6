"""Registers watches and calls those that fire, in order, one at a time, on one thread.

A data watch (set by `get` and `exists`) fires when the node is created, changed or deleted. A child watch
(set by `children`) fires when a child comes or goes, or the node is deleted. Each fires once.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterable
from functools import partial

from klog.formats.errors import KlogError
from klog.metadata.store import Watch, WatchEvent, WatchKind

Delivery = Callable[[], None]

_log = logging.getLogger(__name__)


class WatchRegistry:
    """The watches of one session. A watch that is set twice on a node fires once."""

    def __init__(self) -> None:
        # Dictionaries without values, because sets do not keep the order.
        self._data: dict[str, dict[Watch, None]] = {}
        self._children: dict[str, dict[Watch, None]] = {}

    def add_data(self, path: str, watch: Watch) -> None:
        self._data.setdefault(path, {})[watch] = None

    def add_children(self, path: str, watch: Watch) -> None:
        self._children.setdefault(path, {})[watch] = None

    def discard(self, path: str, watch: Watch) -> None:
        """Removes a watch whose read has failed."""
        for waiting in (self._data, self._children):
            watches = waiting.get(path, {})
            watches.pop(watch, None)
            if not watches:
                waiting.pop(path, None)

    def fire(self, event: WatchEvent) -> list[Delivery]:
        """Removes the watches that the event fires, and returns the calls to make."""
        fired: dict[Watch, None] = {}
        if event.kind is not WatchKind.CHILDREN_CHANGED:
            fired.update(self._data.pop(event.path, {}))
        if event.kind in (WatchKind.CHILDREN_CHANGED, WatchKind.DELETED):
            fired.update(self._children.pop(event.path, {}))
        return [partial(watch, event) for watch in fired]

    def fire_all(self) -> list[Delivery]:
        """Removes all watches, and returns the calls as if all their nodes had changed."""
        calls: list[Delivery] = [
            partial(watch, WatchEvent(kind, path))
            for kind, waiting in (
                (WatchKind.DATA_CHANGED, self._data),
                (WatchKind.CHILDREN_CHANGED, self._children),
            )
            for path, watches in waiting.items()
            for watch in watches
        ]
        self.clear()
        return calls

    def clear(self) -> None:
        self._data.clear()
        self._children.clear()


class Dispatcher:
    """Makes calls in order on its own thread until it is stopped."""

    def __init__(self, name: str) -> None:
        self._queue: queue.SimpleQueue[Delivery | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def deliver(self, deliveries: Iterable[Delivery]) -> None:
        for delivery in deliveries:
            self._queue.put(delivery)

    def stop(self) -> None:
        """Ends the thread after the queued calls. Waits for it, unless it is called on it."""
        self._queue.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while (delivery := self._queue.get()) is not None:
            try:
                delivery()
            except Exception as error:
                # A watch that fails, also by a defect, must not stop the others, or the broker would miss all
                # changes.
                trace = None if isinstance(error, KlogError) else error
                _log.error("a watch failed: %s", error, exc_info=trace)
