"""klog and real Kafka 3.9 on real ZooKeeper: each understands what the other writes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from klog.controller.core import ControllerCore
from klog.controller.events import Event, Startup
from klog.controller.settings import ControllerSettings
from klog.formats.names import TopicPartition
from klog.metadata import cluster, configs, paths, topics, znodes
from klog.metadata.control_requests import ControlRequest
from klog.metadata.election import read_controller
from klog.metadata.errors import BrokerIdInUseError
from klog.metadata.values import BrokerRegistration, Endpoint, LeaderAndIsr
from klog.metadata.zookeeper import ZooKeeperStore
from klog.server.peers.controller_times import ControllerTimes
from tests.peers import KafkaPeer, ZooKeeperBroker
from tests.waiting import eventually

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def broker(kafka3: KafkaPeer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperBroker]:
    with ZooKeeperBroker(tmp_path_factory.mktemp("kafka"), peer=kafka3) as broker:
        yield broker


@pytest.fixture
def store(broker: ZooKeeperBroker) -> Iterator[ZooKeeperStore]:
    store = ZooKeeperStore(f"127.0.0.1:{broker.zookeeper_port}")
    yield store
    store.close()


def test_kafkas_registration_is_read(broker: ZooKeeperBroker, store: ZooKeeperStore) -> None:
    registered = cluster.live_brokers(store)[0]
    assert registered.endpoints == (Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", broker.port),)
    assert registered.epoch == store.get(paths.broker(0)).stat.created_zxid
    node = store.get(paths.broker(0))
    assert znodes.encode_broker(registered) == node.data
    with pytest.raises(BrokerIdInUseError):
        cluster.register_broker(store, registered)


def test_kafkas_controller_creates_grows_and_deletes_topics_that_klog_wrote(store: ZooKeeperStore) -> None:
    topics.create_topic(store, "asked", topics.new_topic_id(os.urandom), {0: [0]}, {"retention.ms": "9"}, [0])
    first, second = TopicPartition("asked", 0), TopicPartition("asked", 1)
    eventually(lambda: first in topics.read_partition_states(store, [first]))
    topics.add_partitions(store, "asked", {1: [0]})
    eventually(lambda: second in topics.read_partition_states(store, [second]))
    states = topics.read_partition_states(store, [first, second])
    assert {each.leader_and_isr for each in states.values()} == {LeaderAndIsr(0, 0, (0,))}
    configs.change_config(store, "topics/asked", {"retention.ms": "10"})
    topics.request_deletion(store, "asked")
    eventually(lambda: store.exists(paths.topic("asked")) is None)
    # Kafka removes the topic before its configs, one write after the other.
    eventually(lambda: configs.read_config(store, "topics/asked") == {})


class SilentQueue:
    """A BrokerRequestQueue whose brokers never answer."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, ControlRequest]] = []

    def add_broker(self, broker: BrokerRegistration) -> None:
        pass

    def remove_broker(self, broker_id: int) -> None:
        pass

    def send(self, broker_id: int, request: ControlRequest) -> None:
        self.sent.append((broker_id, request))

    def close(self) -> None:
        pass


def test_klog_replaces_kafka_as_controller_and_kafka_replaces_klog(
    broker: ZooKeeperBroker, store: ZooKeeperStore
) -> None:
    del broker
    topics.create_topic(store, "kept", topics.new_topic_id(os.urandom), {0: [0]}, {}, [0])
    partition = TopicPartition("kept", 0)
    eventually(lambda: partition in topics.read_partition_states(store, [partition]))
    request_queue, events = SilentQueue(), list[Event]()
    settings = ControllerSettings(broker_id=7)
    core = ControllerCore(
        lambda: settings,
        store,
        request_queue,
        events.append,
        lambda: None,
        lambda: int(time.time() * 1000),
        ControllerTimes(),
    )
    core.handle(Startup())
    assert not core.is_active
    assert core.active_controller_id == 0
    before = znodes.decode_epoch(store.get(paths.CONTROLLER_EPOCH).data)
    # Kafka takes part in the next election at once, and either may win it.
    for _ in range(50):
        store.delete(paths.CONTROLLER)
        core.handle(Startup())
        if core.is_active:
            break
        eventually(lambda: read_controller(store) is not None)
    assert core.is_active
    assert core.active is not None
    assert core.active.fenced.epoch > before
    state = topics.read_partition_states(store, [partition])[partition]
    assert state.leader_and_isr.leader == 0
    assert {to for to, _ in request_queue.sent} == {0}
    # Kafka resigned when it saw us. When we resign it is elected, in a later epoch than ours.
    ours = core.active.fenced.epoch
    core.resign()
    eventually(lambda: (now := read_controller(store)) is not None and now.broker_id == 0)
    eventually(lambda: znodes.decode_epoch(store.get(paths.CONTROLLER_EPOCH).data) > ours)
    topics.create_topic(store, "later", topics.new_topic_id(os.urandom), {0: [0]}, {}, [0])
    later = TopicPartition("later", 0)
    eventually(lambda: later in topics.read_partition_states(store, [later]))
    assert topics.read_partition_states(store, [later])[later].controller_epoch > ours
