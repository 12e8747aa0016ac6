"""Kafka Connect 3.9 copies a file to a topic and the topic to a file while workers and the broker end."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.error import URLError

import pytest

from klog.testing.topics import create_topic
from tests.clients import applications
from tests.clients.applications import Application, RestartableBroker, rounds
from tests.clients.python_clients import ConfluentKafka
from tests.peers.broker import free_port, properties_text
from tests.peers.connect_streams import connect_command, connect_streams_jars
from tests.peers.kafka import KafkaPeer

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(3600)]

TOPIC = "lines"
COUNT = 200
CONVERTER = "org.apache.kafka.connect.storage.StringConverter"
CLI = "org.apache.kafka.connect.cli"


@pytest.fixture(params=["klog", "kafka3"])
def broker(request, tmp_path: Path, kafka3: KafkaPeer) -> Iterator[RestartableBroker]:
    assert connect_streams_jars()
    make = applications.kafka(tmp_path / "broker", kafka3) if request.param == "kafka3" else None
    with make or applications.klog(tmp_path / "broker") as process:
        create_topic(process.bootstrap, TOPIC, 1, {})
        yield process


class Files:
    """The file that Connect reads, the topic, and the file that it writes."""

    def __init__(self, broker: RestartableBroker, work: Path) -> None:
        self._bootstrap = broker.bootstrap
        self.source = work / "source.txt"
        self.sink = work / "sink.txt"
        self.lines: list[str] = []

    def append(self) -> None:
        """Appends lines to the file that Connect reads."""
        start = len(self.lines)
        self.lines += (f"line {number}" for number in range(start, start + COUNT))
        with self.source.open("a") as file:
            file.writelines(f"{line}\n" for line in self.lines[start:])

    def in_topic(self) -> list[str]:
        records = ConfluentKafka(self._bootstrap).read(TOPIC, isolation="read_committed")
        return [(record.value or b"").decode() for record in records]

    def in_sink(self) -> list[str]:
        return self.sink.read_text().splitlines() if self.sink.exists() else []

    def arrived(self) -> bool:
        """Whether every line is in the sink. A line may be there twice, which Connect allows for a sink."""
        return list(dict.fromkeys(self.in_sink())) == self.lines

    def connectors(self) -> dict[str, dict[str, object]]:
        """The configs of both connectors, by name."""
        kind = "org.apache.kafka.connect.file.FileStream"
        shared = {"tasks.max": 1}
        return {
            "source": {
                "connector.class": f"{kind}SourceConnector",
                "file": str(self.source),
                "topic": TOPIC,
                **shared,
            },
            "sink": {
                "connector.class": f"{kind}SinkConnector",
                "file": str(self.sink),
                "topics": TOPIC,
                **shared,
            },
        }


def worker_config(broker: RestartableBroker, port: int) -> dict[str, str | int]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "key.converter": CONVERTER,
        "value.converter": CONVERTER,
        "listeners": f"HTTP://127.0.0.1:{port}",
        "plugin.discovery": "service_load",
        "offset.flush.interval.ms": 200,
        "producer.enable.idempotence": "true",
        "consumer.session.timeout.ms": 6000,
        "consumer.heartbeat.interval.ms": 500,
    }


@pytest.fixture
def files(broker, tmp_path: Path) -> Files:
    return Files(broker, tmp_path)


@pytest.fixture
def standalone(broker, files: Files, tmp_path: Path) -> Iterator[Application]:
    """A standalone worker with both connectors. It keeps its offsets in a file."""
    worker = tmp_path / "worker.properties"
    offsets = {"offset.storage.file.filename": str(tmp_path / "offsets")}
    # Nobody waits for the end of its session, and a line that is copied again would be there twice.
    patient = {"consumer.session.timeout.ms": 30_000}
    worker.write_text(properties_text({**worker_config(broker, free_port()), **patient, **offsets}))
    paths = [worker]
    for name, config in files.connectors().items():
        paths.append(tmp_path / f"{name}.properties")
        paths[-1].write_text(properties_text({"name": name, **config}))
    program = Application(
        connect_command(f"{CLI}.ConnectStandalone", *paths), tmp_path / "connect.log", tmp_path
    )
    program.start()
    yield program
    program.kill()


def test_lines_are_copied_exactly_when_everything_stops_cleanly(broker, standalone, files: Files) -> None:
    files.append()
    standalone.await_that(files.arrived)
    standalone.stop()
    broker.restart()
    files.append()
    standalone.start()
    standalone.await_that(files.arrived)
    standalone.stop()
    assert files.in_topic() == files.in_sink() == files.lines


@pytest.mark.parametrize("broker", ["klog"], indirect=True)
def test_every_line_is_copied_when_the_broker_is_killed(broker, standalone, files: Files) -> None:
    for _ in rounds():
        files.append()
        standalone.await_that(files.arrived)
        files.append()
        broker.crash()
        standalone.await_that(files.arrived)
    assert files.in_topic() == files.lines


class Workers:
    """Distributed workers that form a group."""

    def __init__(self, broker: RestartableBroker, work: Path, count: int, **changes: str | int) -> None:
        self._ports = [free_port() for _ in range(count)]
        self.programs = []
        for port in self._ports:
            config = worker_config(broker, port) | {
                "group.id": "workers",
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 500,
                "scheduled.rebalance.max.delay.ms": 0,
                **{name.replace("_", "."): changes[name] for name in changes},
            }
            for kind in ("config", "offset", "status"):
                config[f"{kind}.storage.topic"] = f"connect-{kind}"
                config[f"{kind}.storage.replication.factor"] = 1
                if kind != "config":
                    config[f"{kind}.storage.partitions"] = 2
            path = work / f"worker-{port}.properties"
            path.write_text(properties_text(config))
            command = connect_command(f"{CLI}.ConnectDistributed", path)
            self.programs.append(Application(command, work / f"worker-{port}.log", work))

    def ask(self, path: str, body: object = None, method: str = "GET") -> object:
        """What the last worker answers, None if it cannot answer now."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._ports[-1]}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=applications.TIMEOUT_S) as answer:
                return json.loads(answer.read())
        except (URLError, ConnectionError):
            return None

    def that_run_tasks(self) -> set[str]:
        """The ids of the workers that run a task now."""
        told = self.ask("/connectors?expand=status")
        connectors = told.values() if isinstance(told, dict) else ()
        return {task["worker_id"] for each in connectors for task in each["status"]["tasks"]}

    def create(self, files: Files) -> None:
        for name, config in files.connectors().items():
            path = f"/connectors/{name}/config"
            texts = {key: str(config[key]) for key in config}
            self.programs[-1].await_that(lambda path=path, texts=texts: self.ask(path, texts, "PUT"))


@pytest.fixture
def workers(broker, tmp_path: Path) -> Iterator[Callable[..., Workers]]:
    """Starts workers."""
    with ExitStack() as closing:

        def make(count: int, **changes: str | int) -> Workers:
            made = Workers(broker, tmp_path, count, **changes)
            for program in made.programs:
                closing.callback(program.kill)
                program.start()
            return made

        yield make


def test_workers_share_connectors_and_take_over_from_a_killed_one(broker, workers, files: Files) -> None:
    group = workers(2)
    first, second = group.programs
    files.append()
    group.create(files)
    second.await_that(files.arrived)
    second.await_that(lambda: len(group.that_run_tasks()) == 2)
    for _ in rounds():
        files.append()
        broker.crash()
        second.await_that(files.arrived)
        first.kill()
        files.append()
        second.await_that(files.arrived)
        first.start()
    assert list(dict.fromkeys(files.in_topic())) == files.lines


def test_a_source_is_copied_exactly_once_when_worker_and_broker_are_killed(
    broker, workers, files: Files
) -> None:
    group = workers(1, exactly_once_source_support="enabled")
    (worker,) = group.programs
    files.append()
    group.create(files)
    for _ in rounds():
        worker.await_that(files.arrived)
        files.append()
        broker.crash()
        worker.await_that(files.arrived)
        files.append()
        worker.kill()
        worker.start()
        worker.await_that(files.arrived)
    assert files.in_topic() == files.lines
