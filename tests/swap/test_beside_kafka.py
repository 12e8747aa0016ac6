"""klog and Apache Kafka 3.9 are two brokers of one cluster, and the controller changes between them.

It also changes while the present controller is suspended and does not notice.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.peers.broker import SINGLE_BROKER, Config, ZooKeeperBroker
from tests.peers.kafka import KafkaPeer
from tests.peers.zookeeper import ZooKeeperServer
from tests.swap.clients import Admin, Writer, Written, read
from tests.swap.klog_process import KlogBroker
from tests.swap.world import CONNECTION_MS, SESSION_MS
from tests.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

KLOG, KAFKA = 7, 8


class Cluster:
    """Both brokers on one ZooKeeper, and their state there."""

    def __init__(self, work: Path, zookeeper: ZooKeeperServer, client: KazooClient) -> None:
        self._work = work
        self._zookeeper = zookeeper
        self._client = client
        self.klog = KlogBroker(work / "klog", self._config(KLOG))

    def _config(self, broker_id: int) -> Config:
        return {
            **SINGLE_BROKER,
            "broker.id": broker_id,
            "zookeeper.connect": self._zookeeper.hosts,
            "zookeeper.session.timeout.ms": SESSION_MS,
            "zookeeper.connection.timeout.ms": CONNECTION_MS,
            "log.dirs": str(self._work / f"logs-{broker_id}"),
            "auto.create.topics.enable": "false",
        }

    def kafka(self) -> ZooKeeperBroker:
        return ZooKeeperBroker(self._work / "kafka", self._config(KAFKA), self._zookeeper.peer)

    def members(self) -> set[int]:
        return {int(name) for name in self._client.get_children("/brokers/ids")}

    def controller(self) -> int | None:
        try:
            return int(json.loads(self._client.get("/controller")[0])["brokerid"])
        except NoNodeError:
            return None

    def is_being_deleted(self, topic: str) -> bool:
        return self._client.exists(f"/admin/delete_topics/{topic}") is not None


@contextmanager
def cluster(work: Path, kafka3: KafkaPeer) -> Iterator[Cluster]:
    with ZooKeeperServer(work / "zookeeper", kafka3) as zookeeper:
        client = KazooClient(zookeeper.hosts)
        client.start(60)
        try:
            yield Cluster(work, zookeeper, client)
        finally:
            client.stop()
            client.close()


def all_led(admin: Admin, *topics: str) -> None:
    eventually(lambda: {(topic, number) for topic in topics for number in range(4)} <= admin.led())


# A broker may be missing from a client's metadata for a moment. Then its answer is lost too.
ASK_AGAIN = (KafkaError.NOT_CONTROLLER, KafkaError._DESTROY_BROKER, KafkaError._TRANSPORT)
DONE_UNANSWERED = (KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.UNKNOWN_TOPIC_OR_PART)


def is_done(bootstrap: str, ask: Callable[[Admin], None]) -> bool:
    """Sends a request to the controller with a new client. Returns whether it was done.

    A client that is connected already would still ask the earlier controller.
    """
    try:
        ask(Admin(bootstrap))
    except KafkaException as error:
        if error.args[0].code() in ASK_AGAIN:
            return False
        if error.args[0].code() not in DONE_UNANSWERED:
            raise
    return True


def is_served(bootstrap: str, written: Written) -> bool:
    """Whether the broker serves all records. It does not before it knows the leaders."""
    try:
        return read(bootstrap, written) == written
    except KafkaException:
        return False


def test_a_controller_whose_session_expires_while_it_is_suspended_resigns(
    tmp_path: Path, kafka3: KafkaPeer
) -> None:
    written: Written = {}
    with cluster(tmp_path, kafka3) as both, both.klog as klog:
        klog.start()
        with both.kafka() as kafka:
            eventually(lambda: both.members() == {KLOG, KAFKA})
            assert both.controller() == KLOG
            admin = Admin(klog.bootstrap)
            eventually(
                lambda: is_done(klog.bootstrap, lambda to: to.create({"first": (4, {}), "gone": (4, {})}))
            )
            all_led(admin, "first", "gone")
            # The producer's id comes from the controller, whichever broker it asks.
            writer = Writer(f"{kafka.bootstrap},{klog.bootstrap}", written)
            for number in range(100):
                writer.write("first", b"%d" % number)
            writer.finish()

            klog.process.send_signal(signal.SIGSTOP)
            eventually(lambda: both.controller() == KAFKA)
            klog.process.send_signal(signal.SIGCONT)
            eventually(lambda: both.members() == {KLOG, KAFKA})

            by_kafka = Admin(kafka.bootstrap)
            eventually(lambda: is_done(kafka.bootstrap, lambda to: to.delete(["gone"])))
            eventually(lambda: is_done(kafka.bootstrap, lambda to: to.create({"second": (4, {})})))
            for each in (admin, by_kafka):
                all_led(each, "first", "second")
            eventually(lambda: not both.is_being_deleted("gone"))
            assert not list((tmp_path / f"logs-{KLOG}").glob("gone-[0-9]"))
            for number in range(100):
                writer.write("second", b"%d" % number)
            writer.finish()
            assert both.controller() == KAFKA
            eventually(lambda: is_served(klog.bootstrap, written))

            # After Kafka is killed, klog is controller again, with an epoch above both earlier ones.
            kafka.kill()
            eventually(lambda: both.controller() == KLOG)
            eventually(lambda: klog.log_text.count("controller of epoch 3") == 1)
        with both.kafka() as kafka:
            all_led(Admin(kafka.bootstrap), "first", "second")
            eventually(lambda: is_served(kafka.bootstrap, written))
        klog.stop()
