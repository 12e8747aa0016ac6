"""A tree inside one process that sessions share. A journal makes it durable.

`EmbeddedStore` is one session on a tree that SQLite stores.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from klog.metadata.errors import NoNodeError, StoreClosedError, StoreError
from klog.metadata.store import (
    Delete,
    MetadataStore,
    MultiResult,
    Node,
    NodeStat,
    Operation,
    SessionListener,
    Watch,
)
from klog.metadata.tree import Commit, NodeTree
from klog.metadata.watches import Delivery, WatchRegistry

Deliver = Callable[[Iterable[Delivery]], None]


class Journal(Protocol):
    """Makes commits durable before they are applied."""

    def batch(self) -> AbstractContextManager[None]:
        """The commits that are written inside become durable together when it ends without an error."""

    def write(self, commit: Commit) -> None:
        """Raises StoreFailedError; then nothing of the batch is stored."""

    def load(self) -> NodeTree:
        """The tree as it was last stored."""


class SharedTree:
    """A tree with its journal and its sessions. Safe for threads."""

    def __init__(self, journal: Journal, now_ms: Callable[[], int]) -> None:
        self.lock = threading.RLock()
        self._journal = journal
        self._now_ms = now_ms
        self._sessions: dict[int, TreeSession] = {}
        self.tree = journal.load()
        # A session ends with its process, so that ephemeral nodes in the journal belong to sessions that are
        # gone.
        leftovers = self.tree.ephemerals()
        if leftovers:
            self.commit_many([[Delete(path) for path in leftovers]], session_id=0)

    def open_session(self, session: TreeSession) -> int:
        """Opens a session, and returns its id."""
        with self.lock:
            session_id = self.tree.last_zxid + 1
            empty = Commit(session_id, {}, [], ())
            with self._journal.batch():
                self._journal.write(empty)
            self.tree.apply(empty)
            self._sessions[session_id] = session
            return session_id

    def close_session(self, session_id: int) -> None:
        """Ends a session: deletes its ephemeral nodes and fires the watches of other sessions on them."""
        with self.lock:
            if self._sessions.pop(session_id, None) is not None:
                owned = self.tree.ephemerals(session_id)
                if owned:
                    self.commit_many([[Delete(path) for path in owned]], session_id)

    def commit_many(
        self, multis: Sequence[Sequence[Operation]], session_id: int
    ) -> list[MultiResult | StoreError]:
        """Commits each multi on its own, and makes all of them durable together."""
        with self.lock:
            outcomes: list[MultiResult | StoreError] = []
            commits: list[Commit] = []
            try:
                with self._journal.batch():
                    for operations in multis:
                        try:
                            commit = self.tree.plan(operations, session_id, self._now_ms())
                        except StoreError as error:
                            outcomes.append(error)
                            continue
                        self._journal.write(commit)
                        self.tree.apply(commit)
                        commits.append(commit)
                        outcomes.append(commit.results)
            except StoreError:
                self.tree = self._journal.load()
                raise
            for commit in commits:
                self._notify(commit)
            return outcomes

    def _notify(self, commit: Commit) -> None:
        for session in list(self._sessions.values()):
            for event in commit.events:
                session.deliver(session.watches.fire(event))


class TreeSession(MetadataStore):
    """A MetadataStore on a SharedTree. `deliver` calls its watches and listeners."""

    def __init__(self, shared: SharedTree, deliver: Deliver) -> None:
        self._shared = shared
        self.deliver = deliver
        self.watches = WatchRegistry()
        self._listeners: list[SessionListener] = []
        self._open = True
        self._session_id = shared.open_session(self)

    @property
    def session_id(self) -> int:
        return self._session_id

    def get(self, path: str, watch: Watch | None = None) -> Node:
        with self._tree() as tree:
            node = tree.find(path)
            if node is None:
                raise NoNodeError(f"no node {path}", path=path)
            if watch is not None:
                self.watches.add_data(path, watch)
            return node

    def exists(self, path: str, watch: Watch | None = None) -> NodeStat | None:
        with self._tree() as tree:
            node = tree.find(path)
            if watch is not None:
                self.watches.add_data(path, watch)
            return None if node is None else node.stat

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        with self._tree() as tree:
            names = tree.child_names(path)
            if watch is not None:
                self.watches.add_children(path, watch)
            return names

    def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        with self._tree() as tree:
            return [tree.find(path) for path in paths]

    def multi_many(self, multis: Sequence[Sequence[Operation]]) -> list[MultiResult | StoreError]:
        with self._tree():
            return self._shared.commit_many(multis, self._session_id)

    def sync(self) -> None:
        with self._tree():
            return

    def add_session_listener(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    def wait_connected(self, timeout_ms: int | None = None) -> None:  # noqa: ARG002 - always connected
        with self._tree():
            return

    def close(self) -> None:
        with self._shared.lock:
            if self._open:
                self._open = False
                self.watches.clear()
                self._shared.close_session(self._session_id)

    @contextmanager
    def _tree(self) -> Iterator[NodeTree]:
        """The tree under its lock. Raises StoreClosedError."""
        with self._shared.lock:
            if not self._open:
                raise StoreClosedError("the metadata store is closed")
            yield self._shared.tree
