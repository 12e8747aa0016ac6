"""Provides the pytest fixtures `klog_broker`, one broker for all tests of a run, and `klog_cluster`, three.

A failed test that used them shows the brokers' logs. pytest loads the plugin if klog is installed (entry
point `pytest11`). To set configs, define a fixture `klog_broker_config` or `klog_cluster_config` in
`conftest.py`. A test that needs a broker or a cluster of its own uses `klog.testing.broker` or `cluster`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    import pluggy

    from klog.testing import BrokerProcess, KlogCluster
    from klog.testing.process import ConfigValue

_LOG_SHOWN_CHARS: Final = 12_000


@pytest.fixture(scope="session")
def klog_broker_config() -> Mapping[str, ConfigValue]:
    """The configs of `klog_broker`; redefine this fixture to set some."""
    return {}


@pytest.fixture(scope="session")
def klog_broker(klog_broker_config: Mapping[str, ConfigValue]) -> Iterator[BrokerProcess]:
    """A broker for all tests of the run; `klog_broker.bootstrap_servers` is its address."""
    from klog.testing import broker

    with broker(klog_broker_config) as process:
        yield process


@pytest.fixture(scope="session")
def klog_cluster_config() -> Mapping[str, ConfigValue]:
    """The configs of all brokers of `klog_cluster`; redefine this fixture to set some."""
    return {}


@pytest.fixture(scope="session")
def _klog_cluster(klog_cluster_config: Mapping[str, ConfigValue]) -> Iterator[KlogCluster]:
    from klog.testing import cluster

    with cluster(config=klog_cluster_config) as started:
        yield started


@pytest.fixture
def klog_cluster(_klog_cluster: KlogCluster) -> KlogCluster:
    """A cluster of three brokers for all tests of the run, whole again at the start of each test."""
    _klog_cluster.restore()
    return _klog_cluster


# pytest before 8 must know this form of a hook, since the plugin is loaded wherever klog is installed.
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pluggy.Result[pytest.TestReport], None]:
    """Add the logs to the report of a failed test that used a broker or a cluster."""
    outcome = yield
    report = outcome.get_result()
    if not report.failed or call.when != "call":
        return
    for name, title in (("klog_broker", "klog broker's log"), ("klog_cluster", "klog cluster's logs")):
        used = getattr(item, "funcargs", {}).get(name)
        if used is not None:
            report.sections.append((title, used.log_text()[-_LOG_SHOWN_CHARS:]))
