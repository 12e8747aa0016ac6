"""A move between log directories that one broker has begun is finished by the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import NoError

from tests.peers.kafka import KafkaPeer
from tests.peers.zookeeper import ZooKeeperServer
from tests.swap.clients import Admin
from tests.swap.world import World
from tests.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TOPIC = "orders"
BROKER_ID = 7
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


@pytest.fixture
def world(tmp_path: Path, kafka3: KafkaPeer) -> Iterator[World]:
    with ZooKeeperServer(tmp_path / "zookeeper", kafka3) as zookeeper:
        yield World(tmp_path, zookeeper)


def throttle(bootstrap: str, bytes_per_second: int) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    resource = ConfigResource(ConfigResourceType.BROKER, str(BROKER_ID), {RATE: str(bytes_per_second)})
    # Brokers do not describe this config unless it is set.
    admin.alter_configs([resource], raise_on_unknown=False)
    admin.close()


def copies(world: World) -> dict[str, int]:
    """The directories of the replica by name, with the size of their segments."""
    return {
        str(path.relative_to(world.work)): sum(each.stat().st_size for each in path.glob("*.log"))
        for directory in world.directories
        for path in directory.glob(f"{TOPIC}-0*")
    }


@pytest.mark.parametrize("first", ["klog", "kafka"])
def test_the_other_broker_finishes_a_move(world: World, first: str) -> None:
    starts = {"klog": world.klog, "kafka": world.kafka}
    second = "kafka" if first == "klog" else "klog"
    with starts[first]() as broker:
        world.create(Admin(broker.bootstrap), TOPIC, segment_bytes=200_000)
        # Kafka copies at most 1 MiB before it knows that it is too fast.
        while sum(copies(world).values()) < 3_000_000:
            world.write(broker.bootstrap, TOPIC, 3_000, first)
        (source,) = copies(world)
        target = next(each for each in world.directories if not source.startswith(each.name))
        throttle(broker.bootstrap, 1_000)
        broker.stop()
    # A change is heard of later than it is answered, but never after a start.
    with starts[first]() as broker:
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        answers = admin.alter_replica_log_dirs({(TOPIC, 0, BROKER_ID): str(target)})
        admin.close()
        assert list(answers.values()) == [NoError]
        eventually(lambda: any(size for name, size in copies(world).items() if name.endswith("-future")))
        broker.stop()
    (future,) = (name for name in copies(world) if name.endswith("-future"))
    assert future.startswith(target.name)
    with starts[second]() as broker:
        world.write(broker.bootstrap, TOPIC, 100, second)
        throttle(broker.bootstrap, 2**40)
        eventually((target / f"{TOPIC}-0").is_dir)
        world.write(broker.bootstrap, TOPIC, 100, second)
        world.check(broker.bootstrap)
        broker.stop()
    # Kafka may force files to disk by their old names after it has renamed the directory.
    assert [line for line in world.kafka_complaints if "-future" not in line] == []
    with starts[first]() as broker:
        world.check(broker.bootstrap)
        world.write(broker.bootstrap, TOPIC, 100, first)
        world.check(broker.bootstrap)
        broker.stop()
    assert world.kafka_recovery == []
