"""After any history of a consumer group no partition has two owners, and good members come to rest."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from klog.coordinator.groups.consumer.values import STATIC_LEAVE_EPOCH, ConsumerGroupState
from klog.protocol.error_codes import ErrorCode
from tests.coordinator.consumer.play import Client, Play, cluster

SUBSCRIPTIONS = (("t",), ("u",), ("t", "u"), ("t", "missing"))
STEPS = (
    "beat",
    "beat",
    "beat",
    "beat",
    "join",
    "leave",
    "subscribe",
    "grow",
    "wait",
    "restart",
    "fail",
    "lose",
)


class History:
    """Members that come, go, change, and lose answers, chosen by a seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.counts = {"t": 4, "u": 3}
        self.play = Play(self.counts)
        self.clients: list[Client] = []
        self.names = 0

    def step(self) -> None:
        name = self.chance.choice(STEPS)
        client = self.chance.choice(self.clients) if self.clients else None
        if name == "join" or client is None:
            self.join()
        elif name == "beat":
            client.beat()
        elif name == "leave":
            self.leave(client)
        elif name == "subscribe" and client.epoch:
            client.change(topics=self.chance.choice(SUBSCRIPTIONS))
        elif name == "grow":
            self.counts[self.chance.choice(sorted(self.counts))] += 1
            self.play.topics = cluster(self.counts)
        elif name == "wait":
            self.play.advance(self.chance.randrange(20_000))
        elif name == "restart":
            self.play.restart()
        elif name == "fail":
            self.play.write_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
            client.beat()
            self.play.write_error = ErrorCode.NONE
        elif name == "lose" and client.epoch:
            self.lose_answer(client)

    def join(self) -> None:
        if len(self.clients) == 5:
            return
        self.names += 1
        instance = self.chance.choice((None, f"i{self.names}"))
        client = Client(self.play, f"m{self.names}", self.chance.choice(SUBSCRIPTIONS), instance_id=instance)
        self.clients.append(client)
        client.beat()

    def leave(self, client: Client) -> None:
        if client.epoch:
            for_a_while = client.full.instance_id is not None and self.chance.random() < 0.5
            client.leave(STATIC_LEAVE_EPOCH if for_a_while else -1)
        self.clients.remove(client)

    def lose_answer(self, client: Client) -> None:
        epoch, owned = client.epoch, client.owned
        client.beat()
        if not client.error:
            client.epoch, client.owned = epoch, owned & client.owned
            client.tells_all = True

    def check(self) -> None:
        """No two members may read the same partition, whatever they were told last."""
        records = self.play.group.records
        held = [each for current in records.current.values() for each in current.assigned | current.revoking]
        assert len(held) == len(set(held))
        live = [client for client in self.clients if client.name in records.members and client.epoch]
        for client in live:
            current = records.current[client.name]
            assert client.owned <= current.assigned | current.revoking
        for member_id, current in records.current.items():
            assert current.epoch <= records.assignment_epoch <= records.epoch, member_id


@settings(max_examples=150)
@given(st.integers(0, 2**32))
def test_no_partition_has_two_owners_and_members_that_behave_come_to_rest(seed: int) -> None:
    history = History(seed)
    for _ in range(60):
        history.step()
        history.check()
    while not history.clients:
        history.join()
    play, clients = history.play, history.clients
    for _ in range(20):
        for client in clients:
            client.beat()
        play.advance(5_000)
    play.advance(0)
    group = play.group
    assert group.state is ConsumerGroupState.STABLE
    wanted = {
        each
        for client in clients
        for topic in client.full.topics or ()
        if (known := play.topics.get(topic)) is not None
        for each in ((known.topic_id, number) for number in range(known.partitions))
    }
    owned = [each for client in clients for each in client.owned]
    assert sorted(owned) == sorted(wanted)
    loaded = play.loaded()
    assert loaded.members == group.records.members
    assert loaded.current == group.records.current
    assert loaded.targets == group.records.targets
