"""What every room's tests share: settings for Hypothesis, and real Kafka as the peer of some tests.

A test that uses the `kafka3` or `kafka4` fixture (and carries the marker `kafka`) is skipped where Kafka
cannot be had, and the run says so at its end; with `CI=true` and `KLOG_REQUIRE_PEERS=1` it fails instead.
"""

from __future__ import annotations

import logging
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
from hypothesis import HealthCheck, settings

from tests import bytecode, corpora, tiers
from tests.kazoo_clients import KazooClients
from tests.peers import KAFKA_3, KAFKA_4, DumpServer, KafkaPeer, PeerUnavailableError
from tests.waiting import eventually

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter
    from xdist.workermanage import WorkerController  # type: ignore[import-untyped]

PEER_SKIP_PREFIX = "KAFKA PEER TESTS SKIPPED"

settings.register_profile("quick", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", parent=settings.get_profile("quick"), max_examples=2000)
settings.load_profile(os.environ.get("KLOG_HYPOTHESIS_PROFILE", "quick"))

bytecode.keep_what_is_compiled()

# The tests must not depend on the profiles of who runs them.
os.environ["XDG_CONFIG_HOME"] = os.path.join(tempfile.gettempdir(), "klog-tests-have-no-settings")

# A run that a shell started in the background ignores Ctrl-C, and so would every command that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _levels_of_loggers() -> dict[logging.Logger, int]:
    known = [made for made in logging.root.manager.loggerDict.values() if isinstance(made, logging.Logger)]
    return {logger: logger.level for logger in (logging.root, *known)}


@pytest.fixture(autouse=True)
def levels_of_loggers() -> Iterator[None]:
    """Gives every logger its level back, for a command or a request may set it for the whole process."""
    before, disabled = _levels_of_loggers(), logging.root.manager.disable
    yield
    logging.disable(disabled)
    for logger in _levels_of_loggers():
        if logger.level != before.get(logger, logging.NOTSET):
            logger.setLevel(before.get(logger, logging.NOTSET))


@pytest.fixture(scope="session", autouse=True)
def kazoo_clients() -> Iterator[KazooClients]:
    """Fails the session if a test has left a client of ZooKeeper running."""
    clients = KazooClients()
    yield clients
    try:
        eventually(lambda: not clients.left(), timeout_s=30)
    except AssertionError:
        pytest.fail(f"clients of ZooKeeper were left running by {sorted(clients.left())}", pytrace=False)


@pytest.fixture(autouse=True)
def kazoo_clients_of_test(kazoo_clients: KazooClients, request: pytest.FixtureRequest) -> Iterator[None]:
    """Notes which test has started a client."""
    yield
    kazoo_clients.note(request.node.nodeid)


def give_up(what: str, missing: PeerUnavailableError) -> NoReturn:
    """Skips the test, loudly. Fails it where peers are required."""
    if os.environ.get("CI") == "true" and os.environ.get("KLOG_REQUIRE_PEERS") == "1":
        pytest.fail(f"{what} is required here (KLOG_REQUIRE_PEERS=1): {missing}", pytrace=False)
    pytest.skip(f"{PEER_SKIP_PREFIX}: {missing}")


def _available_peer(version: str) -> KafkaPeer:
    peer = KafkaPeer(version)
    try:
        assert peer.classpath
    except PeerUnavailableError as missing:
        give_up("real Kafka", missing)
    return peer


@pytest.fixture(scope="session")
def kafka3() -> KafkaPeer:
    """Kafka 3.9.1: the version whose behaviour and dump text klog reproduces."""
    return _available_peer(KAFKA_3)


@pytest.fixture(scope="session")
def kafka4() -> KafkaPeer:
    """Kafka 4.x: KRaft, transactions v2, the new group coordinators."""
    return _available_peer(KAFKA_4)


@pytest.fixture(scope="session")
def kafka3_dump(kafka3: KafkaPeer) -> Iterator[DumpServer]:
    """Kafka 3.9.1's dump tool kept running, with the repository as its working directory."""
    with DumpServer(kafka3, cwd=corpora.REPOSITORY) as server:
        yield server


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--tier`: which tests run, if the command names no paths."""
    parser.addoption(
        "--tier",
        choices=tiers.TIERS,
        default=None,
        help="quick (the default), rest (what quick leaves out), or full; see tests/tiers.py",
    )


def _tier(config: pytest.Config) -> str:
    """The tier of this run. A worker process is told by pytest's own process, which knows the arguments."""
    given = getattr(config, "workerinput", {}).get("klog_tier")
    if given is not None:
        return str(given)
    names_paths = config.args_source == pytest.Config.ArgsSource.ARGS
    return str(config.getoption("--tier") or (tiers.FULL if names_paths else tiers.QUICK))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Tell a worker of pytest-xdist the tier."""
    node.workerinput["klog_tier"] = _tier(node.config)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import what has no test of this run's tier."""
    return True if tiers.has_none(_tier(config), collection_path) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of this run's tier. Each test must be in one: see `tiers.may_mark`."""
    tier = _tier(config)
    for item in items:
        if item.get_closest_marker("kafka") and tiers.has_none(tiers.REST, item.path):
            raise pytest.UsageError(f"{item.nodeid}: say mark.kafka in this file or in its conftest.py")
    kept = [
        item
        for item in items
        if tiers.is_selected(tier, item.path, (marker.name for marker in item.iter_markers()))
    ]
    if len(kept) < len(items):
        chosen = set(kept)
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = kept


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile everything before workers start that all need it."""
    config = session.config
    starts_workers = bool(config.getoption("tx")) and not hasattr(config, "workerinput")
    if starts_workers and config.args_source != pytest.Config.ArgsSource.ARGS:
        bytecode.compile_all(config, bytecode.test_modules(_tier(config)))


def pytest_configure(config: pytest.Config) -> None:
    """In CI a failure is told when it happens: a run that is stopped before its end has then said it too."""
    if os.environ.get("CI") == "true" and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_FailuresAtOnce(config), "failures-at-once")


class _FailuresAtOnce:
    """A plugin of pytest's own process (no worker's) that prints each failure as it comes in."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            terminal = self._config.pluginmanager.getplugin("terminalreporter")
            terminal.write_line("")
            terminal.write_line(f"FAILED {report.nodeid} ({report.when}, {report.duration:.1f} s)", red=True)
            terminal.write_line(report.longreprtext)


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Lines that nobody overlooks: real Kafka was not there, and what the tier left out."""
    reports = terminalreporter.stats.get("skipped", [])
    reasons = sorted({report.longrepr[2] for report in reports if PEER_SKIP_PREFIX in str(report.longrepr)})
    if reasons:
        count = sum(PEER_SKIP_PREFIX in str(report.longrepr) for report in reports)
        terminalreporter.section("real Kafka", sep="!", red=True, bold=True)
        for reason in reasons:
            terminalreporter.write_line(
                f"{reason.removeprefix('Skipped: ')} ({count} tests)", red=True, bold=True
            )
    if _tier(terminalreporter.config) == tiers.QUICK:
        terminalreporter.write_line(tiers.left_out_note(), bold=True)
