"""Clusters for the tests of client commands, by kind; each starts once per session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import klog.testing
from tests.peers import KRaftBroker, ZooKeeperBroker


@contextmanager
def _kafka3(request: pytest.FixtureRequest, work: Path) -> Iterator[str]:
    with ZooKeeperBroker(work, peer=request.getfixturevalue("kafka3")) as broker:
        yield broker.bootstrap


@contextmanager
def _kafka4(request: pytest.FixtureRequest, work: Path) -> Iterator[str]:
    with KRaftBroker(work, peer=request.getfixturevalue("kafka4")) as broker:
        yield broker.bootstrap


@contextmanager
def _klog(request: pytest.FixtureRequest, work: Path) -> Iterator[str]:
    # As with the Kafka peers: otherwise the broker soon deletes the records of 1970 that tests write.
    with klog.testing.broker({"log.retention.ms": -1}) as broker:
        yield broker.bootstrap_servers


STARTERS: dict[str, Callable] = {"klog": _klog, "kafka3": _kafka3, "kafka4": _kafka4}
"""How to start a cluster of each kind; it yields `host:port`."""

KINDS = [pytest.param(kind, marks=() if kind == "klog" else pytest.mark.kafka) for kind in STARTERS]

WITH_TRANSACTIONS = KINDS
