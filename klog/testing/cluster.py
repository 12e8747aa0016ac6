"""Starts a cluster of brokers for tests, on a ZooKeeper of its own, and makes it fail on request.

Each broker is a `BrokerProcess`. ZooKeeper runs from the jars that pip brings with PySpark. What brokers send
to each other and to ZooKeeper passes through proxies; clients connect to the brokers directly.
"""

from __future__ import annotations

import random
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from klog.client.errors import RefusedError
from klog.formats.errors import UsageError
from klog.protocol.error_codes import ErrorCode
from klog.testing.cluster_view import ClusterView, wait_for
from klog.testing.process import BrokerFailedError, BrokerProcess, ConfigValue, config_text
from klog.testing.proxies import Node, Proxies
from klog.testing.topics import create_topic
from klog.testing.zookeeper import ZooKeeperProcess

ZOOKEEPER: Final = "zookeeper"
_CLIENTS: Final = "PLAINTEXT"
_BETWEEN_BROKERS: Final = "REPLICATION"
# Linux assigns none of these ports by itself, so nobody else gets one before the broker binds it.
_PORTS: Final = range(20_000, 32_000)
_LOG_TAIL_CHARS: Final = 10_000
_OWN_CONFIGS: Final = ("broker.id", "listeners", "advertised.listeners", "zookeeper.connect")


class KlogCluster(ClusterView):
    """Several brokers with the ids 0, 1, 2 and so on. `cluster` gives one that is already serving.

    Brokers keep their directories and ports over restarts, until `close`.
    """

    def __init__(
        self, count: int = 3, config: Mapping[str, ConfigValue] | None = None, *, log_dir_count: int = 1
    ) -> None:
        """`config` are configs of all brokers; `log_dir_count` is the number of log directories of each."""
        own = set(_OWN_CONFIGS).intersection(config or {})
        if own:
            raise UsageError(f"the cluster sets {', '.join(sorted(own))} itself")
        self._work = Path(tempfile.mkdtemp(prefix="klog-testing-"))
        ports = free_ports(count + 1)
        self._proxies = Proxies(self._pids)
        self.zookeeper = ZooKeeperProcess(
            self._work / ZOOKEEPER, ports[-1], lambda is_held: self._proxies.hold(ZOOKEEPER, is_held=is_held)
        )
        """The ZooKeeper server, with `start`, `stop`, `kill`, `pause` and `resume`."""
        self.brokers: Mapping[int, BrokerProcess] = {
            broker_id: BrokerProcess(
                {**_defaults(count), **(config or {}), **self._addresses(broker_id, ports[broker_id])},
                log_dir_count=log_dir_count,
            )
            for broker_id in range(count)
        }
        """The brokers by id."""

    def _addresses(self, broker_id: int, port: int) -> dict[str, ConfigValue]:
        proxy = self._proxies.open(broker_id, port)
        to_zookeeper = self._proxies.open(ZOOKEEPER, self.zookeeper.port, source=broker_id)
        return {
            "broker.id": broker_id,
            "listeners": f"{_CLIENTS}://127.0.0.1:0,{_BETWEEN_BROKERS}://127.0.0.1:{port}",
            "advertised.listeners": f"{_CLIENTS}://127.0.0.1:0,{_BETWEEN_BROKERS}://127.0.0.1:{proxy}",
            "listener.security.protocol.map": f"{_CLIENTS}:PLAINTEXT,{_BETWEEN_BROKERS}:PLAINTEXT",
            "inter.broker.listener.name": _BETWEEN_BROKERS,
            "zookeeper.connect": f"127.0.0.1:{to_zookeeper}",
        }

    def _pids(self) -> Mapping[Node, int]:
        return {broker_id: each.pid for broker_id, each in self.brokers.items() if each.pid is not None}

    # -- addresses -----------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers for clients, `host:port,host:port`; also of those that are down."""
        return ",".join(each.endpoints[_CLIENTS] for each in self.brokers.values() if each.endpoints)

    def log_text(self) -> str:
        """The ends of the brokers' logs, one after the other."""
        return "".join(
            f"-- broker {broker_id} --\n{each.log_text()[-_LOG_TAIL_CHARS:]}\n"
            for broker_id, each in self.brokers.items()
        )

    # -- start and stop ------------------------------------------------------------------------------------

    def start(self, broker_id: int | None = None) -> None:
        """Start a broker unless it runs, and wait until it serves; without an id start all, and ZooKeeper.

        Raises `KlogError`.
        """
        if broker_id is not None:
            self.brokers[broker_id].start()
            return
        self.zookeeper.launch()
        count = len(self.brokers)
        with ThreadPoolExecutor(count) as pool:
            # The brokers import their modules while ZooKeeper starts.
            starts = [pool.submit(each.start, known_brokers=count) for each in self.brokers.values()]
            self.zookeeper.await_serving()
        for start in starts:
            start.result()

    def restore(self) -> None:
        """Heal the network, let paused processes go on, and start what does not run. Raises `KlogError`."""
        self.heal()
        self.zookeeper.start()
        self.zookeeper.resume()
        for each in self.brokers.values():
            if each.is_paused:
                each.resume()
        if any(each.pid is None for each in self.brokers.values()):
            self.start()

    def stop(self, broker_id: int) -> None:
        """Stop a broker cleanly: others lead its partitions before it ends. Raises BrokerFailedError."""
        self.brokers[broker_id].stop()

    def restart(self, broker_id: int) -> None:
        """Stop a broker cleanly and start it again."""
        self.brokers[broker_id].restart()

    def kill(self, broker_id: int) -> None:
        """Kill a broker (SIGKILL). Others notice when its ZooKeeper session has expired."""
        self.brokers[broker_id].kill()

    def pause(self, broker_id: int) -> None:
        """Stop the process of a broker where it is (SIGSTOP). Its connections stay open."""
        self.brokers[broker_id].pause()

    def resume(self, broker_id: int) -> None:
        """Let a paused broker go on (SIGCONT)."""
        self.brokers[broker_id].resume()

    def close(self) -> None:
        """Stop everything and remove the files. Idempotent.

        Raises BrokerFailedError if a broker had ended by itself or did not stop.
        """
        self._proxies.heal()
        with ExitStack() as closing:
            closing.callback(shutil.rmtree, self._work, ignore_errors=True)
            closing.callback(self._proxies.close)
            closing.callback(self.zookeeper.kill)
            with ThreadPoolExecutor(len(self.brokers)) as pool:
                ends = [pool.submit(each.close) for each in self.brokers.values()]
            for end in ends:
                end.result()

    # -- the network -----------------------------------------------------------------------------------------

    def partition(self, a: Node, b: Node, *, both_ways: bool = True) -> None:
        """Cut the network between two brokers, or between a broker and `"zookeeper"`.

        Nothing arrives, and no connection is closed. Without `both_ways` only what `a` sends is held back.
        """
        for node in (a, b):
            self._check_node(node)
        self._proxies.cut(a, b)
        if both_ways:
            self._proxies.cut(b, a)

    def heal(self, a: Node | None = None, b: Node | None = None) -> None:
        """Heal the network between two nodes, or everywhere. What was sent meanwhile arrives now."""
        if a is None or b is None:
            self._proxies.heal()
        else:
            self._proxies.heal([(a, b), (b, a)])

    def _check_node(self, node: Node) -> None:
        if node not in self.brokers and node != ZOOKEEPER:
            raise UsageError(f"{node} is neither a broker id of the cluster nor {ZOOKEEPER!r}")

    # -- metadata ------------------------------------------------------------------------------------------

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        replication_factor: int = -1,
        config: Mapping[str, ConfigValue] | None = None,
    ) -> None:
        """Create a topic and wait until it can be written to. A replication factor of -1 is the brokers'
        default: 3, or the number of brokers if they are fewer. Raises `KlogError` if it is refused.
        """
        texts = {key: config_text(value) for key, value in (config or {}).items()}

        def created() -> bool | None:
            server = self.brokers[self.controller()].bootstrap_servers
            try:
                create_topic(server, topic, partitions, texts, replication_factor)
            except RefusedError as error:
                if error.code != ErrorCode.NOT_CONTROLLER:
                    raise
                return None
            return True

        wait_for(created, f"topic {topic} could not be created")


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that are free now. Raises BrokerFailedError."""
    with ExitStack() as probes:
        found: list[int] = []
        for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
            probe = probes.enter_context(socket.socket())
            with suppress(OSError):
                probe.bind(("127.0.0.1", port))
                found.append(port)
            if len(found) == count:
                return found
    raise BrokerFailedError(f"{count} ports of {_PORTS.start} to {_PORTS.stop} are not free")


def _defaults(count: int) -> dict[str, ConfigValue]:
    replicas = min(count, 3)
    return {
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": min(count, 2),
        "transaction.state.log.num.partitions": 5,
        "zookeeper.session.timeout.ms": 6000,
        # ZooKeeper's JVM starts at the same time, on a busy machine for longer than a session.
        "zookeeper.connection.timeout.ms": 60_000,
    }


@contextmanager
def cluster(
    count: int = 3, config: Mapping[str, ConfigValue] | None = None, *, log_dir_count: int = 1
) -> Iterator[KlogCluster]:
    """A cluster that serves until the block ends, which also removes its files.

    `config` are Kafka's broker configs, the same for all brokers. Raises `KlogError` if it does not start,
    or if a broker ends by itself before the block does.
    """
    made = KlogCluster(count, config, log_dir_count=log_dir_count)
    try:
        made.start()
        yield made
    except BaseException:
        for each in made.brokers.values():
            each.kill()
        raise
    finally:
        made.close()
