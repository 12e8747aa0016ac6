"""Runs a broker in the foreground: reads configs, logs a banner, handles signals, and stops cleanly."""

from __future__ import annotations

import gc
import logging
import os
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from klog.config.broker import BrokerConfig
from klog.config.broker_checks import without_effect
from klog.config.broker_protection import require_enforced
from klog.config.keys import ConfigError
from klog.formats.checksums import require_correct_code
from klog.formats.errors import ChecksumCodeError, KlogError
from klog.formats.names import TopicPartition
from klog.kernel.kernel import slowness
from klog.metadata.errors import WaitCancelledError
from klog.server.configs.log_output import configure_logging
from klog.server.network.listeners import open_to_everybody
from klog.server.startup.broker import Broker
from klog.server.startup.broker_state import BrokerState
from klog.server.startup.config_reading import read_config, read_kraft_config
from klog.server.startup.kraft_configs import require_no_kraft
from klog.server.startup.stop_requests import StopRequests
from klog.storage.log.earlier_records import EarlierRecords
from klog.storage.log.manager_values import Progress

if TYPE_CHECKING:
    from klog.server.metrics.broker import BrokerMetrics
    from klog.server.read_only.opening import Opening

_log = logging.getLogger(__name__)

_PROGRESS_EVERY: Final = 100
_NO_THREAD: Final = "can't start new thread"
"""What Python says if there is no room for the stack of a thread."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The options of the command line. `options` are `key=value`; `opening` opens what is to be served
    without changing it, None for an ordinary broker; with `searches_damage` all its segments are checked.
    """

    config_file: str | None = None
    options: Sequence[str] = ()
    metrics_port: int | None = None
    opening: Opening | None = None
    searches_damage: bool = True
    json_logs: bool = False
    quiet: bool = False


def run(launch: Launch, on_serving: Callable[[Broker], None] = lambda broker: None) -> None:  # noqa: ARG005
    """Run a broker until SIGINT, SIGTERM or SIGHUP. `on_serving` is called once it serves.

    With a second signal it does not wait any more for other brokers to take over its partitions.

    Raises `KlogError` if the broker cannot start.
    """
    configure_logging(as_json=launch.json_logs, quiet=launch.quiet)
    if (slow := slowness()) is not None:
        _log.warning("%s", slow)
    with ExitStack() as closing:
        options: Sequence[str] = launch.options
        earlier: Mapping[TopicPartition, EarlierRecords] = {}
        if launch.opening is not None:
            opened = closing.enter_context(launch.opening())
            options, earlier = opened.options, opened.earlier
            if launch.searches_damage and opened.search is not None:
                on_serving = _then(opened.search.start, on_serving)
        _run(launch, _config(launch, options), earlier, on_serving)


def _config(launch: Launch, options: Sequence[str]) -> BrokerConfig:
    """The broker's configs. What a KRaft node's are is said before what klog does not know of them."""
    try:
        return read_config(launch.config_file, options)
    except ConfigError:
        of_kraft = read_kraft_config(launch.config_file, options) if launch.opening is None else None
        if of_kraft is not None:
            require_no_kraft(of_kraft[0], launch.config_file)
        raise


def _then(start: Callable[[], None], on_serving: Callable[[Broker], None]) -> Callable[[Broker], None]:
    def both(broker: Broker) -> None:
        start()
        on_serving(broker)

    return both


def _run(
    launch: Launch,
    config: BrokerConfig,
    earlier: Mapping[TopicPartition, EarlierRecords],
    on_serving: Callable[[Broker], None],
) -> None:
    if launch.opening is None:
        require_no_kraft(config, launch.config_file)
    if exposed := open_to_everybody(config):
        _log.warning(
            "without authentication: whoever reaches %s is User:ANONYMOUS (docs/security.md)",
            ", ".join(exposed),
        )
    for name, nearest in config.unknown().items():
        hint = f", did you mean {nearest}?" if nearest else ""
        _log.warning("unknown config %s is ignored%s", name, hint)
    require_enforced(config)
    for name, what in without_effect(config).items():
        _log.warning("%s has no effect: %s", name, what)
    _raise_file_limit()
    stop = StopRequests()
    stop.listen()
    with ExitStack() as closing:
        metrics = None if launch.metrics_port is None else _serve_metrics(launch.metrics_port, closing)
        on_state = _ignore_state if metrics is None else metrics.state_changed
        try:
            require_correct_code()
            broker = Broker(
                config,
                on_fatal=stop.fail,
                on_loaded=_log_progress,
                on_state=on_state,
                is_stopping=lambda: stop.is_asked,
                is_read_only=launch.opening is not None,
                earlier=earlier,
            )
        except WaitCancelledError as cancelled:
            _log.info("%s", cancelled)
            return
        except ChecksumCodeError as wrong:
            raise KlogError(f"the broker cannot start: {wrong}") from wrong
        except (OSError, MemoryError, RuntimeError) as error:
            # Errors of log directories have been handled before. This is the system's lack of descriptors or
            # memory, or of room for the stack of a thread.
            if isinstance(error, RuntimeError) and str(error) != _NO_THREAD:
                raise
            raise KlogError(f"the broker cannot start: {error}", cure="see ulimit -a") from error
        closing.callback(broker.stop, lambda: stop.is_urgent)
        if metrics is not None:
            metrics.attach(broker)
        # Collections need not look at what exists by now, which would take 20 ms and block all threads.
        gc.freeze()
        _banner(broker)
        on_serving(broker)
        stop.wait()
    if stop.fatal is not None:
        _log.critical("%s", stop.fatal)
        sys.exit(1)
    _log.info("stopped cleanly")


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
    from klog.server.metrics.metrics_server import MetricsServer

    metrics = BrokerMetrics()
    server = MetricsServer(port, metrics.text)
    closing.callback(server.stop)
    _log.info("metrics at http://127.0.0.1:%d/metrics", server.port)
    return metrics


def _log_progress(progress: Progress) -> None:
    if progress.recovered or progress.done % _PROGRESS_EVERY == 0 or progress.done == progress.total:
        _log.info(
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
    _log.info("broker %d of cluster %s serves %s", *broker.identity, addresses)
    _log.info("data in %s; Ctrl-C stops it", directories)


def _relative_path(path: str) -> str:
    """A path relative to the current directory, if it is below it.

    The current directory may not exist any more.
    """
    with suppress(FileNotFoundError):
        if Path(path).is_relative_to(here := os.getcwd()):
            return os.path.relpath(path, here)
    return path
