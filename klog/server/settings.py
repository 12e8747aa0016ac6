"""From Kafka's configs to the settings of the rooms.

Where Kafka's default serves Kafka's threads, klog has one of its own: threads count less here than hand-offs
(see docs on the network layer), so `num.network.threads` is 1 and `num.io.threads` the number of processors
unless somebody sets them. Socket buffers are the system's own unless set, for the same reason. And as Python
accepts later than Java, more connections may wait for it: one that finds no room tries again after a second.
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
from klog.server.listeners import Listeners
from klog.server.network import ListenerLimits, NetworkSettings

_LISTEN_BACKLOG: Final = 1024
_BULK_THREADS_MOST: Final = 4
_OVERRIDES: Final = "max.connections.per.ip.overrides"
_HOST: Final = re.compile(r"[0-9a-zA-Z\-%._:]+")


def network_settings(config: BrokerConfig, listeners: Listeners) -> NetworkSettings:
    """What the network layer is told. Raises `ConfigError`."""

    def chosen(name: str, own: int) -> int:
        return config.number(name) if config.explicit(name) is not None else own

    return NetworkSettings(
        network_threads=chosen("num.network.threads", 1),
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
    """One for each processor: fewer leave some idle, more wait for each other. One alone gains nothing."""
    processors = os.cpu_count() or 1
    return min(processors, _BULK_THREADS_MOST) if processors > 1 else 0


def _queued_bytes(config: BrokerConfig) -> int:
    key, largest = "queued.max.request.bytes", "socket.request.max.bytes"
    found = config.number(key)
    if 0 < found < config.number(largest):
        raise ConfigError(key, str(found), f"it must be larger or equal to {largest}")
    return found


def _limits(config: BrokerConfig, listener: str) -> ListenerLimits:
    """A listener's own limits; those of the broker count for all together."""
    names = "max.connections", "max.connection.creation.rate"
    found = (config.of_listener(listener, name) for name in names)
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
    """The settings with addresses in the place of host names, which are looked up now, as Kafka does.

    Raises `ConfigError`.
    """
    overrides = settings.max_connections_per_ip_overrides
    addresses = {_address_of(host): limit for host, limit in overrides.items()}
    return replace(settings, max_connections_per_ip_overrides=addresses)


def _address_of(host: str) -> str:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # the latter where it cannot be a name
        raise ConfigError(_OVERRIDES, host, f"the host has no address: {error}") from error
    # Of several the first of IPv4, as in Java.
    found.sort(key=lambda each: each[0] != socket.AF_INET)
    return str(found[0][4][0])


def controller_settings(
    broker_id: int, inter_broker_listener_name: str, config: BrokerConfig
) -> ControllerSettings:
    """What the controller obeys now."""
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
    """The log directories, absolute, in the order given. Raises `ConfigError`."""
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
