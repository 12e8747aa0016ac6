"""A broker whose id another session has registered waits for the end of that session."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from klog.metadata import paths
from klog.metadata.cluster import create_persistent_nodes, live_brokers
from klog.metadata.errors import BrokerIdInUseError, WaitCancelledError
from klog.metadata.local import SharedTree, TreeSession
from klog.metadata.values import BrokerRegistration, Endpoint
from klog.server.peers import registration
from klog.server.peers.registration import Registration
from tests.metadata.memory_tree import NoJournal
from tests.threads import join, started
from tests.waiting import eventually


@pytest.fixture
def open_session() -> Callable[[], TreeSession]:
    tree = SharedTree(NoJournal(), lambda: 0)
    return lambda: TreeSession(tree, lambda watches: None)


def broker(port: int) -> BrokerRegistration:
    endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", port)
    return BrokerRegistration(1, (endpoint,), None, timestamp_ms=0)


def never() -> bool:
    return False


def test_a_killed_brokers_registration_is_waited_for(open_session, caplog: pytest.LogCaptureFixture) -> None:
    killed, store = open_session(), open_session()
    create_persistent_nodes(store)
    Registration(killed, lambda: broker(9092)).register(never)
    new = Registration(store, lambda: broker(9093))
    with caplog.at_level(logging.WARNING):
        waiting = started(lambda: new.register(never, 600_000))
        eventually(lambda: "another ZooKeeper session, 127.0.0.1:9092: waiting up to 603 s" in caplog.text)
        killed.close()
        join([waiting])
    assert live_brokers(store)[1].endpoints[0].port == 9093
    assert new.epoch == live_brokers(store)[1].epoch


def test_a_broker_with_the_id_of_a_live_one_is_refused(open_session, monkeypatch) -> None:
    monkeypatch.setattr(registration, "_TICK_MS", 0)
    live, store = open_session(), open_session()
    create_persistent_nodes(store)
    Registration(live, lambda: broker(9092)).register(never)
    with pytest.raises(
        BrokerIdInUseError, match=r"broker id 1 is in use by another live broker, 127\.0\.0\.1:9092"
    ):
        Registration(store, lambda: broker(9093)).register(never, 1)
    assert live_brokers(store)[1].endpoints[0].port == 9092


def test_the_wait_ends_when_the_broker_is_stopped(open_session) -> None:
    live, store = open_session(), open_session()
    create_persistent_nodes(store)
    Registration(live, lambda: broker(9092)).register(never)
    with pytest.raises(WaitCancelledError):
        Registration(store, lambda: broker(9093)).register(lambda: True, 600_000)


def test_an_update_without_a_registration_is_left_out(open_session) -> None:
    store = open_session()
    create_persistent_nodes(store)
    own = Registration(store, lambda: broker(9092))
    own.update()
    assert store.exists(paths.broker(1)) is None
