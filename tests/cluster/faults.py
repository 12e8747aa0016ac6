"""Faults of a running cluster, one after the other in the order that a seed gives.

After each fault all brokers are started and connected, and all replicas must be in sync again in bounded
time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final

from tests.checker.players import INPUT, INPUT_PARTITIONS
from tests.cluster.links import ZOOKEEPER
from tests.cluster.world import SESSION_MS, Cluster
from tests.swap.clocks import HOUR_S

# Some session timeouts, because a busy machine may notice late.
EXPIRY_S: Final = 10 * SESSION_MS / 1000
# Less than after what brokers forget producers.
MAX_JUMP_S: Final = 12 * HOUR_S
Fault = Callable[[Cluster, random.Random], None]


def _some_leader(world: Cluster, chance: random.Random) -> int:
    return world.leader((INPUT, chance.randrange(INPUT_PARTITIONS)))


def kill_leader(world: Cluster, chance: random.Random) -> None:
    _kill(world, chance, _some_leader(world, chance))


def kill_controller(world: Cluster, chance: random.Random) -> None:
    _kill(world, chance, world.wait_for_controller())


def kill_controller_and_another(world: Cluster, chance: random.Random) -> None:
    """At once. The other one is a leader, unless the controller leads all."""
    controller = world.wait_for_controller()
    leaders = {world.leader((INPUT, number)) for number in range(INPUT_PARTITIONS)} - {controller}
    _kill(world, chance, controller, chance.choice(sorted(leaders) or world.others(controller)))


def _kill(world: Cluster, chance: random.Random, *broker_ids: int) -> None:
    for each in broker_ids:
        world.members[each].kill()
    time.sleep(chance.uniform(0, 2))
    world.start(*broker_ids)


def restart_cleanly(world: Cluster, chance: random.Random) -> None:
    broker_id = chance.choice(list(world.members))
    world.members[broker_id].stop()
    world.start(broker_id)


def pause_beyond_the_session(world: Cluster, chance: random.Random) -> None:
    """A broker is suspended until its session has expired. It learns that afterwards."""
    broker_id = chance.choice([_some_leader(world, chance), world.wait_for_controller()])
    world.members[broker_id].pause()
    try:
        world.until(lambda: broker_id not in world.tree.brokers(), "the session does not expire", EXPIRY_S)
        time.sleep(chance.uniform(0, 1))
    finally:
        world.members[broker_id].resume()
    world.until(lambda: broker_id in world.tree.brokers(), f"{broker_id} does not come back")


def cut_from_zookeeper(world: Cluster, chance: random.Random) -> None:
    """A broker loses its session, and serves on meanwhile."""
    broker_id = chance.choice(list(world.members))
    world.links.cut(broker_id, ZOOKEEPER)
    try:
        world.until(lambda: broker_id not in world.tree.brokers(), "the session does not expire", EXPIRY_S)
        time.sleep(chance.uniform(0, 1))
    finally:
        world.links.restore()
    world.until(lambda: broker_id in world.tree.brokers(), f"{broker_id} does not come back")


def cut_from_brokers(world: Cluster, chance: random.Random) -> None:
    """Two brokers, or one and both others, cannot reach each other for a while."""
    broker_id = chance.choice(list(world.members))
    others = world.others(broker_id)
    world.links.isolate(broker_id, others if chance.random() < 0.5 else [chance.choice(others)])
    time.sleep(chance.uniform(0.5, 4))
    world.links.restore()


def reset_connections(world: Cluster, chance: random.Random) -> None:
    broker_id = chance.choice(list(world.members))
    for other in (*world.others(broker_id), ZOOKEEPER):
        world.links.reset(broker_id, other)


def restart_zookeeper(world: Cluster, chance: random.Random) -> None:
    world.zookeeper.kill()
    time.sleep(chance.uniform(0, 2))
    world.zookeeper.start()


def elect_another_controller(world: Cluster, chance: random.Random) -> None:
    world.wait_for_known_controller()
    world.tree.delete_controller()


def set_a_clock(world: Cluster, chance: random.Random) -> None:
    """The clock of a klog broker jumps, by up to half a day in either direction, and back after a while."""
    member = world.members[chance.choice(list(world.members))]
    member.set_clock(chance.randint(-MAX_JUMP_S, MAX_JUMP_S))
    time.sleep(chance.uniform(0.5, 3))
    member.set_clock(0)


FAULTS: Final[dict[str, Fault]] = {
    each.__name__: each
    for each in (
        kill_leader,
        kill_controller,
        kill_controller_and_another,
        restart_cleanly,
        pause_beyond_the_session,
        cut_from_zookeeper,
        cut_from_brokers,
        reset_connections,
        restart_zookeeper,
        elect_another_controller,
        set_a_clock,
    )
}


def play_faults(world: Cluster, chance: random.Random, seconds: float) -> list[str]:
    """Plays faults for a while, at least one. Each kind comes once before any comes again."""
    played: list[str] = []
    end_s = time.monotonic() + seconds
    while not played or time.monotonic() < end_s:
        for name in chance.sample(list(FAULTS), len(FAULTS)):
            if played and time.monotonic() >= end_s:
                break
            played.append(name)
            try:
                FAULTS[name](world, chance)
                world.wait_for_known_controller()
                world.wait_for_full_isr()
            except BaseException as error:
                error.add_note(f"faults so far: {', '.join(played)}")
                raise
            time.sleep(chance.uniform(0.2, 1))
    return played
