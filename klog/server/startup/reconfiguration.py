"""Changes the configs of a running broker, completely or not at all.

Rules: KIP-226 and Kafka's DynamicBrokerConfig with its DynamicListenerConfig, DynamicThreadPool,
DynamicLogConfig and the socket server. What can fail (files, addresses, threads) is done first and undone on
failure. Then follows what cannot fail. If the port of a listener is changed, Kafka leaves the listener at its
address; klog moves it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from klog.config.broker import BrokerConfig
from klog.config.broker_protection import require_enforced
from klog.config.keys import ConfigError
from klog.formats.errors import UsageError
from klog.server.configs.live_config import LiveConfig
from klog.server.logs.cleaning import cleaner_config
from klog.server.network import NetworkSettings, SocketServer
from klog.server.network.listeners import Listeners, check_listeners, read_listeners
from klog.server.startup.settings import network_settings, resolved
from klog.storage.cleaner.log_cleaner import LogCleaner
from klog.storage.log.log_manager import LogManager
from klog.storage.log.manager_values import ManagerSettings

_log = logging.getLogger(__name__)


def plan(config: BrokerConfig, old: Listeners) -> tuple[Listeners, NetworkSettings]:
    """The listeners and settings after a change from the `old` listeners.

    Raises `UsageError` if it is impossible.
    """
    require_enforced(config)
    new = read_listeners(config, old)
    check_listeners(old, new)
    settings = resolved(network_settings(config, new))
    for limits in settings.listener_limits.values():
        for name, value in zip(("max.connections", "max.connection.creation.rate"), limits, strict=True):
            if value <= 0:
                raise UsageError(f"Invalid {name} {value}")
    return new, settings


@dataclass(slots=True, eq=False)
class Reconfiguration:
    """Applies new configs. Safe for threads.

    `settings` are the present ones of `network`. `endpoints_changed` is called when the endpoints that the
    broker registers have changed.
    """

    live: LiveConfig
    listeners: Listeners
    settings: NetworkSettings
    network: SocketServer
    logs: LogManager
    cleaner: LogCleaner
    endpoints_changed: Callable[[], None]
    _changing: threading.Lock = field(default_factory=threading.Lock, init=False)
    _closed: bool = field(default=False, init=False)

    def close(self) -> None:
        """Accept no more changes, and wait for the one in progress."""
        with self._changing:
            self._closed = True

    def check(self, config: BrokerConfig) -> None:
        """Raise `UsageError` if `config` cannot be applied."""
        plan(config, self.listeners)

    def apply(self, config: BrokerConfig) -> None:
        """Apply `config`. Raises `KlogError`; then nothing has changed."""
        with self._changing:
            if self._closed:
                return
            listeners, settings = plan(config, self.listeners)
            if (listeners.bound, settings) != (self.listeners.bound, self.settings):
                self.network.reconfigure(listeners.bound, settings)
                _log_changes(self.listeners, listeners)
            endpoints_differ = listeners.advertised != self.listeners.advertised
            self.listeners, self.settings = listeners, settings
            before = cleaner_config(self.live.broker())
            self.live.set_broker(config)
            self.logs.settings = ManagerSettings.of(config, self.logs.settings.directories)
            self._reconfigure_topics()
            if cleaner_config(config) != before:
                self.cleaner.reconfigure(cleaner_config(config))
            # This must end before `close` returns, because the sockets of the registered ports are closed
            # after it.
            if endpoints_differ:
                self.endpoints_changed()

    def _reconfigure_topics(self) -> None:
        for topic in {log.partition.topic for log in self.logs.logs()}:
            try:
                self.logs.reconfigure(topic)
            except ConfigError as error:
                _log.error(
                    "topic %s keeps its configs, because they contradict the broker's: %s", topic, error
                )


def _log_changes(old: Listeners, new: Listeners) -> None:
    before = {each.name: each for each in old.bound}
    for each in new.bound:
        known = before.pop(each.name, None)
        if known is None or known.address != each.address:
            _log.info("listener %s is served at %s:%d", each.name, each.host, each.port)
        elif known != each:
            _log.info("listener %s uses other TLS settings for new connections", each.name)
    for name in before:
        _log.info("listener %s is not served any more", name)
