"""The scenarios of the page on backups run as written, against a broker that serves meanwhile."""

from __future__ import annotations

import configparser
import json
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient

from klog.backup.reading import open_backups
from klog.formats.names import TopicPartition
from klog.testing.topics import create_topic
from tests.docs.backup_page import blocks, environment, placed, run
from tests.peers.broker import free_port
from tests.swap.klog_process import KlogBroker
from tests.waiting import eventually

RUNNING = "Nightly, and all the time"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KlogBroker]:
    # A run takes what the broker has noted as replicated.
    config = {"replica.high.watermark.checkpoint.interval.ms": 100, "offsets.topic.num.partitions": 3}
    with KlogBroker(tmp_path_factory.mktemp("broker"), config) as running:
        yield running.start()


@dataclass(frozen=True)
class Scene:
    """The page's places as they are in a test, and its blocks run there."""

    broker: KlogBroker
    directory: Path

    @property
    def repository(self) -> Path:
        return self.directory / "repository"

    @property
    def places(self) -> dict[str, object]:
        return {
            "s3://backups/cluster": self.repository,
            "/var/lib/kafka": self.broker.log_directories()[0],
            "/mnt/": f"{self.directory}/mnt-",
            "/etc/kafka/server.properties": self.broker.work / "klog.properties",
            "kafka:9092": self.broker.bootstrap,
            "zk1:2181": f"kafka://{self.broker.bootstrap}",
        }

    def run(self, block: str, *, code: int = 0, **more: str) -> str:
        """What a block prints; it must end with the exit code."""
        done = run(placed(block, more), self.places, self.directory)
        assert done.returncode == code, f"{block}{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def back_up(self) -> dict[str, Any]:
        """A run after all that was written is noted as replicated."""
        time.sleep(0.5)
        return json.loads(self.run("klog backup run /var/lib/kafka --to s3://backups/cluster -o jsonl"))

    def end_offset(self, topic: str) -> int:
        """That of partition 0 in the newest backup."""
        repository = open_backups(str(self.repository))
        manifest = repository.newest()
        refs = {} if manifest is None else repository.partitions(manifest)
        ref = refs.get(TopicPartition(topic, 0))
        return 0 if ref is None else ref.end_offset


@pytest.fixture
def scene(broker: KlogBroker, tmp_path: Path) -> Scene:
    return Scene(broker, tmp_path)


def orders(scene: Scene, topic: str) -> None:
    """A topic with ten records, of which a group has read four."""
    create_topic(scene.broker.bootstrap, topic, 1, {"retention.ms": "-1"})
    produce(scene, topic)
    consumer = Consumer({"bootstrap.servers": scene.broker.bootstrap, "group.id": "billing"})
    consumer.commit(offsets=[Position(topic, 0, 4)], asynchronous=False)
    consumer.close()


def values_of(topic: str) -> list[str]:
    return [f"{topic}-{number}" for number in range(10)]


def produce(scene: Scene, topic: str) -> None:
    producer = Producer({"bootstrap.servers": scene.broker.bootstrap})
    for value in values_of(topic):
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def delete(scene: Scene, topic: str) -> None:
    """Delete a topic, and wait until its directory is gone."""
    admin = AdminClient({"bootstrap.servers": scene.broker.bootstrap})
    admin.delete_topics([topic])[topic].result(30)
    directory = scene.broker.log_directories()[0] / f"{topic}-0"
    eventually(lambda: not directory.exists())


def read(bootstrap: str, topic: str) -> list[tuple[int, str]]:
    """The offsets and values of ten records."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    consumer.assign([Position(topic, 0, 0)])
    found = [(each.offset(), each.value().decode()) for each in consumer.consume(10, 30)]
    consumer.close()
    return found


def test_from_nothing_to_a_nightly_backup(scene: Scene) -> None:
    """The container of the CronJob does what it says, every night, and prune keeps what is young."""
    orders(scene, "nightly")
    (job,) = map(yaml.safe_load, blocks(RUNNING, "yaml"))
    spec = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    (mount,) = container["volumeMounts"]
    assert mount["name"] in [each["name"] for each in spec["volumes"]]
    assert mount["mountPath"] in container["args"]
    line = shlex.join(["klog", *container["args"]])
    for end in (10, 20):
        time.sleep(0.5)
        [row] = map(json.loads, scene.run(line).splitlines())
        assert (row["problems"], scene.end_offset("nightly")) == ([], end)
        produce(scene, "nightly")
    repository = open_backups(str(scene.repository))
    assert all(repository.manifest(each).metadata is not None for each in repository.ids())
    scene.run("klog backup verify s3://backups/cluster")
    (prune,) = blocks("Check and prune")
    assert "2 backups kept" in scene.run(prune)


def test_the_unit_backs_up_all_the_time_until_systemd_stops_it(scene: Scene) -> None:
    orders(scene, "continuous")
    (text,) = blocks(RUNNING, "ini")
    unit = configparser.ConfigParser()
    unit.read_string(text)
    command = shlex.split(placed(unit["Service"]["ExecStart"], scene.places))
    if shutil.which("systemd-analyze"):
        path = scene.directory / "klog-backup.service"
        path.write_text(text.replace("/opt/klog/bin/klog", shutil.which("klog", path=environment()["PATH"])))
        check = ["systemd-analyze", "verify", str(path)]
        done = subprocess.run(check, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
    with subprocess.Popen(["klog", *command[1:], "-q"], env=environment()) as process:
        try:
            info = scene.repository / "klog-backup.json"
            eventually(lambda: info.exists() and scene.end_offset("continuous") == 10)
        finally:
            process.send_signal(signal.SIGTERM)
    assert process.returncode == 143 == int(unit["Service"]["SuccessExitStatus"])
    scene.run("klog backup verify s3://backups/cluster")


@contextmanager
def serving(scene: Scene, line: str, port: int) -> Iterator[str]:
    """A `klog serve` of the page, on a port of its own."""
    command = placed(placed(line, {"9192": str(port)}), scene.places)
    log = scene.directory / "serve.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            ["/bin/bash", "-c", f"exec {command}"], env=environment(), stdout=output, stderr=output
        )
    try:
        eventually(lambda: "Ctrl-C stops it" in log.read_text(), problem=log.read_text)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def test_somebody_deleted_a_topic(scene: Scene) -> None:
    """Its records come back with their offsets, and the group goes on where it was."""
    records = list(enumerate(values_of("orders")))
    orders(scene, "orders")
    scene.back_up()
    moment = {"2026-11-24T09:59:00Z": scene.run("date -u +%Y-%m-%dT%H:%M:%S.%3NZ").strip()}
    delete(scene, "orders")
    assert scene.back_up()["removedPartitions"] == 1

    look, join, serve, groups, running = blocks("Somebody deleted a topic")
    assert "orders " in scene.run(look, **moment)
    port = free_port()
    beside = f"klog serve -o log.dirs=/mnt/orders -o listeners=PLAINTEXT://127.0.0.1:{port}"
    with serving(scene, beside, port) as bootstrap:
        assert read(bootstrap, "orders") == records
    with serving(scene, placed(serve, moment), port):
        export, take = groups.splitlines()
        scene.run(export, **{"9192": str(port)})
    scene.broker.stop()
    scene.run(join)
    scene.broker.start()
    scene.run(take)
    assert read(scene.broker.bootstrap, "orders") == records
    consumer = Consumer({"bootstrap.servers": scene.broker.bootstrap, "group.id": "billing"})
    assert [each.offset for each in consumer.committed([Position("orders", 0)], 30)] == [4]
    consumer.close()

    delete(scene, "orders")
    assert "10 records, offsets of 1 group" in scene.run(running, **moment)
    assert read(scene.broker.bootstrap, "orders") == records


def test_an_object_of_the_repository_is_damaged(scene: Scene) -> None:
    """The restore says which object it is, and with the page's options all the rest comes back."""
    for topic in ("damaged", "whole"):
        orders(scene, topic)
    scene.back_up()
    [piece] = (scene.repository / "data" / "damaged-0").glob("*.log*")
    data = bytearray(piece.read_bytes())
    data[len(data) // 3] ^= 1
    piece.write_bytes(data)

    assert piece.name in scene.run("klog restore s3://backups/cluster --to /mnt/refused", code=1)
    assert (scene.directory / "mnt-refused" / "klog-restore-incomplete").exists()
    (block,) = blocks("An object of the repository is damaged")
    for line in block.splitlines():
        said = scene.run(line, code=1)
        assert piece.name in said
        assert "offsets 0 to 9" in said
    scene.run("klog verify /mnt/new")
    served = f"klog serve --read-only /mnt/new -o listeners=PLAINTEXT://127.0.0.1:{(port := free_port())}"
    with serving(scene, served, port) as bootstrap:
        assert read(bootstrap, "whole") == list(enumerate(values_of("whole")))


def test_records_go_into_the_running_cluster_beside_the_living_topic(scene: Scene) -> None:
    orders(scene, "living")
    scene.back_up()
    produce(scene, "living")
    dry, _, beside = blocks("Into a running cluster")[0].splitlines()
    topics = " --topic living"
    scene.run(dry.replace("--at 2026-11-24T10:00:00Z", topics), code=2)  # the living topic has records
    scene.run(beside.replace("orders", "living").replace("--at 1h ", ""))
    assert read(scene.broker.bootstrap, "living-old") == list(enumerate(values_of("living")))
    header, *ranges = (scene.directory / "restored-offsets.jsonl").read_text().splitlines()
    assert "living-old" in ranges[0]
    assert json.loads(header)
