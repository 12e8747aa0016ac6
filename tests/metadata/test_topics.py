"""Which topics there are."""

from __future__ import annotations

from klog.metadata import paths
from klog.metadata.local import SharedTree
from klog.metadata.store import Watch
from klog.metadata.topics import present_topic_names, topic_names
from tests.metadata.conftest import call_at_once
from tests.metadata.memory_tree import MemorySession, NoJournal


class Lagging(MemorySession):
    """A session with a server that lags behind the others, until it is told to catch up."""

    lags = False

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return ["gone", "kept"] if self.lags else super().children(path, watch)

    def sync(self) -> None:
        super().sync()
        self.lags = False


def test_a_topic_whose_deletion_the_server_has_not_seen_is_not_present() -> None:
    store = Lagging(SharedTree(NoJournal(), lambda: 0), call_at_once)
    store.create(paths.topic("kept"), make_parents=True)
    store.lags = True
    assert topic_names(store) == ["gone", "kept"]
    assert present_topic_names(store) == ["kept"]
