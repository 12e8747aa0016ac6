"""One broker for all clients, and a topic of each test's own."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator

import pytest

import klog.testing
from klog.testing import BrokerProcess
from tests.clients.python_clients import CLIENTS, Client

_numbers = itertools.count()

CONFIG = {
    "num.partitions": 2,
    "log.retention.ms": -1,
    "message.max.bytes": 1_000_000,
    "group.initial.rebalance.delay.ms": 0,
}


@pytest.fixture(scope="session")
def broker() -> Iterator[BrokerProcess]:
    with klog.testing.broker(CONFIG, log_dir_count=2) as process:
        yield process
        logged = process.log_text().splitlines()
    # What clients do wrong they are told; it is no trouble of the broker's.
    assert [line for line in logged if re.search(r" (ERROR|FATAL) |Traceback", line)] == []


@pytest.fixture
def new_topic(broker) -> Callable[..., str]:
    """Makes a topic with configs (`retention_ms=1`) and gives its name."""

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
