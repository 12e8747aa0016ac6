"""Fixtures for client commands: a cluster of each kind, `klog` connected to it, and a topic per test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.cluster.members import Kind
from tests.commands.clusters import KINDS, STARTERS
from tests.commands.running import Run, runner
from tests.commands.three_brokers import ThreeBrokers, three_brokers
from tests.peers.tool_server import ToolServer

_numbers = itertools.count()


@pytest.fixture(scope="session", params=KINDS)
def cluster(request, tmp_path_factory) -> Iterator[str]:
    """The address of a running cluster."""
    with STARTERS[request.param](request, tmp_path_factory.mktemp(request.param)) as bootstrap:
        yield bootstrap


@pytest.fixture
def klog(cluster, capfd, monkeypatch) -> Run:
    """The command line, with the cluster as its default."""
    monkeypatch.setenv("KLOG_BOOTSTRAP_SERVER", cluster)
    return runner(capfd, monkeypatch)


@pytest.fixture
def topic(klog) -> str:
    """A topic of one partition."""
    name = f"topic-{next(_numbers)}"
    assert klog("topics", "create", name, "--partitions", 1).code == 0
    return name


@pytest.fixture(
    scope="session", params=[pytest.param(kind, marks=pytest.mark.kafka, id=kind.value) for kind in Kind]
)
def three(request, kafka3, tmp_path_factory) -> Iterator[ThreeBrokers]:
    """Three brokers of klog, then of Kafka, on a ZooKeeper of Kafka's jars. Tests restore what they kill."""
    with three_brokers(request.param, kafka3, tmp_path_factory.mktemp("three")) as brokers:
        yield brokers


@pytest.fixture
def on_three(three, capfd, monkeypatch) -> Iterator[Run]:
    """The command line, with the three brokers as its default."""
    monkeypatch.setenv("KLOG_BOOTSTRAP_SERVER", three.bootstrap)
    yield runner(capfd, monkeypatch)
    three.restore()


@pytest.fixture(scope="session")
def tools(kafka3) -> Iterator[ToolServer]:
    """Kafka's tools of 3.9 in one JVM."""
    with ToolServer(kafka3) as server:
        yield server
