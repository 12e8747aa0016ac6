"""klog starts on znodes that stopped brokers left in unusual states, and does with them what Kafka 3.9 does.

Both start on copies of the same znodes and log directories.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from kazoo.client import KazooClient

from tests.peers.broker import SINGLE_BROKER, Config, ZooKeeperBroker
from tests.peers.kafka import KafkaPeer
from tests.peers.zookeeper import ZooKeeperServer
from tests.swap.clients import Admin, Writer, Written, read
from tests.swap.klog_process import KlogBroker
from tests.swap.world import CONNECTION_MS
from tests.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

BROKER, GONE = 7, 9
TOPICS: Final = (
    "back",
    "elsewhere",
    "grown",
    "leaderless",
    "leaving",
    "marked",
    "marked-elsewhere",
    "moving",
    "no-id",
    "other-id",
    "stolen",
    "unclean",
    "usual",
)
LED: Final = {(topic, 0) for topic in TOPICS if topic not in ("elsewhere", "marked", "marked-elsewhere")} | {
    ("grown", 1),
    ("made", 0),
}
# Its directory belongs to another topic. Kafka does not serve it. klog keeps the directory as a stray and
# serves the topic with a new one.
OTHER_ID: Final = ("other-id", 0)
# Sessions, times and epochs differ from start to start, and a new topic id is random.
_OWN: Final = re.compile(r"/(brokers/ids/.*|brokers/seqid|controller|controller_epoch|cluster/id|consumers)$")

Tree = dict[str, bytes]


class Cluster:
    """The znodes below one node of ZooKeeper, and one log directory."""

    def __init__(self, name: str, work: Path, zookeeper: ZooKeeperServer) -> None:
        self.root = f"/{name}"
        self.logs = work / name / "logs"
        self.work = work / name
        self.config: Config = {
            **SINGLE_BROKER,
            "broker.id": BROKER,
            "zookeeper.connect": f"{zookeeper.hosts}{self.root}",
            "zookeeper.session.timeout.ms": 6000,
            "zookeeper.connection.timeout.ms": CONNECTION_MS,
            "log.dirs": str(self.logs),
        }
        self._zookeeper = zookeeper
        self._client = KazooClient(zookeeper.hosts)
        self._client.start(60)

    def close(self) -> None:
        self._client.stop()
        self._client.close()

    def kafka(self) -> ZooKeeperBroker:
        self._wait_until_nobody_is_registered()
        return ZooKeeperBroker(self.work / "kafka", self.config, self._zookeeper.peer)

    def klog(self) -> KlogBroker:
        self._wait_until_nobody_is_registered()
        return KlogBroker(self.work / "klog", self.config).start()

    def _wait_until_nobody_is_registered(self) -> None:
        eventually(lambda: self._client.exists(f"{self.root}/brokers/ids/{BROKER}") is None)

    # -- the tree --------------------------------------------------------------------------------------------

    def tree(self) -> Tree:
        return dict(self._below(""))

    def _below(self, path: str) -> Iterator[tuple[str, bytes]]:
        for name in sorted(self._client.get_children(self.root + path)):
            child = f"{path}/{name}"
            data, stat = self._client.get(self.root + child)
            if not stat.ephemeralOwner:
                yield child, data or b""
                yield from self._below(child)

    def json(self, path: str) -> Any:
        return json.loads(self._client.get(self.root + path)[0])

    def put(self, path: str, value: object) -> None:
        data = value if isinstance(value, bytes) else json.dumps(value, separators=(",", ":")).encode()
        self._client.ensure_path(self.root + path)
        self._client.set(self.root + path, data)

    def remove(self, path: str) -> None:
        self._client.delete(self.root + path, recursive=True)

    def has(self, path: str) -> bool:
        return self._client.exists(self.root + path) is not None

    def assign(self, topic: str, **fields: object) -> None:
        self.put(f"/brokers/topics/{topic}", self.json(f"/brokers/topics/{topic}") | fields)

    def lead(self, topic: str, leader: int, *isr: int) -> None:
        path = f"/brokers/topics/{topic}/partitions/0/state"
        self.put(path, self.json(path) | {"leader": leader, "isr": list(isr)})

    def copy(self, to: Cluster) -> None:
        shutil.copytree(self.logs, to.logs)
        self._client.ensure_path(to.root)
        for path, data in self.tree().items():
            self._client.create(to.root + path, data)


def make_odd(cluster: Cluster) -> None:
    """Puts each topic into another unusual state, and adds other unusual znodes."""
    elsewhere = {"0": [GONE, BROKER]}
    cluster.lead("leaderless", -1, BROKER)
    for topic in ("elsewhere", "unclean"):
        cluster.assign(topic, partitions=elsewhere)
        cluster.lead(topic, GONE, GONE)
    cluster.put(
        "/config/topics/unclean", {"version": 1, "config": {"unclean.leader.election.enable": "true"}}
    )
    cluster.assign("back", partitions=elsewhere)
    cluster.lead("back", GONE, GONE, BROKER)
    without_id = cluster.json("/brokers/topics/no-id")
    del without_id["topic_id"]
    cluster.put("/brokers/topics/no-id", without_id | {"version": 1})
    (cluster.logs / "no-id-0" / "partition.metadata").unlink()
    cluster.assign("other-id", topic_id="AnotherTopicsIdxxxxxxw")
    # Topics that were created or extended but have no leader yet, and topics that are partly deleted.
    cluster.put(
        "/brokers/topics/made",
        {
            "version": 3,
            "topic_id": "MadeTopicsIdxxxxxxxxxw",
            "partitions": {"0": [BROKER]},
            "adding_replicas": {},
            "removing_replicas": {},
        },
    )
    cluster.assign("grown", partitions={"0": [BROKER], "1": [BROKER]})
    cluster.put("/admin/delete_topics/marked", b"")
    cluster.remove("/brokers/topics/marked/partitions/0")
    cluster.put("/admin/delete_topics/ghost", b"")
    cluster.put("/config/topics/ghost", {"version": 1, "config": {"retention.ms": "1"}})
    cluster.put("/config/topics/orphan", {"version": 1, "config": {"retention.ms": "1"}})
    cluster.assign("marked-elsewhere", partitions=elsewhere)
    cluster.put("/admin/delete_topics/marked-elsewhere", b"")
    # Reassignments to a stopped broker, from a stopped broker, and some that were only requested.
    cluster.assign("moving", partitions={"0": [GONE, BROKER]}, adding_replicas={"0": [GONE]})
    cluster.assign("leaving", partitions={"0": [BROKER, GONE]}, removing_replicas={"0": [GONE]})
    cluster.lead("leaving", GONE, BROKER, GONE)
    orders = [
        {"topic": "stolen", "partition": 0, "replicas": [GONE]},
        {"topic": "nowhere", "partition": 0, "replicas": [BROKER]},
    ]
    cluster.put("/admin/reassign_partitions", {"version": 1, "partitions": orders})
    wanted = [{"topic": topic, "partition": 0} for topic in ("usual", "elsewhere", "nowhere")]
    cluster.put("/admin/preferred_replica_election", {"version": 1, "partitions": wanted})
    # Notifications for an earlier controller, and configs that klog does not use.
    cluster.put("/isr_change_notification/isr_change_0000000003", {"version": 1, "partitions": wanted})
    cluster.put(
        "/log_dir_event_notification/log_dir_event_0000000004", {"version": 1, "broker": BROKER, "event": 1}
    )
    for path in ("users/alice", "users/<default>/clients/c%201", "clients/<default>", "ips/10.0.0.1"):
        cluster.put(f"/config/{path}", {"version": 1, "config": {"producer_byte_rate": "1000"}})
    cluster.put(
        "/config/users/bob",
        {
            "version": 1,
            "config": {"SCRAM-SHA-256": "salt=eA==,stored_key=eA==,server_key=eA==,iterations=4096"},
        },
    )
    cluster.put(
        f"/config/brokers/{BROKER}", {"version": 1, "config": {"num.io.threads": "3", "no.such.config": "x"}}
    )
    cluster.put("/config/changes/config_change_0000000000", {"version": 2, "entity_path": "users/alice"})
    cluster.put("/config/changes/config_change_0000000001", {"version": 2, "entity_path": "topics/orphan"})
    cluster.put("/feature", {"features": {}, "version": 1, "status": 0})


def settled(cluster: Cluster) -> Callable[[], bool]:
    """A function that returns whether the controller has done all that it can do."""

    def check() -> bool:
        orders = (
            "/admin/preferred_replica_election",
            "/admin/delete_topics/marked",
            "/admin/delete_topics/ghost",
        )
        return not any(map(cluster.has, orders)) and cluster.has("/brokers/topics/grown/partitions/1/state")

    return check


def alike(tree: Mapping[str, bytes]) -> dict[str, object]:
    """The znodes in a form in which those of two brokers can be compared."""
    nodes: dict[str, object] = {}
    for path, data in tree.items():
        # Kafka creates the topics of its coordinators as soon as a consumer asks for one.
        if not _OWN.match(path) and "/__" not in path:
            nodes[path] = json.loads(data) if data.startswith(b"{") else data
    identified = nodes["/brokers/topics/no-id"]
    assert isinstance(identified, dict)
    assert len(identified.pop("topic_id")) == 22
    return nodes


def left(logs: Path) -> list[str]:
    """The file names in a directory, without random parts and without the lock file, which Kafka deletes."""
    names = [path.name for path in logs.iterdir() if not path.name.startswith(("__", ".lock"))]
    return sorted(re.sub(r"\.[0-9a-f]{32}-", ".-", name) for name in names)


def led(bootstrap: str) -> set[tuple[str, int]]:
    """Waits until all partitions that can have a leader have one. Returns those that have one."""
    admin = Admin(bootstrap)
    eventually(lambda: admin.led() >= LED)
    return {partition for partition in admin.led() if not partition[0].startswith("__")}


def test_klog_completes_znodes_in_unusual_states_as_kafka_does(tmp_path: Path, kafka3: KafkaPeer) -> None:
    written: Written = {}
    with (
        ZooKeeperServer(tmp_path / "zookeeper", kafka3) as zookeeper,
        closing(Cluster("kafka", tmp_path, zookeeper)) as by_kafka,
        closing(Cluster("klog", tmp_path, zookeeper)) as by_klog,
    ):
        with by_kafka.klog() as klog:
            Admin(klog.bootstrap).create({topic: (1, {}) for topic in TOPICS})
            writer = Writer(klog.bootstrap, written)
            for topic in TOPICS:
                writer.write(topic, topic.encode())
            writer.finish()
            klog.stop()
        make_odd(by_kafka)
        by_kafka.copy(by_klog)

        with by_kafka.kafka() as kafka:
            eventually(settled(by_kafka))
            assert led(kafka.bootstrap) == LED
            served = read(kafka.bootstrap, LED - {OTHER_ID})
        with by_klog.klog() as klog:
            eventually(settled(by_klog))
            assert led(klog.bootstrap) == LED
            assert read(klog.bootstrap, served) == served
            assert read(klog.bootstrap, [OTHER_ID]) == {OTHER_ID: {}}
            klog.wait_for("no owner for other-id-0 ")
            klog.stop()
        assert {partition: records for partition, records in served.items() if records} == {
            partition: written[partition] for partition in written.keys() & served.keys()
        }
        assert alike(by_klog.tree()) == alike(by_kafka.tree())
        assert left(by_klog.logs) == sorted([*left(by_kafka.logs), "other-id-0.-stray"])
        (stray,) = by_klog.logs.glob("other-id-0.*-stray")
        kept = by_kafka.logs / "other-id-0" / f"{0:020d}.log"
        assert (stray / kept.name).read_bytes() == kept.read_bytes()
