"""Real clusters of several versions that are filled, and stopped in the middle of what they do.

Each has a broker 0 with all records, and a broker 1 that was killed before a partition was to move to it. A
proxy stands before the listener between brokers: when it is cut, a transaction that is committed stays
prepared, because no marker arrives.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from klog.testing.proxies import Proxies
from tests.cluster_metadata.play import MOVED, SHARE, TIMEOUTS_ARE_NOT_SEEN, Before, Play
from tests.commands.running import Run
from tests.peers.broker import (
    Config,
    KRaftBroker,
    ZooKeeperBroker,
    free_port,
    new_cluster_id,
)
from tests.peers.kafka import KAFKA_3, KAFKA_4, KafkaPeer
from tests.peers.old_servers import KAFKA_0_11, KAFKA_2_8, OldServer
from tests.peers.zookeeper import ZooKeeperServer

SCRAM_LOGIN: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
SECURITY: Final[Config] = {
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": SCRAM_LOGIN,
    "super.users": "User:ANONYMOUS",
}
PROTOCOLS: Final = "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT"
ALICE: Final = ("--entity-type", "users", "--entity-name", "alice")
PASSWORD: Final = "SCRAM-SHA-256=[password=old-secret]"
# Nodes of the proxy before the listener between brokers.
_SENDER, _BROKER = -1, 0


@dataclass(frozen=True)
class Ports:
    """The ports that clients use, before and after."""

    plain: int = field(default_factory=free_port)
    sasl: int = field(default_factory=free_port)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.plain}"

    @property
    def sasl_address(self) -> str:
        return f"127.0.0.1:{self.sasl}"

    @property
    def listeners(self) -> str:
        return f"PLAINTEXT://{self.address},SASL_PLAINTEXT://{self.sasl_address}"


@dataclass(frozen=True)
class Stopped:
    """A cluster that was stopped: where its files are, and what clients had seen of it."""

    work: Path
    ports: Ports
    before: Before

    def logs(self, node_id: int) -> Path:
        return self.work / str(node_id) / "logs"

    @property
    def zookeeper(self) -> Path:
        return self.work / "zookeeper" / "data"


@dataclass(frozen=True)
class Source:
    """A version of Kafka, with the features that a KRaft cluster of it is made with."""

    peer: KafkaPeer
    authorizer: str
    is_kraft: bool = False
    features: tuple[str, ...] = ()
    config: Mapping[str, str | int] = field(default_factory=dict)
    has_consumer_groups: bool = False
    has_share_groups: bool = False

    def stopped(self, work: Path, klog: Run) -> Stopped:
        """Starts the cluster, lets clients fill it, and stops it while much is under way."""
        ports = Ports()
        play = Play(ports.address, ports.sasl_address, self.has_consumer_groups, self.peer)
        internal = free_port()
        with closing(Proxies(dict)) as proxies, ThreadPoolExecutor(1) as starting:
            gate = proxies.open(_BROKER, internal, _SENDER)
            start = self._kraft if self.is_kraft else self._zookeeper
            with start(work, self._config(ports, internal, gate), klog, play) as (tools, second_broker):
                play.await_brokers(1)
                play.make_topics()
                play.make_records()
                if self.has_share_groups:
                    NewTools(klog, ports.address).let_shares_begin_at_the_start()
                    play.begin_share_group()
                # Kafka's own topics are on broker 0 now.
                second = starting.submit(second_broker)
                tools.administrate()
                before = play.seen()
                with second.result() as broker:
                    play.await_brokers(2)
                    broker.kill()
                    tools.reassign(_plan(work))
                play.leave_transactions_open()
                play.prepare_transaction(lambda: proxies.cut(_SENDER, _BROKER))
        return Stopped(work, ports, before)

    def _config(self, ports: Ports, internal: int, gate: int) -> dict[str, str | int]:
        return {
            "listeners": f"{ports.listeners},INTERNAL://127.0.0.1:{internal}",
            "advertised.listeners": f"{ports.listeners},INTERNAL://127.0.0.1:{gate}",
            "listener.security.protocol.map": PROTOCOLS,
            "inter.broker.listener.name": "INTERNAL",
            "controlled.shutdown.enable": "false",
            "authorizer.class.name": self.authorizer,
            **SECURITY,
            **TIMEOUTS_ARE_NOT_SEEN,
            **self.config,
        }

    @contextmanager
    def _zookeeper(self, work: Path, config: Config, klog: Run, play: Play) -> Iterator[_Started]:
        with ZooKeeperServer(work / "zookeeper", self.peer) as zookeeper:
            shared: Config = {**config, "zookeeper.connect": zookeeper.hosts}
            flags = self._login_flags(work)

            def broker(node_id: int, more: Config) -> ZooKeeperBroker:
                own = {**shared, "broker.id": node_id, **more}
                return ZooKeeperBroker(work / str(node_id), own, self.peer, flags=flags)

            with broker(0, {}):
                is_old = self.peer.major == 0
                tools = OldTools(self.peer, zookeeper.hosts) if is_old else NewTools(klog, play.address)
                yield tools, partial(broker, 1, _of_second())

    def _login_flags(self, work: Path) -> tuple[str, ...]:
        """Kafka 0.11 reads the login of a listener from a file only."""
        if self.peer.major > 0:
            return ()
        file = work / "jaas.conf"
        file.write_text(f"KafkaServer {{\n{SCRAM_LOGIN}\n}};\n")
        return (f"-Djava.security.auth.login.config={file}",)

    @contextmanager
    def _kraft(self, work: Path, config: Config, klog: Run, play: Play) -> Iterator[_Started]:
        cluster_id, controller = new_cluster_id(), free_port()
        shared: Config = {**config, "controller.quorum.voters": f"0@127.0.0.1:{controller}"}

        def node(node_id: int, more: Config) -> KRaftBroker:
            own = {**shared, "node.id": node_id, **more}
            return KRaftBroker(work / str(node_id), own, self.peer, self.features, cluster_id)

        listeners = f"{config['listeners']},CONTROLLER://127.0.0.1:{controller}"
        with node(0, {"listeners": listeners}):
            yield NewTools(klog, play.address), partial(node, 1, {"process.roles": "broker", **_of_second()})


def _of_second() -> Config:
    names = ("PLAINTEXT", "SASL_PLAINTEXT", "INTERNAL")
    listeners = ",".join(f"{name}://127.0.0.1:{free_port()}" for name in names)
    return {"listeners": listeners, "advertised.listeners": listeners}


def _plan(work: Path) -> Path:
    """Kafka's reassignment JSON: the partition moves to broker 1."""
    path = work / "reassignment.json"
    moved = {"topic": MOVED, "partition": 0, "replicas": [1]}
    path.write_text(json.dumps({"version": 1, "partitions": [moved]}))
    return path


class Tools(Protocol):
    """What administrators do."""

    def administrate(self) -> None:
        """A user with a password, what she may do and how much, and a config of brokers."""

    def reassign(self, plan: Path) -> None:
        """Begin to move partitions."""


_Started: TypeAlias = tuple[Tools, Callable[[], ZooKeeperBroker | KRaftBroker]]
"""The tools of a cluster whose broker 0 runs, and what starts broker 1."""


@dataclass(frozen=True)
class NewTools:
    """klog's tools, which speak to any Kafka that has the requests."""

    klog: Run
    address: str

    def administrate(self) -> None:
        self._run("users", "--alter", *ALICE, "--add-config", PASSWORD)
        self._run("quotas", "alter", "alice", "--set", "producer_byte_rate=1048576")
        self._run("acls", "add", "t-delete", "--allow-principal", "User:alice", "--operation", "Write")
        self._run("acls", "add", "t-compact", "--allow-principal", "User:alice", "--operation", "Describe")
        self._run("configs", "alter", "--broker-defaults", "--set", "log.cleaner.threads=2")

    def let_shares_begin_at_the_start(self) -> None:
        self._run("configs", "alter", "--group", SHARE, "--set", "share.auto.offset.reset=earliest")

    def reassign(self, plan: Path) -> None:
        self._run("reassign", "--execute", "--reassignment-json-file", plan)

    def _run(self, *words: object) -> None:
        done = self.klog(*words, "--bootstrap-server", self.address)
        assert done.code == 0, done.out + done.err


@dataclass(frozen=True)
class OldTools:
    """The tools of Kafka 0.11, which write into ZooKeeper. It has no dynamic configs but throttles."""

    peer: KafkaPeer
    zookeeper: str

    def administrate(self) -> None:
        alter = ("kafka.admin.ConfigCommand", "--zookeeper", self.zookeeper, "--alter")
        throttle = ("--entity-type", "brokers", "--entity-name", "0", "--add-config")
        self._run(*alter, *ALICE, "--add-config", f"{PASSWORD},producer_byte_rate=1048576")
        self._run(*alter, *throttle, "leader.replication.throttled.rate=1000000000")
        acls = ("kafka.admin.AclCommand", "--authorizer-properties", f"zookeeper.connect={self.zookeeper}")
        for topic, operation in (("t-delete", "Write"), ("t-compact", "Describe")):
            acl = ("--allow-principal", "User:alice", "--operation", operation, "--topic", topic)
            self._run(*acls, "--add", *acl)

    def reassign(self, plan: Path) -> None:
        command = ("kafka.admin.ReassignPartitionsCommand", "--zookeeper", self.zookeeper)
        self._run(*command, "--reassignment-json-file", str(plan), "--execute")

    def _run(self, *words: str) -> None:
        done = self.peer.java(*words)
        assert done.returncode == 0, done.stdout + done.stderr


_CONSUMER_GROUPS_IN_PREVIEW: Final[Config] = {"group.coordinator.rebalance.protocols": "classic,consumer"}
_SHARED_STATE: Final[Config] = {
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 1,
}
_ACL_AUTHORIZER: Final = "kafka.security.authorizer.AclAuthorizer"
KRAFT_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SOURCES: Final = {
    "0.11-zookeeper": Source(OldServer(KAFKA_0_11), "kafka.security.auth.SimpleAclAuthorizer"),
    "2.8-zookeeper": Source(OldServer(KAFKA_2_8), _ACL_AUTHORIZER),
    "3.9-zookeeper": Source(KafkaPeer(KAFKA_3), _ACL_AUTHORIZER),
    "3.9-kraft": Source(
        KafkaPeer(KAFKA_3),
        KRAFT_AUTHORIZER,
        is_kraft=True,
        config=_CONSUMER_GROUPS_IN_PREVIEW,
        has_consumer_groups=True,
    ),
    "4.1-kraft": Source(
        KafkaPeer(KAFKA_4),
        KRAFT_AUTHORIZER,
        is_kraft=True,
        features=("share.version=1",),
        config=_SHARED_STATE,
        has_consumer_groups=True,
        has_share_groups=True,
    ),
}
"""The clusters that go to Kafka 4, and back."""
