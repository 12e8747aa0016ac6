"""Provides the pytest fixture `klog_broker`, one broker for all tests of a run.

A failed test that used the broker shows the broker's log. pytest loads the plugin if klog is installed (entry
point `pytest11`). To set the broker's configs, define a fixture `klog_broker_config` in `conftest.py`. A test
that needs a broker of its own uses `klog.testing.broker`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    import pluggy

    from klog.testing import BrokerProcess
    from klog.testing.process import ConfigValue

_LOG_SHOWN_CHARS: Final = 4000


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


# pytest before 8 must know this form of a hook, since the plugin is loaded wherever klog is installed.
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pluggy.Result[pytest.TestReport], None]:
    """Add the broker's log to the report of a failed test that used it."""
    outcome = yield
    report = outcome.get_result()
    process = getattr(item, "funcargs", {}).get("klog_broker")
    if process is not None and report.failed and call.when == "call":
        report.sections.append(("klog broker's log", process.log_text()[-_LOG_SHOWN_CHARS:]))
