"""Stores of every kind, for tests of what all stores have in common."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from klog.metadata.embedded import FILE_NAME, EmbeddedStore
from klog.metadata.local import SharedTree, TreeSession
from klog.metadata.store import MetadataStore
from klog.metadata.watches import Delivery
from klog.metadata.zookeeper import ZooKeeperStore
from tests.metadata.memory_tree import NoJournal
from tests.peers import KafkaPeer
from tests.peers.zookeeper import ZooKeeperServer

OpenStore = Callable[[], MetadataStore]

_numbers = itertools.count()


@pytest.fixture(scope="session")
def zookeeper(kafka3: KafkaPeer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"), kafka3) as server:
        yield server


def call_at_once(deliveries: Iterable[Delivery]) -> None:
    for delivery in deliveries:
        delivery()


@pytest.fixture
def opened() -> Iterator[list[MetadataStore]]:
    stores: list[MetadataStore] = []
    yield stores
    for store in stores:
        store.close()


def _memory_sessions(opened: list[MetadataStore]) -> OpenStore:
    shared = SharedTree(NoJournal(), itertools.count(1_000).__next__)

    def open_store() -> MetadataStore:
        opened.append(TreeSession(shared, call_at_once))
        return opened[-1]

    return open_store


def _zookeeper_sessions(server: ZooKeeperServer, opened: list[MetadataStore]) -> OpenStore:
    # Each test has its own tree.
    hosts = f"{server.hosts}/contract/test{next(_numbers)}"

    def open_store() -> MetadataStore:
        opened.append(ZooKeeperStore(hosts, session_timeout_ms=6_000))
        return opened[-1]

    return open_store


@pytest.fixture(params=["memory", "embedded", pytest.param("zookeeper", marks=pytest.mark.kafka)])
def store(request: pytest.FixtureRequest, tmp_path: Path, opened: list[MetadataStore]) -> MetadataStore:
    """One session with an empty tree, on each kind of store."""
    if request.param == "embedded":
        opened.append(EmbeddedStore(tmp_path / FILE_NAME))
        return opened[-1]
    if request.param == "memory":
        return _memory_sessions(opened)()
    return _zookeeper_sessions(request.getfixturevalue("zookeeper"), opened)()


@pytest.fixture(params=["memory", pytest.param("zookeeper", marks=pytest.mark.kafka)])
def open_session(request: pytest.FixtureRequest, opened: list[MetadataStore]) -> OpenStore:
    """Opens further sessions with one tree, on the kinds of store that many processes share."""
    if request.param == "memory":
        return _memory_sessions(opened)
    return _zookeeper_sessions(request.getfixturevalue("zookeeper"), opened)
