"""How others reach a broker: its listeners, which configs may change, and its registration.

A change of configs takes other listeners. As soon as the network is open, `Reconfiguration` does that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from klog.config.broker import BrokerConfig
from klog.config.broker_protection import require_enforced
from klog.metadata.values import BrokerRegistration
from klog.server.configs.live_config import LiveConfig
from klog.server.network.listeners import Listeners, read_listeners
from klog.server.network.sasl import SaslConfig
from klog.server.peers.broker_channel import Access
from klog.server.startup.reconfiguration import Reconfiguration
from klog.server.startup.settings import network_settings


@dataclass(slots=True, eq=False)
class Presence:
    """The listeners of a broker as they are now. `reconfiguration` is set when the network is open."""

    live: LiveConfig
    _listeners: Listeners
    reconfiguration: Reconfiguration | None = field(default=None, init=False)

    @property
    def listeners(self) -> Listeners:
        """The present listeners."""
        return self._listeners if self.reconfiguration is None else self.reconfiguration.listeners

    def access_to_brokers(self) -> Access:
        """How to get into the listener between brokers."""
        listeners = self.listeners
        tls = listeners.tls.get(listeners.inter_broker)
        return Access(None if tls is None else tls.to_brokers, listeners.login)

    def sasl_of(self, listener: str) -> SaslConfig:
        """The SASL configs of a listener."""
        return self.listeners.sasl[listener]

    def registration(self, broker_id: int, port_of: Callable[[str], int], now_ms: int) -> BrokerRegistration:
        """What the broker registers in the metadata store. `port_of` gives the port of a bound listener."""
        listeners = self.listeners
        ports = {each.name: port_of(each.name) for each in listeners.bound}
        rack = self.live.broker().text("broker.rack")
        return BrokerRegistration(broker_id, listeners.endpoints(ports), rack, timestamp_ms=now_ms)

    def check(self, config: BrokerConfig) -> None:
        """Raises `UsageError` if the broker could not work with these configs."""
        if self.reconfiguration is not None:
            self.reconfiguration.check(config)

    def apply(self, config: BrokerConfig) -> None:
        """Apply the broker's dynamic configs. If it raises (`KlogError`), nothing has changed."""
        if self.reconfiguration is not None:
            self.reconfiguration.apply(config)
            return
        require_enforced(config)
        listeners = read_listeners(config, self._listeners)
        network_settings(config, listeners)
        self._listeners = listeners
        self.live.set_broker(config)
