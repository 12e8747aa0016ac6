"""One broker for all clients, and a new topic for each test."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.clients.brokers import Broker, kafka_broker, klog_broker
from tests.clients.member_programs import COMMANDS, MemberProgram
from tests.clients.python_clients import CLIENTS, Client
from tests.conftest import PEER_SKIP_PREFIX, give_up
from tests.peers import PeerUnavailableError
from tests.peers.kafka import KafkaPeer
from tests.peers.tool_server import ToolServer

_numbers = itertools.count()


@pytest.fixture(scope="session", params=["klog", pytest.param("kafka3", marks=pytest.mark.kafka)])
def broker(request, tmp_path_factory) -> Iterator[Broker]:
    if request.param == "kafka3":
        peer = request.getfixturevalue("kafka3")
        with kafka_broker(peer, tmp_path_factory.mktemp("kafka3")) as process:
            yield process
        return
    with klog_broker() as process:
        yield process
        logged = process.log_text().splitlines()
    # Mistakes of clients are answered with errors; they are no errors of the broker.
    assert [line for line in logged if re.search(r" (ERROR|FATAL) |Traceback", line)] == []


@pytest.fixture
def new_topic(broker) -> Callable[..., str]:
    """Creates a topic with configs (`retention_ms=1`) and returns its name."""

    def make(partitions: int = 1, **config: object) -> str:
        name = f"topic-{next(_numbers)}"
        broker.create_topic(name, partitions, {key.replace("_", "."): str(config[key]) for key in config})
        return name

    return make


@pytest.fixture(params=CLIENTS)
def client(request, broker) -> Client:
    """Each Python client in turn."""
    return CLIENTS[request.param](broker.bootstrap_servers)


@pytest.fixture
def every_client(broker) -> list[Client]:
    return [make(broker.bootstrap_servers) for make in CLIENTS.values()]


@pytest.fixture(scope="session")
def member_program() -> Iterator[Callable[[str], MemberProgram]]:
    """Gives the program of a client by its name, which is started once. Skips where it cannot be had."""
    started: dict[str, MemberProgram] = {}
    with ExitStack() as closing:

        def get(kind: str) -> MemberProgram:
            if kind not in started:
                started[kind] = closing.enter_context(MemberProgram(kind, _command(kind)))
            return started[kind]

        yield get


def _command(kind: str) -> list[str]:
    with skipping_without(kind):
        return COMMANDS[kind]()


@contextmanager
def skipping_without(kind: str) -> Iterator[None]:
    """Skips the test if the client of this kind cannot be had; Java's may be required."""
    try:
        yield
    except PeerUnavailableError as missing:
        if kind.lower().startswith("java"):
            give_up("Kafka's Java client", missing)
        # Few machines have Go, so it is nowhere required.
        pytest.skip(f"{PEER_SKIP_PREFIX}: {kind}: {missing}")


@pytest.fixture(scope="session")
def tools_of() -> Iterator[Callable[[KafkaPeer], ToolServer]]:
    """Gives the tools of a version, whose JVM is started once."""
    started: dict[KafkaPeer, ToolServer] = {}
    with ExitStack() as closing:

        def get(peer: KafkaPeer) -> ToolServer:
            if peer not in started:
                started[peer] = closing.enter_context(ToolServer(peer))
            return started[peer]

        yield get


@pytest.fixture(params=["kafka3", "kafka4"])
def tools(request, tools_of) -> ToolServer:
    """The tools of one version."""
    return tools_of(request.getfixturevalue(request.param))
