"""The pytest plugin: `klog_broker`, one broker for a whole run of tests, and its log with every failed test.

It comes with klog (the entry point `pytest11`). To set the broker's configs, define a fixture
`klog_broker_config` of your own in `conftest.py`; for a broker of its own, a test uses `klog.testing.broker`.
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
    """The configs of `klog_broker`, none by default: redefine this fixture to set some."""
    return {}


@pytest.fixture(scope="session")
def klog_broker(klog_broker_config: Mapping[str, ConfigValue]) -> Iterator[BrokerProcess]:
    """A broker that serves all tests of the run: `klog_broker.bootstrap_servers` is its address."""
    from klog.testing import broker

    with broker(klog_broker_config) as process:
        yield process


# In the form that pytest before 8 knows, too: the plugin is loaded wherever klog is installed.
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pluggy.Result[pytest.TestReport], None]:
    """Show what the broker logged with a test that used it and failed."""
    outcome = yield
    report = outcome.get_result()
    process = getattr(item, "funcargs", {}).get("klog_broker")
    if process is not None and report.failed and call.when == "call":
        report.sections.append(("klog broker's log", process.log_text()[-_LOG_SHOWN_CHARS:]))
