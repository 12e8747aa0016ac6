"""A cluster of three brokers that tests may kill and start again; klog's or Kafka's, on a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from kazoo.client import KazooClient

from tests.cluster.members import Kind, Member
from tests.peers import KafkaPeer
from tests.peers.broker import SINGLE_BROKER, Config, ports_of_brokers
from tests.peers.zookeeper import ZooKeeperServer
from tests.waiting import eventually

LOG_DIRS = 2


def await_all_known(ports: Collection[int]) -> None:
    """Wait until the broker at each port knows those at all of them: a start is told before."""
    eventually(lambda: all({*ports} == {*ports_of_brokers(port)} for port in ports))


class ThreeBrokers:
    """Brokers 0, 1 and 2, each with two log directories and a rack of its own."""

    def __init__(self, members: list[Member], zookeeper: str) -> None:
        self.members = members
        self._zookeeper = zookeeper

    @property
    def bootstrap(self) -> str:
        """The addresses of all three, also of those that do not run."""
        return ",".join(member.address for member in self.members)

    def kill(self, broker_id: int) -> None:
        """End a broker without a clean stop."""
        self.members[broker_id].kill()

    def restore(self) -> None:
        """Start what does not run, and wait until every broker knows all."""
        for member in self.members:
            if not member.runs:
                self.start(member.broker_id)
        await_all_known([member.clients_port for member in self.members])

    def start(self, broker_id: int) -> None:
        """Start a broker. Kafka refuses to while the session of its predecessor lasts."""
        client = KazooClient(self._zookeeper)
        client.start(timeout=60)
        try:
            eventually(lambda: client.exists(f"/brokers/ids/{broker_id}") is None)
        finally:
            client.stop()
            client.close()
        self.members[broker_id].start()


@contextmanager
def three_brokers(
    kind: Kind, peer: KafkaPeer, work: Path, more: Config | None = None
) -> Iterator[ThreeBrokers]:
    """Three brokers that serve; they are killed at the end."""
    with ZooKeeperServer(work / "zookeeper", peer) as zookeeper:
        members = []
        for broker_id in range(3):
            own = work / str(broker_id)
            config = {
                **SINGLE_BROKER,
                "offsets.topic.replication.factor": 3,
                "default.replication.factor": 3,
                "zookeeper.connect": zookeeper.hosts,
                "zookeeper.session.timeout.ms": 4000,
                "auto.leader.rebalance.enable": "false",
                "broker.rack": f"rack-{broker_id}",
                "log.dirs": ",".join(str(own / f"logs-{number}") for number in range(LOG_DIRS)),
                **(more or {}),
            }
            members.append(Member(broker_id, own, kind, peer, config))
        found = ThreeBrokers(members, zookeeper.hosts)
        try:
            found.restore()
            yield found
        finally:
            for member in members:
                member.kill()
