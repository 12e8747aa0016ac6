"""How fast a controller works with 1,000 partitions: creation, controlled shutdown, and its own failure.

Three brokers of one kind share a ZooKeeper, klog's and Kafka's in turn. Every partition has two replicas.

- creation: from the CreateTopics request to its answer, which comes when all partitions have leaders.
- controlled shutdown: from the request of a broker that leads all partitions to the answer, by which others
  lead them.
- failover: the controller, which leads all partitions, is killed. Measured is from the end of its session to
  the moment when another broker's metadata have other leaders for all partitions. The time until the session
  ends is the session's timeout, whichever broker it is.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path

from kazoo.client import KazooClient

from benchmarks.brokers import KLOG_PROGRAM, RunningBroker, start_kafka, start_klog
from benchmarks.measure import BenchmarkError, judge
from benchmarks.rows import Rows
from klog.protocol.apis import ApiKey
from klog.protocol.channel import Channel
from klog.protocol.entity_fields import Entity
from klog.protocol.interbroker.controlled_shutdown import ControlledShutdownRequest
from klog.protocol.messages import build, request_class
from tests.peers.zookeeper import ZooKeeperServer

_BROKERS = 3
_SESSION_MS = 6000
_WITHIN_S = 300.0
_POLL_S = 0.02
KINDS = ("klog", "Kafka")
_CONFIG: dict[str, str | int] = {
    "zookeeper.session.timeout.ms": _SESSION_MS,
    "controlled.shutdown.enable": "false",
    "auto.leader.rebalance.enable": "false",
}


def metadata_request(topic: str | None) -> Entity:
    """Asks for one topic, or (None) for the brokers only."""
    api, version = ApiKey.METADATA, 8
    topics = () if topic is None else [{"name": topic}]
    return build(
        request_class(api, version),
        topics=topics,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


class Cluster:
    """Brokers 0 to 2 of one kind."""

    def __init__(self, brokers: list[RunningBroker], tree: KazooClient) -> None:
        self.brokers = brokers
        self.tree = tree

    def controller(self) -> int:
        """The id of the controller that a broker knows which is not the controller itself."""
        return int(self._metadata(self.brokers[0], None).controller_id)

    def ask(self, broker_id: int, request: Entity) -> Entity:
        with Channel("127.0.0.1", self.brokers[broker_id].port, timeout_ms=120_000) as channel:
            return channel.send(request)

    def create(self, topic: str, replicas: list[tuple[int, ...]]) -> float:
        """Creates a topic. Returns the seconds until the answer."""
        api, version = ApiKey.CREATE_TOPICS, 7
        module = request_class(api, version).__module__
        parts = __import__(module, fromlist=["CreatableTopic", "CreatableReplicaAssignment"])
        wanted = parts.CreatableTopic(
            name=topic,
            num_partitions=-1,
            replication_factor=-1,
            assignments=tuple(
                parts.CreatableReplicaAssignment(partition_index=number, broker_ids=each)
                for number, each in enumerate(replicas)
            ),
            configs=(),
        )
        request = build(
            request_class(api, version),
            topics=(wanted,),
            timeout=timedelta(seconds=_WITHIN_S),
            validate_only=False,
        )
        controller = self.controller()
        began_s = time.perf_counter()
        (result,) = self.ask(controller, request).topics
        if result.error_code:
            raise BenchmarkError(f"{topic} was not created: {result.error_code!r} {result.error_message}")
        took_s = time.perf_counter() - began_s
        for broker in self.brokers:
            self.until(partial(self._all_lead, broker, topic))
        return took_s

    def _all_lead(self, broker: RunningBroker, topic: str) -> bool:
        leaders = self.leaders(broker, topic)
        return bool(leaders) and -1 not in leaders

    def shut_down(self, broker_id: int) -> float:
        """Has a broker's leaderships moved away. Returns the seconds until the answer."""
        epoch = self.tree.exists(f"/brokers/ids/{broker_id}").czxid
        request = ControlledShutdownRequest(broker_id=broker_id, broker_epoch=epoch)
        controller = self.controller()
        began_s = time.perf_counter()
        answer = self.ask(controller, request)
        if answer.error_code or answer.remaining_partitions:
            raise BenchmarkError(f"the controlled shutdown was answered {answer}")
        return time.perf_counter() - began_s

    def fail_over(self, topic: str, gone: int) -> float:
        """Kills the controller. Returns the seconds from the end of its session until others lead."""
        survivor = self.brokers[(gone + 1) % _BROKERS]
        # A partition whose follower has left the ISR on a busy machine would have no leader.
        self.until(lambda: all(len(each) > 1 for each in self.in_sync(survivor, topic)))
        os.kill(self.brokers[gone].pid, signal.SIGKILL)
        self.until(lambda: self._session_ended(gone))
        began_s = time.perf_counter()
        self.until(lambda: not self.leaders(survivor, topic) & {gone, -1})
        return time.perf_counter() - began_s

    def _session_ended(self, gone: int) -> bool:
        return self.tree.exists(f"/brokers/ids/{gone}") is None

    def leaders(self, broker: RunningBroker, topic: str) -> set[int]:
        """Who leads the partitions of a topic as far as a broker knows."""
        (found,) = self._metadata(broker, topic).topics
        return {int(each.leader_id) for each in found.partitions}

    def in_sync(self, broker: RunningBroker, topic: str) -> list[set[int]]:
        """The in-sync replicas of each partition as far as a broker knows."""
        (found,) = self._metadata(broker, topic).topics
        return [{int(each) for each in partition.isr_nodes} for partition in found.partitions]

    def _metadata(self, broker: RunningBroker, topic: str | None) -> Entity:
        with Channel("127.0.0.1", broker.port) as channel:
            return channel.send(metadata_request(topic))

    def is_whole(self, broker: RunningBroker) -> bool:
        """Whether a broker knows all brokers, and a controller among them."""
        metadata = self._metadata(broker, None)
        return len(metadata.brokers) == _BROKERS and metadata.controller_id in range(_BROKERS)

    def until(self, holds: Callable[[], bool]) -> None:
        """Waits. Raises BenchmarkError if it takes too long."""
        deadline_s = time.monotonic() + _WITHIN_S
        while not holds():
            if time.monotonic() > deadline_s:
                raise BenchmarkError("the cluster did not get there")
            time.sleep(_POLL_S)


@contextmanager
def cluster(
    kind: str,
    work: Path,
    extra: Mapping[str, str | int] | None = None,
    *,
    checkout: bool = False,
    program: Sequence[str] = KLOG_PROGRAM,
) -> Iterator[Cluster]:
    """Three brokers that know each other and their controller; `extra` are configs of each.

    `program` are the options of Python that run klog.
    """
    shutil.rmtree(work, ignore_errors=True)
    with ExitStack() as closing:
        closing.callback(shutil.rmtree, work, ignore_errors=True)
        zookeeper = closing.enter_context(ZooKeeperServer(work / "zookeeper"))
        tree = KazooClient(zookeeper.hosts)
        tree.start()
        closing.callback(tree.close)
        closing.callback(tree.stop)
        brokers = []
        for broker_id in range(_BROKERS):
            config = {**_CONFIG, **(extra or {}), "broker.id": broker_id}
            directory = work / f"{kind}-{broker_id}"
            if kind == "klog":
                config["zookeeper.connect"] = zookeeper.hosts
                broker = start_klog(directory, config, checkout=checkout, program=program)
            else:
                broker = start_kafka(directory, zookeeper.hosts, config)
            closing.callback(broker.stop)
            brokers.append(broker)
        found = Cluster(brokers, tree)
        for broker in brokers:
            found.until(partial(found.is_whole, broker))
        yield found


def one_round(kind: str, work: Path, partitions: int, *, checkout: bool = False) -> dict[str, float]:
    """The seconds that each of the three takes, on a new cluster."""
    with cluster(kind, work, checkout=checkout) as found:
        controller = found.controller()
        other, third = (each for each in range(_BROKERS) if each != controller)
        took = {}
        found.create("warm", [(controller, other)])
        took["creation"] = found.create("created", [(other, third)] * partitions)
        took["controlled shutdown"] = found.shut_down(other)
        found.create("failing", [(controller, third)] * partitions)
        took["failover"] = found.fail_over("failing", controller)
        return took


def failover(
    scratch: Path, rounds: int, rows: Rows, partitions: int = 1000, *, checkout: bool = False
) -> str:
    """Both kinds in turn; `checkout` runs klog's modules, not compiled."""
    taken: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    for _ in range(rounds):
        for kind in KINDS:
            taken[kind].append(one_round(kind, scratch / "clusters", partitions, checkout=checkout))
    lines = [f"{partitions} partitions (medians of {rounds})"]
    for name in taken["klog"][0]:
        ours, theirs = (statistics.median(each[name] for each in taken[kind]) for kind in KINDS)
        rows.add(f"{name} of {partitions} partitions, s", ours, theirs)
        lines.append(f"  {name:20}  klog {ours:6.2f} s  Kafka {theirs:6.2f} s  {judge(ours / theirs, 1.0)}")
    return "\n".join(lines)
