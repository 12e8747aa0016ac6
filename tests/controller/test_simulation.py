"""Random schedules: brokers fail and return, sessions expire, replies are lost, topics are created, grown,
moved and deleted.

At any time, one controller acts, leaders are in sync, and epochs only grow. At the end, when all brokers are
back, every topic has leaders, every deletion and reassignment is finished, and all brokers have the same
metadata.
"""

from __future__ import annotations

import os
import random
from contextlib import suppress

import pytest

from klog.controller.elections import ElectionType
from klog.controller.events import AlterReassignments, ControlledShutdown, ElectLeaders, RebalanceDue
from klog.formats.names import TopicPartition
from klog.metadata import paths, topics
from klog.metadata.errors import MetadataError
from tests.controller.simulation import Fate, SimulatedBroker, SimulatedCluster

SEEDS = int(os.environ.get("KLOG_SIMULATION_SEEDS", "150"))
STEPS = 400
BROKERS = (1, 2, 3, 4)
NAMES = ("a", "b", "c", "d")


class Chaos:
    """One run with a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = SimulatedCluster(BROKERS)
        self.world.fate = self.fate
        self.actions = [
            self.create,
            self.create,
            self.delete,
            self.grow,
            self.kill,
            self.restart,
            self.restart,
            self.expire,
            self.depose,
            self.shut_down,
            self.change_isr,
            self.change_isr,
            self.change_isr,
            self.elect,
            self.reassign,
            self.rebalance,
            self.fail_dir,
        ]

    def run(self) -> None:
        for _ in range(STEPS):
            steps = self.world.steps()
            if steps and self.rng.random() < 0.9:
                self.rng.choice(steps)()
            else:
                # An invalid request of an administrator (no such topic, no such broker) must do no harm.
                with suppress(MetadataError):
                    self.rng.choice(self.actions)()
            self.world.check()

    def fate(self) -> Fate:
        return self.rng.choices([Fate.FINE, Fate.LOST_BEFORE, Fate.LOST_AFTER], [96, 2, 2])[0]

    # --- what may happen ---

    def replicas(self) -> list[int]:
        return self.rng.sample(BROKERS, self.rng.randint(1, 3))

    def create(self) -> None:
        count = self.rng.randint(1, 3)
        factor = self.rng.randint(1, 3)
        partitions = {each: self.rng.sample(BROKERS, factor) for each in range(count)}
        self.world.create_topic(self.rng.choice(NAMES), partitions)

    def delete(self) -> None:
        topics.request_deletion(self.world.admin, self.rng.choice(NAMES))

    def grow(self) -> None:
        name = self.rng.choice(NAMES)
        present = topics.read_topics(self.world.admin, [name]).get(name)
        if present is not None and len(present.partitions) < 6:
            topics.add_partitions(self.world.admin, name, {len(present.partitions): self.replicas()})

    def some_broker(self) -> SimulatedBroker:
        return self.world.brokers[self.rng.choice(sorted(self.world.brokers))]

    def kill(self) -> None:
        if len(self.world.brokers) > 1:
            self.world.kill(self.some_broker().broker_id)

    def restart(self) -> None:
        dead = sorted(set(BROKERS) - set(self.world.brokers))
        if dead:
            self.world.start(self.rng.choice(dead))

    def expire(self) -> None:
        self.some_broker().session.expire()

    def depose(self) -> None:
        self.world.admin.delete(paths.CONTROLLER)

    def shut_down(self) -> None:
        active, broker = self.world.active(), self.some_broker()
        if active is not None:
            active.events.append(ControlledShutdown(broker.broker_id, broker.epoch, lambda _answer: None))

    def change_isr(self) -> None:
        broker = self.some_broker()
        if broker.led():
            partition = self.rng.choice(broker.led())
            others = [each for each in broker.hosted[partition].replicas if each != broker.broker_id]
            isr = [broker.broker_id, *self.rng.sample(others, self.rng.randint(0, len(others)))]
            self.rng.shuffle(isr)
            broker.alter_isr(partition, tuple(isr))

    def elect(self) -> None:
        active = self.world.active()
        if active is not None:
            active.events.append(ElectLeaders(None, ElectionType.PREFERRED, lambda _answer: None))

    def rebalance(self) -> None:
        active = self.world.active()
        if active is not None:
            active.events.append(RebalanceDue())

    def reassign(self) -> None:
        active = self.world.active()
        if active is not None:
            partition = TopicPartition(self.rng.choice(NAMES), self.rng.randint(0, 2))
            target = self.replicas() if self.rng.random() < 0.8 else None
            active.events.append(AlterReassignments({partition: target}, lambda _answer: None))

    def fail_dir(self) -> None:
        broker = self.some_broker()
        if broker.hosted:
            broker.fail_dir([self.rng.choice(sorted(broker.hosted))])


def heal(world: SimulatedCluster) -> None:
    """Starts all brokers, repairs failed directories, ends controlled
    shutdowns, and lets all replicas catch up.
    """
    world.settle()
    for broker_id in BROKERS:
        if broker_id in world.brokers:
            world.kill(broker_id)
            world.settle()
        world.start(broker_id)
        world.settle()
    for _ in range(10):
        behind = [
            (broker, partition)
            for broker in world.brokers.values()
            for partition in broker.led()
            if set(broker.hosted[partition].isr) != set(broker.hosted[partition].replicas)
        ]
        for broker, partition in behind:
            broker.alter_isr(partition, broker.hosted[partition].replicas)
        world.settle()
        if not behind:
            return


def check_end(world: SimulatedCluster) -> None:
    active = [each for each in world.brokers.values() if each.core.is_active]
    assert len(active) == 1
    assert {each.core.active_controller_id for each in world.brokers.values()} == {active[0].broker_id}
    assert topics.topics_to_delete(world.admin) == []
    hosted: dict[int, set[TopicPartition]] = {each: set() for each in BROKERS}
    seen = {}
    for name in topics.topic_names(world.admin):
        topic = world.topic(name)
        states = world.states(name)
        for partition, assignment in topic:
            assert not assignment.is_being_reassigned
            state = states[partition.partition].leader_and_isr
            assert state.leader in assignment.replicas
            assert set(state.isr) == set(assignment.replicas)
            seen[partition] = (state.leader, state.leader_epoch, state.isr, assignment.replicas)
            for each in assignment.replicas:
                hosted[each].add(partition)
                last_sent = world.brokers[each].hosted[partition]
                assert (last_sent.leader, last_sent.leader_epoch) == (state.leader, state.leader_epoch)
    for broker in world.brokers.values():
        known = {
            TopicPartition(topic, number): (each.leader, each.leader_epoch, each.isr, each.replicas)
            for topic, partitions in broker.cache.snapshot.topics.items()
            for number, each in partitions.items()
        }
        assert known == seen
        assert set(broker.hosted) == hosted[broker.broker_id]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_cluster_recovers_from_any_schedule(seed: int) -> None:
    chaos = Chaos(seed)
    chaos.run()
    heal(chaos.world)
    chaos.world.check()
    check_end(chaos.world)
