"""Maps Kafka's configs to the settings of klog's packages.

Some defaults differ, because in Python a hand-off between threads costs more than in Java:
`num.network.threads` is 1 and `num.io.threads` the number of processors unless they are set. For the same
reason socket buffers have the system's size unless they are set. As Python accepts connections more slowly
than Java, the backlog is longer: a client whose connection does not fit tries again only after a second.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from klog.config.broker import BrokerConfig
from klog.config.keys import ConfigError
from klog.controller.settings import ControllerSettings
from klog.security.quotas.usage import QuotaWindows
from klog.server.network import ListenerLimits, NetworkSettings
from klog.server.network.listeners import Listeners

_LISTEN_BACKLOG: Final = 1024
_NETWORK_THREADS: Final = "num.network.threads"
_OVERRIDES: Final = "max.connections.per.ip.overrides"
_HOST: Final = re.compile(r"[0-9a-zA-Z\-%._:]+")


def quota_windows(config: BrokerConfig) -> tuple[QuotaWindows, QuotaWindows]:
    """How client quotas are measured, and the quota of controller mutations."""

    def windows(prefix: str) -> QuotaWindows:
        return QuotaWindows(
            config.number(f"{prefix}.window.num"), 1000 * config.number(f"{prefix}.window.size.seconds")
        )

    return windows("quota"), windows("controller.quota")


def network_settings(config: BrokerConfig, listeners: Listeners) -> NetworkSettings:
    """The settings of the network layer. Raises `ConfigError`."""

    def chosen(name: str, own: int) -> int:
        return config.number(name) if config.explicit(name) is not None else own

    return NetworkSettings(
        network_threads=chosen(_NETWORK_THREADS, 1),
        listener_network_threads={
            each.name: own
            for each in listeners.bound
            if isinstance(own := config.own_of_listener(each.name, _NETWORK_THREADS), int)
        },
        io_threads=chosen("num.io.threads", os.cpu_count() or 1),
        bulk_threads=_bulk_threads(),
        queued_max_requests=config.number("queued.max.requests"),
        queued_max_request_bytes=_queued_bytes(config),
        request_max_bytes=config.number("socket.request.max.bytes"),
        connections_max_idle_ms=config.number("connections.max.idle.ms"),
        failed_authentication_delay_ms=config.number("connection.failed.authentication.delay.ms"),
        max_connections=config.number("max.connections"),
        max_connections_per_ip=config.number("max.connections.per.ip"),
        max_connections_per_ip_overrides=_per_ip(config),
        max_connection_creation_rate=config.number("max.connection.creation.rate"),
        rate_samples=config.number("quota.window.num"),
        rate_window_ms=config.number("quota.window.size.seconds") * 1000,
        listener_limits={each.name: _limits(config, each.name) for each in listeners.bound},
        protected_listener=listeners.inter_broker,
        send_buffer_bytes=chosen("socket.send.buffer.bytes", -1),
        receive_buffer_bytes=chosen("socket.receive.buffer.bytes", -1),
        listen_backlog_size=chosen("socket.listen.backlog.size", _LISTEN_BACKLOG),
    )


def _bulk_threads() -> int:
    """One, so that small requests do not wait behind many bytes; none if there is only one processor.

    Two would take turns with the interpreter lock so often that each request costs twice the CPU.
    """
    return 1 if (os.cpu_count() or 1) > 1 else 0


def _queued_bytes(config: BrokerConfig) -> int:
    key, largest = "queued.max.request.bytes", "socket.request.max.bytes"
    found = config.number(key)
    if 0 < found < config.number(largest):
        raise ConfigError(key, str(found), f"it must be larger or equal to {largest}")
    return found


def _limits(config: BrokerConfig, listener: str) -> ListenerLimits:
    """The limits of one listener. The limits of the broker apply to all listeners together."""
    names = "max.connections", "max.connection.creation.rate"
    found = (config.for_listener(listener, name) for name in names)
    return ListenerLimits(*(value for value in found if isinstance(value, int)))


def _per_ip(config: BrokerConfig) -> Mapping[str, int]:
    key = _OVERRIDES
    found = {}
    for pair in filter(None, (config.text(key) or "").split(",")):
        host, _, limit = pair.strip().rpartition(":")
        if _HOST.fullmatch(host) is None or re.fullmatch("-?[0-9]+", limit) is None:
            raise ConfigError(key, pair, "an override is written host:limit")
        found[host] = int(limit)
    if config.number("max.connections.per.ip") == 0 and not found:
        raise ConfigError("max.connections.per.ip", "0", f"it can be zero only if {key} is set")
    return found


def resolved(settings: NetworkSettings) -> NetworkSettings:
    """The settings with host names replaced by addresses, which are looked up now, as in Kafka.

    Raises `ConfigError`.
    """
    overrides = settings.max_connections_per_ip_overrides
    addresses = {_address_of(host): limit for host, limit in overrides.items()}
    return replace(settings, max_connections_per_ip_overrides=addresses)


def _address_of(host: str) -> str:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # UnicodeError: not a host name
        raise ConfigError(_OVERRIDES, host, f"the host has no address: {error}") from error
    # The first IPv4 address, if there is one, as in Java.
    found.sort(key=lambda each: each[0] != socket.AF_INET)
    return str(found[0][4][0])


def controller_settings(
    broker_id: int, inter_broker_listener_name: str, config: BrokerConfig
) -> ControllerSettings:
    """The present settings of the controller."""
    return ControllerSettings(
        broker_id=broker_id,
        inter_broker_listener_name=inter_broker_listener_name,
        delete_topic_enable=config.flag("delete.topic.enable"),
        unclean_leader_election_enable=config.flag("unclean.leader.election.enable"),
        auto_leader_rebalance_enable=config.flag("auto.leader.rebalance.enable"),
        leader_imbalance_per_broker_percentage=config.number("leader.imbalance.per.broker.percentage"),
        leader_imbalance_check_interval_seconds=config.number("leader.imbalance.check.interval.seconds"),
    )


def log_directories(config: BrokerConfig) -> list[str]:
    """The absolute paths of the log directories in the configured order. Raises `ConfigError`."""
    text = config.text("log.dirs")
    text = config.text("log.dir") or "" if text is None else text
    try:
        found = [os.path.abspath(each.strip()) for each in text.split(",") if each.strip()]
    except FileNotFoundError:
        raise ConfigError(
            "log.dirs", text, "the current directory is gone", cure="an absolute path"
        ) from None
    if not found:
        raise ConfigError("log.dirs", text, "a broker needs a log directory")
    if len(set(map(os.path.realpath, found))) < len(found):
        raise ConfigError("log.dirs", text, "a directory is named twice, maybe by a symbolic link")
    return found
