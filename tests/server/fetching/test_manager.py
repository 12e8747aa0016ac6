"""Which thread copies which partition: by leader and hash, as roles, addresses and thread counts change."""

from __future__ import annotations

from pathlib import Path

import pytest

from klog.config.broker import BrokerConfig
from klog.formats.names import TopicPartition
from klog.replication.fetching.values import FetchStart
from klog.replication.roles import Role, RoleChange
from klog.server.fetching.manager import FetcherManager, fetcher_id
from klog.server.fetching.opening import receive_buffer_bytes
from tests.replication.fetching.parts import Node
from tests.server.handlers.parts import BROKER, TOPIC

OWN = 2
IDS = (BROKER, OWN, 3)


class FakeThread:
    """Keeps what it is told."""

    def __init__(self, leader: int, number: int) -> None:
        self.place = leader, number
        self.partitions: dict[TopicPartition, FetchStart] = {}
        self.is_alive = self.started = self.joined = False
        self.reconnects = 0
        self.driver = self

    @property
    def is_idle(self) -> bool:
        return not self.partitions

    def start(self) -> None:
        self.is_alive = self.started = True

    def add(self, starts: dict[TopicPartition, FetchStart]) -> None:
        assert self.started
        self.partitions |= starts

    def remove(self, keys) -> dict[TopicPartition, FetchStart]:
        return {key: self.partitions.pop(key) for key in keys}

    def remove_all(self) -> dict[TopicPartition, FetchStart]:
        return self.remove(list(self.partitions))

    def reconnect(self) -> None:
        self.reconnects += 1

    def stop(self) -> None:
        self.is_alive = False

    def join(self, timeout_s: float | None = None) -> None:
        assert timeout_s is not None  # it may be connecting to a host that does not answer
        self.joined = True


class Managed:
    """Broker 2, whose roles go to a manager with fake threads."""

    def __init__(self, root: Path, fetchers: int) -> None:
        self.node = Node(root / "broker", OWN)
        self.made: list[FakeThread] = []
        self.address: object = "host:1"
        self.manager = FetcherManager(self.node.replicas, self._new, fetchers, lambda _: self.address)
        self.node.replicas.add_listener(self.manager.on_changes)

    def _new(self, leader: int, number: int) -> FakeThread:
        self.made.append(FakeThread(leader, number))
        return self.made[-1]

    def lead(self, number: int, leader: int, epoch: int) -> None:
        self.node.lead(partition=number, leader=leader, epoch=epoch, replicas=IDS)

    def places(self) -> dict[int, tuple[int, int]]:
        """The thread of each partition."""
        return {
            key.partition: place
            for place, thread in self.manager.threads.items()
            for key in thread.partitions
        }


@pytest.fixture
def managed(tmp_path: Path) -> Managed:
    return Managed(tmp_path, 2)


def key(number: int) -> TopicPartition:
    return TopicPartition(TOPIC, number)


@pytest.mark.parametrize(
    ("topic", "partition", "fetchers", "expected"),
    [
        # (31 * "t1".hashCode() + partition), absolute, as Java computes it
        ("t1", 0, 4, 31 * 3645 % 4),
        ("t1", 3, 4, (31 * 3645 + 3) % 4),
        ("orders", 0, 1, 0),
        ("polygenelubricants", 0, 7, 0),  # its hash is the smallest int, and so is 31 times that
    ],
)
def test_the_fetcher_is_kafka_s_hash(topic: str, partition: int, fetchers: int, expected: int) -> None:
    assert fetcher_id(TopicPartition(topic, partition), fetchers) == expected


def test_partitions_of_one_leader_spread_over_its_threads(managed: Managed) -> None:
    for number in range(4):
        managed.lead(number, BROKER, 0)
    managed.lead(4, 3, 0)
    expected = {number: (BROKER, fetcher_id(key(number), 2)) for number in range(4)}
    assert managed.places() == expected | {4: (3, fetcher_id(key(4), 2))}
    assert len(managed.made) == 3


def test_a_partition_moves_with_its_leader_and_an_idle_thread_ends(managed: Managed) -> None:
    managed.lead(0, BROKER, 0)
    managed.lead(0, 3, 1)
    assert managed.places() == {0: (3, fetcher_id(key(0), 2))}
    assert [thread.is_alive for thread in managed.made] == [False, True]
    assert managed.made[1].partitions[key(0)] == FetchStart(1, 0)


@pytest.mark.parametrize("leader", [OWN, -1])
def test_what_is_not_followed_is_not_copied(managed: Managed, leader: int) -> None:
    managed.lead(0, BROKER, 0)
    managed.lead(0, leader, 1)
    assert managed.places() == {}
    assert not managed.made[0].is_alive


def test_a_failed_directory_ends_the_copying(managed: Managed) -> None:
    managed.lead(0, BROKER, 0)
    managed.node.replicas.directory_failed([key(0)])
    assert managed.places() == {}


def test_another_address_of_the_leader_ends_its_connections(managed: Managed) -> None:
    managed.lead(0, BROKER, 0)
    managed.lead(1, BROKER, 0)
    assert [thread.reconnects for thread in managed.made] == [0, 0]
    managed.address = "host:2"
    managed.lead(0, BROKER, 1)
    assert [thread.reconnects for thread in managed.made] == [1, 1]


@pytest.mark.parametrize("fetchers", [1, 4])
def test_another_number_of_threads_keeps_the_positions(managed: Managed, fetchers: int) -> None:
    for number in range(6):
        managed.lead(number, BROKER, 0)
    for thread in managed.made:
        thread.partitions = {each: FetchStart(0, 10 + each.partition) for each in thread.partitions}
    managed.manager.resize(fetchers)
    assert managed.places() == {number: (BROKER, fetcher_id(key(number), fetchers)) for number in range(6)}
    starts = [thread.partitions for thread in managed.manager.threads.values()]
    assert {each.partition: start.offset for of in starts for each, start in of.items()} == {
        number: 10 + number for number in range(6)
    }
    managed.lead(0, 3, 1)
    assert managed.places()[0] == (3, fetcher_id(key(0), fetchers))


def test_a_stop_ends_all_threads_and_nothing_is_added_after_it(managed: Managed) -> None:
    managed.lead(0, BROKER, 0)
    managed.lead(1, 3, 0)
    managed.manager.stop()
    managed.lead(2, BROKER, 0)
    assert managed.places() == {}
    assert all(thread.joined and not thread.is_alive for thread in managed.made)


def test_a_partition_that_comes_again_in_one_request_is_copied(managed: Managed) -> None:
    managed.lead(0, BROKER, 0)
    partition = managed.node.partition(key(0))
    role = {"leader_epoch": 0}
    managed.manager.on_changes(
        [
            RoleChange(key(0), Role.FOLLOWER, Role.DELETED, **role),
            RoleChange(key(0), Role.ABSENT, Role.FOLLOWER, **role),
        ]
    )
    assert partition.state.leader == BROKER
    assert managed.places() == {0: (BROKER, fetcher_id(key(0), 2))}


@pytest.mark.parametrize(("given", "size_bytes"), [({}, -1), ({"": "300000"}, 300_000), ({"": "-1"}, -1)])
def test_the_receive_buffer_is_the_system_s_unless_it_is_set(given: dict[str, str], size_bytes: int) -> None:
    name = "replica.socket.receive.buffer.bytes"
    config = BrokerConfig({f"{name}{key}": value for key, value in given.items()})
    assert receive_buffer_bytes(config) == size_bytes
