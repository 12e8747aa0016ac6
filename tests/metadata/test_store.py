"""The contract of every metadata store, on real ZooKeeper and on klog's own alike."""

from __future__ import annotations

import queue

import pytest

from klog.metadata.errors import (
    BadVersionError,
    EphemeralParentError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    StoreClosedError,
)
from klog.metadata.store import (
    Check,
    Create,
    Delete,
    MetadataStore,
    NodeStat,
    SetData,
    WatchEvent,
    WatchKind,
)
from tests.metadata.conftest import OpenStore

SOON_S = 30


class Seen(queue.SimpleQueue[WatchEvent]):
    """A watch that remembers its events."""

    def __call__(self, event: WatchEvent) -> None:
        self.put(event)

    def next(self) -> WatchEvent:
        return self.get(timeout=SOON_S)


def test_a_created_node_has_version_0_and_its_data(store: MetadataStore) -> None:
    assert store.create("/a", b"x") == "/a"
    node = store.get("/a")
    assert node.data == b"x"
    assert node.stat.version == 0
    assert node.stat.created_zxid == node.stat.modified_zxid
    assert node.stat.ephemeral_owner == 0


@pytest.mark.parametrize("data", [None, b"", b"\x00\xff" * 5000], ids=["null", "empty", "bytes"])
def test_data_is_read_as_it_was_written(store: MetadataStore, data: bytes | None) -> None:
    store.create("/a", data)
    assert store.get("/a").data == data
    store.set("/a", b"other")
    store.set("/a", data)
    assert store.get("/a").data == data
    store.multi([Create("/b", data)])
    assert store.get("/b").data == data


def test_a_node_is_created_once(store: MetadataStore) -> None:
    store.create("/a")
    with pytest.raises(NodeExistsError):
        store.create("/a")


def test_a_node_needs_its_parent_unless_parents_are_made(store: MetadataStore) -> None:
    with pytest.raises(NoNodeError):
        store.create("/a/b/c")
    store.create("/a/b/c", b"leaf", make_parents=True)
    assert store.get("/a/b/c").data == b"leaf"
    store.create("/a/b/d", make_parents=True)
    assert store.children("/a/b") == ["c", "d"]


def test_reads_of_missing_nodes(store: MetadataStore) -> None:
    assert store.exists("/a") is None
    with pytest.raises(NoNodeError):
        store.get("/a")
    with pytest.raises(NoNodeError):
        store.children("/a")


def test_a_write_needs_the_version_that_it_replaces(store: MetadataStore) -> None:
    store.create("/a", b"0")
    assert store.set("/a", b"1", 0).version == 1
    with pytest.raises(BadVersionError):
        store.set("/a", b"2", 0)
    assert store.set("/a", b"3").version == 2
    with pytest.raises(NoNodeError):
        store.set("/b", b"")
    assert store.get("/a").data == b"3"


def test_each_change_has_a_higher_zxid(store: MetadataStore) -> None:
    store.create("/a", b"")
    store.create("/b", b"")
    a, b = store.get("/a").stat, store.get("/b").stat
    changed = store.set("/a", b"")
    assert a.created_zxid < b.created_zxid < changed.modified_zxid
    assert changed.created_zxid == a.created_zxid
    store.delete("/a")
    store.create("/a")
    assert store.get("/a").stat.created_zxid > changed.modified_zxid


def test_a_deletion_needs_the_version_and_a_node_without_children(store: MetadataStore) -> None:
    store.create("/a/b", make_parents=True)
    with pytest.raises(NotEmptyError):
        store.delete("/a")
    with pytest.raises(BadVersionError):
        store.delete("/a/b", 7)
    store.delete("/a/b", 0)
    store.delete("/a")
    with pytest.raises(NoNodeError):
        store.delete("/a")


def test_sequential_names_grow_and_are_never_used_twice(store: MetadataStore) -> None:
    store.create("/q")
    first = store.create("/q/n_", b"", sequential=True)
    assert first == "/q/n_0000000000"
    second = store.create("/q/n_", b"", sequential=True)
    store.delete(second)
    third = store.create("/q/n_", b"", sequential=True)
    assert first < second < third


def test_an_ephemeral_node_names_its_session_and_has_no_children(store: MetadataStore) -> None:
    store.create("/e", b"", ephemeral=True)
    assert store.get("/e").stat.ephemeral_owner == store.session_id != 0
    with pytest.raises(EphemeralParentError):
        store.create("/e/child")


def test_a_multi_does_everything_in_order(store: MetadataStore) -> None:
    store.create("/a", b"")
    results = store.multi(
        [
            Check("/a", 0),
            Create("/b", None, ephemeral=True),
            SetData("/b", b"data", 0),
            Create("/b2_", b"", sequential=True),
            Delete("/a", 0),
        ]
    )
    assert results[:2] == [None, "/b"]
    stat = results[2]
    assert isinstance(stat, NodeStat)
    assert stat == store.get("/b").stat
    assert stat.version == 1
    assert str(results[3]).startswith("/b2_0")
    assert store.exists("/a") is None


def test_a_failed_multi_does_nothing_and_names_the_operation(store: MetadataStore) -> None:
    store.create("/a", b"")
    with pytest.raises(BadVersionError) as failed:
        store.multi([Create("/b"), Check("/a", 1), Create("/c")])
    assert failed.value.op_index == 1
    with pytest.raises(NodeExistsError) as failed_too:
        store.multi([Create("/b"), Create("/c"), Create("/b")])
    assert failed_too.value.op_index == 2
    assert store.exists("/b") is None
    assert store.exists("/c") is None


def test_many_multis_are_independent(store: MetadataStore) -> None:
    store.create("/a")
    outcomes = store.multi_many(
        [[Check("/a", 0), Create(f"/n{number}")] if number != 7 else [Check("/a", 1)] for number in range(25)]
    )
    assert isinstance(outcomes[7], BadVersionError)
    assert [outcome for index, outcome in enumerate(outcomes) if index != 7] == [
        [None, f"/n{number}"] for number in range(25) if number != 7
    ]


def test_many_nodes_are_read_together(store: MetadataStore) -> None:
    for number in range(0, 30, 2):
        store.create(f"/n{number}", b"%d" % number)
    nodes = store.get_many([f"/n{number}" for number in range(30)])
    assert [node and node.data for node in nodes] == [
        None if number % 2 else b"%d" % number for number in range(30)
    ]


def test_a_data_watch_sees_one_change(store: MetadataStore) -> None:
    store.create("/a", b"0")
    seen = Seen()
    store.get("/a", seen)
    store.set("/a", b"1")
    assert seen.next() == WatchEvent(WatchKind.DATA_CHANGED, "/a")
    store.set("/a", b"2")
    store.exists("/a", seen)
    store.delete("/a")
    assert seen.next() == WatchEvent(WatchKind.DELETED, "/a")
    assert seen.empty()


def test_a_watch_on_a_missing_node_sees_it_created(store: MetadataStore) -> None:
    seen = Seen()
    assert store.exists("/a", seen) is None
    store.create("/a")
    assert seen.next() == WatchEvent(WatchKind.CREATED, "/a")


def test_a_child_watch_sees_children_come_and_go_but_not_change(store: MetadataStore) -> None:
    store.create("/a")
    seen = Seen()
    assert store.children("/a", seen) == []
    store.create("/a/b", b"")
    assert seen.next() == WatchEvent(WatchKind.CHILDREN_CHANGED, "/a")
    assert store.children("/a", seen) == ["b"]
    store.set("/a/b", b"changed")
    store.delete("/a/b")
    assert seen.next() == WatchEvent(WatchKind.CHILDREN_CHANGED, "/a")
    assert seen.empty()


def test_watches_are_called_in_the_order_of_the_changes(store: MetadataStore) -> None:
    seen = Seen()
    for number in range(40):
        store.exists(f"/n{number}", seen)
    order = [(number * 7) % 40 for number in range(40)]
    for number in order:
        store.create(f"/n{number}")
    assert [seen.next().path for _ in order] == [f"/n{number}" for number in order]


def test_a_failed_multi_fires_no_watch(store: MetadataStore) -> None:
    seen = Seen()
    store.exists("/a", seen)
    with pytest.raises(NoNodeError):
        store.multi([Create("/a"), Delete("/missing")])
    store.create("/a")
    assert seen.next().kind is WatchKind.CREATED
    assert seen.empty()


def test_a_closed_store_refuses_everything(store: MetadataStore) -> None:
    store.close()
    store.close()
    with pytest.raises(StoreClosedError):
        store.get("/")
    with pytest.raises(StoreClosedError):
        store.create("/a")
    with pytest.raises(StoreClosedError):
        store.multi_many([[Create("/a")]])
    with pytest.raises(StoreClosedError):
        store.sync()


def test_sessions_see_each_others_changes(open_session: OpenStore) -> None:
    one, two = open_session(), open_session()
    assert one.session_id != two.session_id
    seen = Seen()
    two.exists("/a", seen)
    one.create("/a", b"by one")
    assert seen.next() == WatchEvent(WatchKind.CREATED, "/a")
    assert two.get("/a").data == b"by one"


def test_after_a_sync_reads_see_what_others_have_written(open_session: OpenStore) -> None:
    one, two = open_session(), open_session()
    one.create("/a", b"by one")
    two.sync()
    assert two.get("/a").data == b"by one"


def test_ephemeral_nodes_are_deleted_with_their_session(open_session: OpenStore) -> None:
    one, two = open_session(), open_session()
    one.create("/one", ephemeral=True)
    two.create("/two", ephemeral=True)
    seen = Seen()
    two.exists("/one", seen)
    two.exists("/two", seen)
    one.close()
    assert seen.next() == WatchEvent(WatchKind.DELETED, "/one")
    assert two.exists("/one") is None
    assert two.exists("/two") is not None
    assert seen.empty()
