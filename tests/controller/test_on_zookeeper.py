"""Controllers of two brokers on real ZooKeeper: broken
connections, expired sessions and lost replies.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from klog.controller.events import RebalanceDue, ResponseReceived, TreeChanged, WatchedNode
from klog.controller.runner import Controller
from klog.controller.settings import ControllerSettings
from klog.formats.names import TopicPartition
from klog.metadata import cluster, topics
from klog.metadata.control_requests import ControlRequest
from klog.metadata.store import MetadataStore
from klog.metadata.values import BrokerRegistration, Endpoint
from klog.metadata.zookeeper import ZooKeeperStore
from klog.server.peers.broker_channels import BrokerChannels
from klog.server.peers.controller_times import ControllerTimes
from tests.controller.answers import obeyed
from tests.metadata.proxy import Proxy
from tests.peers.zookeeper import ZooKeeperServer
from tests.waiting import eventually

pytestmark = pytest.mark.kafka

SOON_S = 30
# Long enough that a busy machine does not expire sessions on its own.
SESSION_TIMEOUT_MS = 6_000


class ObedientChannel:
    """A channel to a broker that obeys."""

    def send(self, request: ControlRequest) -> object:
        return obeyed(request)

    def close(self) -> None:
        pass


class Member:
    """A broker's store behind its own proxy, its registration and its controller."""

    def __init__(self, server: ZooKeeperServer, root: str, broker_id: int) -> None:
        self.proxy = Proxy(server.port)
        hosts = f"127.0.0.1:{self.proxy.port}{root}"
        self.store = ZooKeeperStore(hosts, session_timeout_ms=SESSION_TIMEOUT_MS)
        endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", "h", 1)
        self._registration = BrokerRegistration(broker_id, (endpoint,))
        self._session: int | None = None
        self.epochs: list[int] = []
        cluster.create_persistent_nodes(self.store)
        self.register()
        self.controller = Controller(
            lambda: ControllerSettings(broker_id=broker_id),
            self.store,
            BrokerChannels(lambda _broker: ObedientChannel(), self._answered),
            self.register,
            lambda: int(time.time() * 1000),
            time.monotonic_ns,
            ControllerTimes(),
        )
        self.controller.start()

    def _answered(self, answer: ResponseReceived) -> None:
        self.controller.put(answer)

    def register(self) -> None:
        self.epochs.append(cluster.register_broker(self.store, self._registration, self._session))
        self._session = self.store.session_id

    def stop(self) -> None:
        self.controller.stop()
        self.store.close()
        self.proxy.close()


@pytest.fixture
def members(zookeeper: ZooKeeperServer) -> Iterator[dict[int, Member]]:
    root = f"/controllers{time.time_ns()}"
    members = {each: Member(zookeeper, root, each) for each in (1, 2)}
    eventually(lambda: all(each.controller.active_controller_id != -1 for each in members.values()))
    # The one that is elected is active a moment later.
    eventually(lambda: any(each.controller.is_active for each in members.values()))
    yield members
    for each in members.values():
        each.stop()


def active_id(members: dict[int, Member]) -> int:
    return next(each for each, member in members.items() if member.controller.is_active)


def leader(store: MetadataStore, name: str) -> int | None:
    partition = TopicPartition(name, 0)
    state = topics.read_partition_states(store, [partition]).get(partition)
    return None if state is None else state.leader_and_isr.leader


def create(store: MetadataStore, name: str, replicas: list[int]) -> None:
    topics.create_topic(store, name, topics.new_topic_id(os.urandom), {0: replicas}, {}, [1, 2])


def test_a_controller_whose_session_expires_is_replaced_and_returns_as_a_broker(
    members: dict[int, Member],
) -> None:
    old = active_id(members)
    new = 3 - old
    create(members[new].store, "t", [old, new])
    eventually(lambda: leader(members[new].store, "t") == old)
    members[old].proxy.refuse(True)
    eventually(lambda: members[new].controller.is_active)
    eventually(lambda: leader(members[new].store, "t") == new)
    members[old].proxy.refuse(False)
    eventually(lambda: not members[old].controller.is_active)
    eventually(lambda: members[old].controller.active_controller_id == new)
    eventually(lambda: sorted(cluster.live_brokers(members[new].store)) == [1, 2])
    # Others see the registration before the one that registers has its answer.
    eventually(lambda: len(members[old].epochs) == 2)
    assert members[old].epochs[0] < members[old].epochs[1]
    create(members[old].store, "u", [old])
    eventually(lambda: leader(members[old].store, "u") == old)


def test_a_controller_survives_broken_connections_and_lost_replies(members: dict[int, Member]) -> None:
    active = members[active_id(members)]
    other = members[3 - active_id(members)]
    for number in range(8):
        if number % 2:
            active.proxy.cut()
        else:
            active.proxy.lose_next_reply()
        create(other.store, f"t{number}", [1, 2])
        eventually(lambda number=number: leader(other.store, f"t{number}") == 1)
    assert active.controller.is_active
    topics.request_deletion(other.store, "t0")
    active.proxy.lose_next_reply()
    eventually(lambda: "t0" not in topics.topic_names(other.store))


def test_another_broker_is_elected_at_once_when_a_controller_stops(members: dict[int, Member]) -> None:
    old = active_id(members)
    members[old].controller.stop()
    eventually(lambda: members[3 - old].controller.is_active)


def test_a_controller_that_waits_for_zookeeper_is_stopped_by_closing_the_store(
    members: dict[int, Member],
) -> None:
    active = members[active_id(members)]
    active.proxy.refuse(True)
    eventually(lambda: not active.store._connected.is_set())
    create(members[3 - active_id(members)].store, "t", [1, 2])
    active.controller.put(RebalanceDue())
    active.controller.put(TreeChanged(WatchedNode.TOPICS))
    assert not active.controller.stop(timeout_ms=100)
    active.store.close()
    assert active.controller.stop(timeout_ms=SOON_S * 1000)
