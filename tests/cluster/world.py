"""A cluster of klog and Kafka brokers in any mix, on one ZooKeeper, and waiting for its states."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final

from klog.admin import connect
from klog.admin.settings import settings_of
from tests.cluster.links import Links
from tests.cluster.members import Kind, Member
from tests.cluster.tree import Partition, Tree
from tests.peers.kafka import KafkaPeer
from tests.peers.zookeeper import ZooKeeperServer
from tests.swap.clients import Admin
from tests.swap.klog_process import Config
from tests.waiting import eventually

SESSION_MS: Final = 6000
# Generous: several JVMs may start on a busy machine meanwhile.
WAIT_S: Final = 120

CONFIG: Final[Config] = {
    "num.partitions": 1,
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": 3,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "transaction.state.log.num.partitions": 3,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    "group.initial.rebalance.delay.ms": 0,
    "auto.create.topics.enable": "false",
    "zookeeper.session.timeout.ms": SESSION_MS,
    "zookeeper.connection.timeout.ms": 60_000,
    "replica.lag.time.max.ms": 10_000,
    "log.retention.ms": -1,
    "log.cleaner.dedupe.buffer.size": 4_000_000,
    "log.index.size.max.bytes": 100_000,
    "num.network.threads": 2,
    "num.io.threads": 4,
    "background.threads": 2,
}


def kinds(default: str) -> list[Kind]:
    """The kinds of brokers by their ids: `klog,kafka,klog`.

    KLOG_TEST_CLUSTER replaces the default. So `kafka,kafka,kafka` shows what Kafka alone does in a test.
    """
    return [Kind(name) for name in os.environ.get("KLOG_TEST_CLUSTER", default).split(",")]


class Cluster:
    """The members by broker id, which are the numbers from 0, and what ZooKeeper says about them."""

    def __init__(
        self, members: Sequence[Member], zookeeper: ZooKeeperServer, tree: Tree, links: Links | None
    ) -> None:
        self.members = {each.broker_id: each for each in members}
        self.zookeeper = zookeeper
        self.tree = tree
        self._links = links

    @property
    def links(self) -> Links:
        assert self._links is not None, "this cluster has no proxies"
        return self._links

    @property
    def bootstrap(self) -> str:
        return ",".join(each.address for each in self.members.values())

    @property
    def admin(self) -> Admin:
        """A new admin client."""
        return Admin(self.bootstrap)

    def others(self, *broker_ids: int | None) -> list[int]:
        return [each for each in self.members if each not in broker_ids]

    # -- starting and stopping -------------------------------------------------------------------------------

    def start(self, *broker_ids: int, kind: Kind | None = None) -> None:
        """Starts brokers (all, if none is named) at the same time, and waits until they are registered.

        Kafka's brokers do not start before the session of their last run has expired. klog's wait for that.
        """
        wanted = broker_ids or tuple(self.members)
        waiting = {each for each in wanted if (kind or self.members[each].kind) is Kind.KAFKA}
        self.until(lambda: not self.tree.brokers() & waiting, "the old sessions are still there")
        with ThreadPoolExecutor(len(wanted)) as pool:
            for _ in pool.map(lambda each: self.members[each].start(kind), wanted):
                pass
        self.until(lambda: self.tree.brokers() >= set(wanted), "not all brokers are registered")

    def stop(self) -> None:
        """Stops all brokers cleanly, one after the other."""
        for member in self.members.values():
            member.stop()

    def kill(self) -> None:
        for member in self.members.values():
            member.kill()

    # -- waiting ---------------------------------------------------------------------------------------------

    def until(self, holds: Callable[[], object], problem: str, timeout_s: float = WAIT_S) -> None:
        """Waits until it holds. Fails with the problem and the state of the cluster if it does not."""
        eventually(holds, timeout_s, lambda: f"{problem}: {self.description()}")

    def description(self) -> str:
        running = [each for each in self.members.values() if each.runs]
        return (
            f"running {running}, registered {sorted(self.tree.brokers())}, controller"
            f" {self.tree.controller()}, without full ISR {self.tree.without_full_isr()}"
        )

    def wait_for_controller(self, *broker_ids: int) -> int:
        """Waits until one of the brokers (any, if none is named) is controller. Returns it."""
        wanted = broker_ids or tuple(self.members)
        self.until(lambda: self.tree.controller() in wanted, f"no controller of {wanted}")
        found = self.tree.controller()
        assert found is not None
        return found

    def wait_for_full_isr(self, timeout_s: float = WAIT_S) -> None:
        """Waits until all replicas of all partitions are in sync."""
        self.until(lambda: not self.tree.without_full_isr(), "not all replicas are in sync", timeout_s)

    def leader(self, partition: Partition) -> int:
        """The leader. Waits until there is one among the running brokers."""
        found = -1

        def led() -> bool:
            nonlocal found
            state = self.tree.state(partition)
            found = -1 if state is None else state.leader
            return found in self.members and self.members[found].runs

        self.until(led, f"{partition} has no leader")
        return found

    def wait_for_leader(self, partition: Partition, *broker_ids: int) -> int:
        self.until(lambda: self.leader(partition) in broker_ids, f"{partition} is not led by {broker_ids}")
        return self.leader(partition)

    def isr(self, partition: Partition) -> frozenset[int]:
        state = self.tree.state(partition)
        return frozenset() if state is None else state.isr

    def wait_for_isr(self, partition: Partition, *broker_ids: int) -> None:
        self.until(
            lambda: self.isr(partition) == set(broker_ids), f"the ISR of {partition} is not {broker_ids}"
        )

    # -- controllers and topics ------------------------------------------------------------------------------

    def wait_for_known_controller(self) -> int:
        """Waits until every broker that answers knows who is controller. Returns it."""
        found = -1

        def known() -> bool:
            nonlocal found
            found = self.wait_for_controller()
            asked = [each for each in self.members.values() if each.answers]
            return all(Admin(each.address).controller() == found for each in asked)

        self.until(known, "not all brokers know the controller")
        return found

    def wait_for_known_brokers(self) -> None:
        """Waits until every broker that answers knows all of them, so that all can get replicas."""
        answering = [each for each in self.members.values() if each.answers]
        ids = {each.broker_id for each in answering}
        for member in answering:
            self.until(lambda each=member: ids <= Admin(each.address).brokers(), f"{member} misses brokers")

    def move_controller(self, broker_id: int) -> None:
        """Makes a broker the controller: its node is deleted until the wanted broker wins the election.

        Each election is waited for. Brokers of Kafka elect nobody if the node is deleted during one.
        """
        while self.wait_for_known_controller() != broker_id:
            self.tree.delete_controller()

    def create(
        self,
        topics: Mapping[str, int],
        replicas: int | None = None,
        assignment: Sequence[Sequence[int]] | None = None,
        **configs: str | int,
    ) -> None:
        """Creates topics with their numbers of partitions, and waits until they have leaders."""
        texts = {key.replace("_", "."): str(value) for key, value in configs.items()}
        wanted = {(topic, number) for topic, count in topics.items() for number in range(count)}
        # librdkafka waits long for a controller if the first broker that it asks knows none yet.
        self.wait_for_known_controller()
        self.wait_for_known_brokers()
        self.admin.create(
            {topic: (count, texts) for topic, count in topics.items()},
            replicas or len(self.members),
            assignment,
        )
        self.wait_for_leaders(wanted)

    def wait_for_leaders(self, partitions: Iterable[Partition]) -> None:
        """Waits until every broker that answers knows leaders of the partitions."""
        wanted = set(partitions)
        for member in [each for each in self.members.values() if each.answers]:
            self.until(lambda each=member: wanted <= Admin(each.address).led(), f"{member} misses leaders")

    def wait_until_only_these_are_known(self, leaders: Mapping[Partition, int], *broker_ids: int) -> None:
        """Waits until each of these brokers itself names the leaders, and no other broker than these.

        A client that starts with their addresses cannot find another broker then. librdkafka would not do for
        the question: after its first metadata it may ask any broker that it has learned of.
        """
        for each in broker_ids:
            self.until(
                lambda each=each: self._names_only(each, leaders, broker_ids),
                f"{each} names other leaders or brokers",
            )

    def _names_only(
        self, broker_id: int, leaders: Mapping[Partition, int], broker_ids: Sequence[int]
    ) -> bool:
        settings = settings_of({}, bootstrap=self.members[broker_id].address, timeout_ms=WAIT_S * 1000)
        with connect.cluster(settings) as client:
            answer = client.metadata({topic for topic, _ in leaders})
        named = {
            (topic.name, each.partition_index): each.leader_id
            for topic in answer.topics
            for each in topic.partitions
        }
        brokers = {each.node_id for each in answer.brokers}
        return leaders.items() <= named.items() and brokers <= set(broker_ids)


@contextmanager
def cluster(
    work: Path,
    peer: KafkaPeer,
    kinds_by_id: Sequence[Kind],
    config: Config | None = None,
    *,
    with_links: bool = False,
) -> Iterator[Cluster]:
    """A cluster with a started ZooKeeper, whose brokers are not started yet. All is killed at the end.

    With `with_links`, proxies stand between brokers, and between each broker and ZooKeeper.
    """
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeperServer(work / "zookeeper", peer))
        tree = stack.enter_context(Tree(zookeeper.hosts))
        links = stack.enter_context(closing(Links())) if with_links else None
        members = [
            _member(broker_id, work, kind, peer, {**CONFIG, **(config or {})}, zookeeper, links)
            for broker_id, kind in enumerate(kinds_by_id)
        ]
        found = Cluster(members, zookeeper, tree, links)
        stack.callback(found.kill)
        yield found


def _member(
    broker_id: int,
    work: Path,
    kind: Kind,
    peer: KafkaPeer,
    config: Config,
    zookeeper: ZooKeeperServer,
    links: Links | None,
) -> Member:
    port = zookeeper.port if links is None else links.to_zookeeper(broker_id, zookeeper.port)
    member = Member(
        broker_id,
        work / f"broker-{broker_id}",
        kind,
        peer,
        {"zookeeper.connect": f"127.0.0.1:{port}", **config},
    )
    if links is not None:
        inside = links.to_broker(broker_id, member.inside_port)
        member.config["advertised.listeners"] = f"INSIDE://127.0.0.1:{inside},CLIENTS://{member.address}"
    return member
