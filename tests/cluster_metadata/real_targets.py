"""Where the metadata of a stopped cluster goes, and the programs that start there."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import klog.testing
from tests.cluster_metadata.play import TIMEOUTS_ARE_SEEN
from tests.cluster_metadata.real_sources import KRAFT_AUTHORIZER, PROTOCOLS, SECURITY, Stopped
from tests.commands.running import Run
from tests.peers.broker import Config, KRaftBroker, ZooKeeperBroker, free_port, properties_text
from tests.peers.kafka import KAFKA_3, KAFKA_4, KafkaPeer
from tests.peers.zookeeper import ZooKeeperServer

_OF_KRAFT: Final = ("meta.properties", "bootstrap.checkpoint", "__cluster_metadata-0")
_AUTHORIZER: Final = "kafka.security.authorizer.AclAuthorizer"


def metadata_of(stopped: Stopped) -> Path:
    """Where the metadata is. That of a KRaft node is moved away, because its directories get other ones."""
    if stopped.zookeeper.exists():
        return stopped.zookeeper
    moved = stopped.work / "metadata"
    for logs, to in ((stopped.logs(0), moved), (stopped.logs(1), stopped.work / "metadata-of-1")):
        to.mkdir()
        for name in _OF_KRAFT:
            if (logs / name).exists():
                shutil.move(logs / name, to / name)
    return moved


def _convert(klog: Run, stopped: Stopped, configs: dict[int, Config]) -> None:
    words: list[object] = []
    for node_id, config in configs.items():
        path = stopped.work / f"{node_id}.properties"
        path.write_text(properties_text(config))
        words += ["--config", path]
    done = klog("metadata", "convert", metadata_of(stopped), "--to", "kraft", *words, "--yes")
    assert done.code == 0, done.err
    assert "problem:" not in done.err, done.err


@contextmanager
def kafka_4_alone(klog: Run, stopped: Stopped) -> Iterator[str]:
    """One combined node of Kafka 4.1. Yields the directories with its metadata."""
    controller = free_port()
    config: Config = {
        **SECURITY,
        **TIMEOUTS_ARE_SEEN,
        "process.roles": "broker,controller",
        "node.id": 0,
        "listeners": f"{stopped.ports.listeners},CONTROLLER://127.0.0.1:{controller}",
        "listener.security.protocol.map": PROTOCOLS,
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"0@127.0.0.1:{controller}",
        "authorizer.class.name": KRAFT_AUTHORIZER,
        "log.dirs": f"{stopped.logs(0)}",
    }
    _convert(klog, stopped, {0: config})
    with KRaftBroker(stopped.work / "0", config, KafkaPeer(KAFKA_4)):
        yield str(stopped.logs(0))


@contextmanager
def three_and_three_of_kafka_4(klog: Run, stopped: Stopped) -> Iterator[str]:
    """Controllers 3, 4 and 5, and brokers 0, 1 and 2, of Kafka 4.1."""
    ports = {node_id: free_port() for node_id in range(1, 6)}
    voters = ",".join(f"{each}@127.0.0.1:{ports[each]}" for each in (3, 4, 5))
    shared: Config = {
        **SECURITY,
        **TIMEOUTS_ARE_SEEN,
        "listener.security.protocol.map": PROTOCOLS,
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": voters,
        "authorizer.class.name": KRAFT_AUTHORIZER,
    }
    configs: dict[int, Config] = {}
    for node_id in range(6):
        listeners = (
            stopped.ports.listeners
            if node_id == 0
            else f"{'PLAINTEXT' if node_id < 3 else 'CONTROLLER'}://127.0.0.1:{ports[node_id]}"
        )
        configs[node_id] = {
            **shared,
            "process.roles": "broker" if node_id < 3 else "controller",
            "node.id": node_id,
            "listeners": listeners,
            "log.dirs": f"{stopped.logs(node_id)}",
        }
    _convert(klog, stopped, configs)
    peer = KafkaPeer(KAFKA_4)
    with ExitStack() as running:
        # One controller is not ready before another is there. Brokers stop first: they ask the controllers.
        with ThreadPoolExecutor(6) as starting:
            starts = [
                starting.submit(KRaftBroker, stopped.work / str(each), configs[each], peer)
                for each in (3, 4, 5, 0, 1, 2)
            ]
            for start in starts:
                running.enter_context(start.result())
        yield ",".join(f"{stopped.logs(each)}" for each in (3, 4, 5))


def _adopt(klog: Run, stopped: Stopped, *options: str) -> None:
    words = [word for option in ("broker.id=0", *options) for word in ("-o", option)]
    done = klog("adopt", stopped.logs(0), "--yes", *words)
    assert done.code == 0, done.err


@contextmanager
def klog_alone(klog: Run, stopped: Stopped) -> Iterator[str]:
    """One broker of klog, on what `klog adopt` took over."""
    _adopt(klog, stopped)
    config = {
        **SECURITY,
        **TIMEOUTS_ARE_SEEN,
        "broker.id": 0,
        "listeners": stopped.ports.listeners,
        "log.dirs": f"{stopped.logs(0)}",
        "authorizer.class.name": _AUTHORIZER,
        "log.retention.ms": -1,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
    }
    with _klog_broker(config):
        yield str(stopped.logs(0))


@contextmanager
def _klog_broker(config: Config) -> Iterator[None]:
    with klog.testing.broker(config):
        yield


@contextmanager
def kafka_3_with_zookeeper(klog: Run, stopped: Stopped) -> Iterator[str]:
    """Kafka 3.9 on what `klog adopt` wrote into an empty ZooKeeper."""
    with ZooKeeperServer(stopped.work / "back") as zookeeper:
        place = f"{zookeeper.hosts}/back"
        _adopt(klog, stopped, f"zookeeper.connect={place}")
        config: Config = {
            **SECURITY,
            **TIMEOUTS_ARE_SEEN,
            "broker.id": 0,
            "listeners": stopped.ports.listeners,
            "log.dirs": f"{stopped.logs(0)}",
            "zookeeper.connect": place,
            "authorizer.class.name": _AUTHORIZER,
        }
        with ZooKeeperBroker(stopped.work / "0", config, KafkaPeer(KAFKA_3)):
            yield str(stopped.work / "back" / "data") + "/back"


TARGETS: Final = {
    "kafka-4-alone": kafka_4_alone,
    "kafka-4-three-and-three": three_and_three_of_kafka_4,
    "klog": klog_alone,
    "kafka-3-with-zookeeper": kafka_3_with_zookeeper,
}
"""What starts where the metadata of a cluster went."""
