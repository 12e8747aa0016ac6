"""Fixtures for client commands: a cluster of each kind, `klog` connected to it, and a topic per test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.commands.clusters import KINDS, STARTERS
from tests.commands.running import Run, runner

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
