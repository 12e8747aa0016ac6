"""Runs a broker in the foreground: reads configs, logs a banner, handles signals, and stops cleanly."""

from __future__ import annotations

import gc
import logging
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from klog.config.broker import BrokerConfig
from klog.config.broker_checks import without_effect
from klog.config.broker_protection import require_enforced
from klog.formats import java_properties
from klog.formats.errors import KlogError, UsageError
from klog.formats.kernel import slowness
from klog.metadata.errors import WaitCancelledError
from klog.server.broker import Broker
from klog.server.broker_state import BrokerState
from klog.server.config_providers import with_variables_replaced
from klog.server.log_output import configure_logging
from klog.storage.files import read_whole
from klog.storage.log.manager_values import Progress

if TYPE_CHECKING:
    from klog.server.metrics.broker import BrokerMetrics

logger = logging.getLogger(__name__)

_LISTEN_S: Final = 1.0

# The defaults without a properties file: a single broker that only this machine reaches.
_OWN_DEFAULTS: Final[Mapping[str, str]] = {
    "broker.id": "0",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "log.dirs": "klog-data",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
_PROGRESS_EVERY: Final = 100


@dataclass(frozen=True, slots=True)
class Launch:
    """The options of the command line. `options` are `key=value`."""

    config_file: str | None = None
    options: Sequence[str] = ()
    metrics_port: int | None = None
    json_logs: bool = False
    quiet: bool = False


def read_config(config_file: str | None, options: Sequence[str]) -> BrokerConfig:
    """The configs of a properties file with `key=value` options over it, and variables replaced.

    Raises `UsageError` for an invalid option, `ConfigError` for an invalid value, `StorageError` for a file
    that cannot be read.
    """
    texts = dict(_OWN_DEFAULTS)
    if config_file is not None:
        try:
            texts = java_properties.config_entries(read_whole(config_file))
        except KlogError as error:
            raise error.at(config_file) from None
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"-o {option}: an option is written key=value")
        texts[name.strip()] = value.strip()
    return BrokerConfig(with_variables_replaced(texts))


def run(launch: Launch, on_serving: Callable[[Broker], None] = lambda broker: None) -> None:  # noqa: ARG005
    """Run a broker until SIGINT, SIGTERM or SIGHUP. `on_serving` is called once it serves.

    Raises `KlogError` if the broker cannot start.
    """
    configure_logging(as_json=launch.json_logs, quiet=launch.quiet)
    if (slow := slowness()) is not None:
        logger.warning("%s", slow)
    config = read_config(launch.config_file, launch.options)
    for name, nearest in config.unknown().items():
        hint = f", did you mean {nearest}?" if nearest else ""
        logger.warning("unknown config %s is ignored%s", name, hint)
    require_enforced(config)
    for name, what in without_effect(config).items():
        logger.warning("%s has no effect: %s", name, what)
    _raise_file_limit()
    ended = threading.Event()
    fatal: list[str] = []

    def on_fatal(why: str) -> None:
        fatal.append(why)
        ended.set()

    def on_signal(number: int, _: FrameType | None) -> None:
        logger.info("%s: stopping", signal.Signals(number).name)
        ended.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    # SIGHUP comes when the terminal is closed. It is ignored under nohup, as in Java.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, on_signal)
    with ExitStack() as closing:
        metrics = None if launch.metrics_port is None else _serve_metrics(launch.metrics_port, closing)
        on_state = _ignore_state if metrics is None else metrics.state_changed
        try:
            broker = Broker(
                config,
                on_fatal=on_fatal,
                on_loaded=_log_progress,
                on_state=on_state,
                is_stopping=ended.is_set,
            )
        except WaitCancelledError as cancelled:
            logger.info("%s", cancelled)
            return
        except OSError as error:
            # Errors of log directories have been handled before. This is the system's lack of descriptors or
            # memory.
            raise KlogError(f"the broker cannot start: {error}", cure="see ulimit -a") from error
        closing.callback(broker.stop)
        if metrics is not None:
            metrics.attach(broker)
        # Collections need not look at what exists by now, which would take 20 ms and block all threads.
        gc.freeze()
        _banner(broker)
        on_serving(broker)
        # In steps, because a wait without a timeout would miss a signal that comes just before it.
        while not ended.wait(_LISTEN_S):
            pass
    if fatal:
        logger.critical("%s", fatal[0])
        sys.exit(1)
    logger.info("stopped cleanly")


def _raise_file_limit() -> None:
    """Raise the limit of open files to the maximum: a partition needs three descriptors, a connection one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _ignore_state(_: BrokerState) -> None:
    """Used if there are no metrics."""


def _serve_metrics(port: int, closing: ExitStack) -> BrokerMetrics:
    """Serve metrics before the broker exists, so that its start can be observed."""
    # Imported here because http.server would take half of the time of a start.
    from klog.server.metrics.broker import BrokerMetrics
    from klog.server.metrics_server import MetricsServer

    metrics = BrokerMetrics()
    server = MetricsServer(port, metrics.text)
    closing.callback(server.stop)
    logger.info("metrics at http://127.0.0.1:%d/metrics", server.port)
    return metrics


def _log_progress(progress: Progress) -> None:
    if progress.recovered or progress.done % _PROGRESS_EVERY == 0 or progress.done == progress.total:
        logger.info(
            "%s: %d of %d logs loaded%s",
            progress.directory,
            progress.done,
            progress.total,
            f", {progress.partition} recovered" if progress.recovered else "",
        )


def _banner(broker: Broker) -> None:
    addresses = ", ".join(
        f"{each.host}:{each.port} ({each.listener})" for each in broker.registration().endpoints
    )
    directories = ", ".join(map(_relative_path, broker.logs.online))
    logger.info("broker %d of cluster %s serves %s", *broker.identity, addresses)
    logger.info("data in %s; Ctrl-C stops it", directories)


def _relative_path(path: str) -> str:
    """A path relative to the current directory, if it is below it.

    The current directory may not exist any more.
    """
    with suppress(FileNotFoundError):
        if Path(path).is_relative_to(here := os.getcwd()):
            return os.path.relpath(path, here)
    return path
