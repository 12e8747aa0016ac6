"""A tree in memory that is not stored, with sessions that tests can expire."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import partial

from klog.metadata.local import TreeSession
from klog.metadata.store import SessionState
from klog.metadata.tree import Commit, NodeTree


class NoJournal:
    """Stores nothing."""

    def batch(self) -> AbstractContextManager[None]:
        return nullcontext()

    def write(self, commit: Commit) -> None:
        pass

    def load(self) -> NodeTree:
        return NodeTree()


class MemorySession(TreeSession):
    """A session that a test can expire."""

    def expire(self) -> None:
        """Expires the session as a server does that has not heard from it. A new session begins at once."""
        with self._tree():
            self.watches.clear()
            self._shared.close_session(self._session_id)
            self._session_id = self._shared.open_session(self)
            for state in (SessionState.EXPIRED, SessionState.CONNECTED):
                self.deliver([partial(listener, state) for listener in self._listeners])
