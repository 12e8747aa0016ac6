"""A running broker takes other configs: as a whole, or not at all.

Rules: KIP-226 and Kafka's DynamicBrokerConfig with its DynamicListenerConfig, DynamicThreadPool,
DynamicLogConfig and the socket server. What can fail (files, addresses, threads) is done first, and undone;
what cannot follows. Kafka leaves a listener at its address whose port is changed, klog moves it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from klog.config.broker import BrokerConfig
from klog.config.keys import ConfigError
from klog.formats.errors import UsageError
from klog.server.cleaning import cleaner_config
from klog.server.listeners import Listeners, check_listeners, read_listeners
from klog.server.live_config import LiveConfig
from klog.server.network import NetworkSettings, SocketServer
from klog.server.settings import network_settings, resolved
from klog.storage.cleaner.log_cleaner import LogCleaner
from klog.storage.log.log_manager import LogManager
from klog.storage.log.manager_values import ManagerSettings

_log = logging.getLogger(__name__)


def plan(config: BrokerConfig, old: Listeners) -> tuple[Listeners, NetworkSettings]:
    """What a broker that has the `old` listeners goes on with. Raises `UsageError` where it cannot."""
    new = read_listeners(config, old)
    check_listeners(old, new)
    settings = resolved(network_settings(config, new))
    for limits in settings.listener_limits.values():
        for name, value in zip(("max.connections", "max.connection.creation.rate"), limits, strict=True):
            if value <= 0:
                raise UsageError(f"Invalid {name} {value}")
    return new, settings


class Reconfiguration:
    """Safe for threads. `settings` are those that `network` has; `endpoints_changed` is told when what the
    broker registers is another now.
    """

    def __init__(
        self,
        live: LiveConfig,
        listeners: Listeners,
        settings: NetworkSettings,
        network: SocketServer,
        logs: LogManager,
        cleaner: LogCleaner,
        endpoints_changed: Callable[[], None],
    ) -> None:
        self.listeners = listeners
        self._live = live
        self._network = network
        self._settings = settings
        self._logs = logs
        self._cleaner = cleaner
        self._endpoints_changed = endpoints_changed
        self._changing = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """Take nothing any more; a change that is under way is brought to its end."""
        with self._changing:
            self._closed = True

    def check(self, config: BrokerConfig) -> None:
        """Whether the broker could go on with `config`. Raises `UsageError`."""
        plan(config, self.listeners)

    def apply(self, config: BrokerConfig) -> None:
        """Go on with `config`. Raises `KlogError`; then everything is as it was."""
        with self._changing:
            if self._closed:
                return
            listeners, settings = plan(config, self.listeners)
            if (listeners.bound, settings) != (self.listeners.bound, self._settings):
                self._network.reconfigure(listeners.bound, settings)
                _tell(self.listeners, listeners)
            endpoints_differ = listeners.advertised != self.listeners.advertised
            self.listeners, self._settings = listeners, settings
            before = cleaner_config(self._live.broker())
            self._live.set_broker(config)
            self._logs.settings = ManagerSettings.of(config, self._logs.settings.directories)
            self._reconfigure_topics()
            if cleaner_config(config) != before:
                self._cleaner.reconfigure(cleaner_config(config))
            # Before `close` comes back: then the sockets whose ports are registered go.
            if endpoints_differ:
                self._endpoints_changed()

    def _reconfigure_topics(self) -> None:
        for topic in {log.partition.topic for log in self._logs.logs()}:
            try:
                self._logs.reconfigure(topic)
            except ConfigError as error:
                _log.error("topic %s keeps its configs, for they contradict the broker's: %s", topic, error)


def _tell(old: Listeners, new: Listeners) -> None:
    before = {each.name: each for each in old.bound}
    for each in new.bound:
        known = before.pop(each.name, None)
        if known is None or known.address != each.address:
            _log.info("listener %s is served at %s:%d", each.name, each.host, each.port)
        elif known != each:
            _log.info("listener %s has other TLS for new connections", each.name)
    for name in before:
        _log.info("listener %s is not served any more", name)
