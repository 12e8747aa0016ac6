"""Many nodes are read by one request of ZooKeeper (multiRead), as if each was read alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

from klog.metadata._kazoo_reads import MultiRead
from klog.metadata.errors import StoreFailedError
from klog.metadata.store import Create, SetData
from klog.metadata.zookeeper import ZooKeeperStore
from tests.peers.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.kafka
# More than are read by one request.
PATHS = [f"/n{number:04}" for number in range(450)]


@pytest.fixture
def store(zookeeper: ZooKeeperServer) -> Iterator[ZooKeeperStore]:
    found = ZooKeeperStore(f"{zookeeper.hosts}/together{time.time_ns()}", session_timeout_ms=40_000)
    with closing(found):
        yield found


def fill(store: ZooKeeperStore) -> None:
    """Every third node is missing; others have data, empty data or none, and one was changed."""
    contents = [b"x" * 5000, b"", None]
    present = [path for number, path in enumerate(PATHS) if number % 3]
    store.multi([Create(path, contents[number % 3]) for number, path in enumerate(present)])
    store.multi([SetData(PATHS[1], b"changed")])


def test_nodes_that_are_read_together_are_those_that_are_read_alone(store: ZooKeeperStore) -> None:
    fill(store)
    expected = [store.get_many([path])[0] for path in PATHS]
    assert {None if each is None else each.data and len(each.data) for each in expected} >= {None, 5000, b""}
    assert expected[1] is not None
    assert (expected[1].data, expected[1].stat.version) == (b"changed", 1)
    assert store.get_many(PATHS) == expected


def test_a_server_that_does_not_know_the_request_is_asked_for_each_node(
    store: ZooKeeperStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store)
    together = store.get_many(PATHS)
    monkeypatch.setattr(MultiRead, "type", 999)
    assert store.get_many(PATHS) == together


def test_a_node_that_may_not_be_read_is_named(store: ZooKeeperStore, zookeeper: ZooKeeperServer) -> None:
    store.create("/open", b"1")
    with closing(KazooClient(zookeeper.hosts)) as owner:
        owner.start(30)
        owner.create(f"{store._root}/secret", b"2", acl=[make_acl("ip", "10.9.9.9", all=True)])
        owner.stop()
    with pytest.raises(StoreFailedError, match=r"does not let this client read .* /secret") as refused:
        store.get_many(["/open", "/secret"])
    assert refused.value.path == "/secret"
