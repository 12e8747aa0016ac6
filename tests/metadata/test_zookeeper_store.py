"""The behaviour of a store behind a network: lost connections, lost replies, expired sessions."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from klog.config.keys import ConfigError
from klog.metadata.errors import (
    ConnectionLossError,
    EphemeralParentError,
    NodeExistsError,
    StoreClosedError,
)
from klog.metadata.store import Create, SessionState, WatchEvent, WatchKind
from klog.metadata.zookeeper import ZooKeeperStore
from tests import kazoo_clients
from tests.metadata.proxy import Proxy
from tests.metadata.test_store import SOON_S, Seen
from tests.peers.broker import free_port
from tests.peers.zookeeper import ZooKeeperServer
from tests.waiting import eventually

pytestmark = pytest.mark.kafka

# Long enough that a busy machine does not expire sessions on its own.
SESSION_TIMEOUT_MS = 12_000
SHORT_SESSION_TIMEOUT_MS = 2_000


@pytest.fixture
def proxy(zookeeper: ZooKeeperServer) -> Iterator[Proxy]:
    proxy = Proxy(zookeeper.port)
    yield proxy
    proxy.close()


@pytest.fixture
def direct(zookeeper: ZooKeeperServer) -> Iterator[ZooKeeperStore]:
    """An undisturbed session on an empty tree."""
    store = ZooKeeperStore(f"{zookeeper.hosts}/direct{time.time_ns()}", session_timeout_ms=40_000)
    yield store
    store.close()


@pytest.fixture
def disturbed(proxy: Proxy, direct: ZooKeeperStore) -> Iterator[ZooKeeperStore]:
    """A session on the same tree through the proxy."""
    hosts = f"127.0.0.1:{proxy.port}{direct._root}"
    store = ZooKeeperStore(hosts, session_timeout_ms=SESSION_TIMEOUT_MS)
    yield store
    store.close()


class States(queue.SimpleQueue[SessionState]):
    def __call__(self, state: SessionState) -> None:
        self.put(state)

    def wait_for(self, wanted: SessionState) -> None:
        while self.get(timeout=SOON_S) is not wanted:
            pass


def test_a_session_survives_a_broken_connection(disturbed: ZooKeeperStore, proxy: Proxy) -> None:
    states = States()
    disturbed.add_session_listener(states)
    session_id = disturbed.session_id
    disturbed.create("/mine", b"", ephemeral=True)
    proxy.cut()
    states.wait_for(SessionState.SUSPENDED)
    states.wait_for(SessionState.CONNECTED)
    assert disturbed.session_id == session_id
    assert disturbed.get("/mine").stat.ephemeral_owner == session_id


def test_reads_wait_for_the_connection_to_come_back(
    disturbed: ZooKeeperStore, direct: ZooKeeperStore, proxy: Proxy
) -> None:
    direct.create("/a", b"x")
    for _ in range(3):
        proxy.cut()
        assert disturbed.get("/a").data == b"x"
        assert [node and node.data for node in disturbed.get_many(["/a", "/b"])] == [b"x", None]


def test_a_change_while_disconnected_is_not_missed(
    disturbed: ZooKeeperStore, direct: ZooKeeperStore, proxy: Proxy
) -> None:
    direct.create("/a", b"0")
    seen, states = Seen(), States()
    disturbed.add_session_listener(states)
    disturbed.get("/a", seen)
    disturbed.children("/", seen)
    proxy.refuse(True)
    states.wait_for(SessionState.SUSPENDED)
    direct.set("/a", b"1")
    direct.create("/b")
    proxy.refuse(False)
    events = {seen.next(), seen.next()}
    assert events == {WatchEvent(WatchKind.DATA_CHANGED, "/a"), WatchEvent(WatchKind.CHILDREN_CHANGED, "/")}


def test_a_write_without_a_reply_may_or_may_not_have_happened(
    disturbed: ZooKeeperStore, direct: ZooKeeperStore, proxy: Proxy
) -> None:
    # The request reaches the server and the answer is lost: only reading back shows the outcome.
    proxy.lose_next_reply()
    with pytest.raises(ConnectionLossError):
        disturbed.multi([Create("/a", b"written"), Create("/b")])
    disturbed.wait_connected(SOON_S * 1000)
    assert disturbed.get("/a").data == b"written"
    with pytest.raises(NodeExistsError):
        disturbed.create("/b")


@pytest.fixture
def short_lived(proxy: Proxy, direct: ZooKeeperStore) -> Iterator[ZooKeeperStore]:
    """Like `disturbed`, with a session that expires soon when its client is silent."""
    hosts = f"127.0.0.1:{proxy.port}{direct._root}"
    store = ZooKeeperStore(hosts, session_timeout_ms=SHORT_SESSION_TIMEOUT_MS)
    yield store
    store.close()


def test_the_session_of_a_silent_client_expires(
    short_lived: ZooKeeperStore, direct: ZooKeeperStore, proxy: Proxy
) -> None:
    disturbed = short_lived
    states, old_watch, gone = States(), Seen(), Seen()
    disturbed.add_session_listener(states)
    old_session = disturbed.session_id
    disturbed.create("/mine", b"", ephemeral=True)
    disturbed.exists("/later", old_watch)
    direct.exists("/mine", gone)
    proxy.refuse(True)
    assert gone.next() == WatchEvent(WatchKind.DELETED, "/mine")
    proxy.refuse(False)
    states.wait_for(SessionState.EXPIRED)
    states.wait_for(SessionState.CONNECTED)
    assert disturbed.session_id not in (0, old_session)
    # The watches of the old session are gone with it. The new session works like the first.
    direct.create("/later")
    new_watch = Seen()
    disturbed.get("/later", new_watch)
    direct.delete("/later")
    assert new_watch.next().kind is WatchKind.DELETED
    assert old_watch.empty()


def test_the_session_survives_a_restart_of_the_server(zookeeper: ZooKeeperServer, proxy: Proxy) -> None:
    hosts = f"127.0.0.1:{proxy.port}/back{time.time_ns()}"
    with closing(ZooKeeperStore(hosts, session_timeout_ms=40_000)) as store:
        session_id = store.session_id
        store.create("/mine", b"kept", ephemeral=True)
        # The server may forget a connection that comes while it starts; the client then waits for long.
        proxy.refuse(True)
        zookeeper.kill()
        zookeeper.start()
        proxy.refuse(False)
        assert store.get("/mine").data == b"kept"
        assert store.session_id == session_id


def test_a_server_is_found_soon_after_it_was_away_for_long(
    disturbed: ZooKeeperStore, direct: ZooKeeperStore, proxy: Proxy
) -> None:
    states = States()
    disturbed.add_session_listener(states)
    proxy.refuse(True)
    states.wait_for(SessionState.SUSPENDED)
    # Waits that double each time would be six seconds by now.
    time.sleep(8)
    proxy.refuse(False)
    since_s = time.monotonic()
    disturbed.wait_connected(SOON_S * 1000)
    assert time.monotonic() - since_s < 4


def test_a_missing_server_raises_a_clear_error() -> None:
    with pytest.raises(ConnectionLossError, match=r"zookeeper\.connect"):
        ZooKeeperStore(f"127.0.0.1:{free_port()}", connect_timeout_ms=300)


@pytest.mark.parametrize("hosts", ["127.0.0.1:abc", "127.0.0.1:99999", ":2181", ",", "/chroot"])
def test_invalid_servers_are_a_config_error(hosts: str) -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.connect"):
        ZooKeeperStore(hosts)


def test_empty_names_between_commas_are_ignored() -> None:
    with pytest.raises(ConnectionLossError):
        ZooKeeperStore(f"127.0.0.1:{free_port()}, ,", connect_timeout_ms=50)


def test_closing_wakes_a_thread_that_waits_for_a_connection(disturbed: ZooKeeperStore, proxy: Proxy) -> None:
    states = States()
    disturbed.add_session_listener(states)
    proxy.refuse(True)
    states.wait_for(SessionState.SUSPENDED)
    with pytest.raises(ConnectionLossError):
        disturbed.wait_connected(50)
    disturbed.close()
    with pytest.raises(StoreClosedError):
        disturbed.wait_connected()


def test_a_store_that_cannot_make_its_chroot_leaves_no_client(
    zookeeper: ZooKeeperServer, direct: ZooKeeperStore
) -> None:
    direct.create("/alone", b"", ephemeral=True)  # which may have no children
    before = set(kazoo_clients.threads())
    with pytest.raises(EphemeralParentError):
        ZooKeeperStore(f"{zookeeper.hosts}{direct._root}/alone/below")
    eventually(lambda: set(kazoo_clients.threads()) <= before)


def test_paths_are_relative_to_the_chroot(zookeeper: ZooKeeperServer, direct: ZooKeeperStore) -> None:
    direct.create("/in/here", b"", make_parents=True)
    above = ZooKeeperStore(zookeeper.hosts)
    assert above.exists(direct._root + "/in/here") is not None
    above.close()
    seen = Seen()
    direct.get("/in/here", seen)
    assert direct.create("/in/n_", b"", sequential=True).startswith("/in/n_0")
    direct.delete("/in/here")
    assert seen.next().path == "/in/here"
