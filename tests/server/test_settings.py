"""The settings of klog's packages from Kafka's configs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from klog.config.broker import BrokerConfig
from klog.config.keys import ConfigError
from klog.server.network import BindError, NetworkSettings
from klog.server.network.listeners import read_listeners
from klog.server.startup.broker import Broker
from klog.server.startup.settings import network_settings, resolved
from tests.waiting import eventually

LIMITS = "max.connections.per.ip.overrides"


def settings(overrides: str) -> NetworkSettings:
    config = BrokerConfig({LIMITS: overrides, "listeners": "PLAINTEXT://127.0.0.1:0"})
    return resolved(network_settings(config, read_listeners(config)))


@pytest.mark.parametrize(
    ("host", "address"),
    [("localhost", "127.0.0.1"), ("127.0.0.1", "127.0.0.1"), ("0:0:0:0:0:0:0:1", "::1"), ("::1", "::1")],
)
def test_limits_of_hosts_apply_to_their_addresses(host, address) -> None:
    assert settings(f"{host}:7").max_connections_per_ip_overrides == {address: 7}


def test_a_host_without_an_address_is_named() -> None:
    with pytest.raises(ConfigError, match=r"a\.\.b for configuration max\.connections\.per\.ip\.overrides"):
        settings("a..b:7")


def broker(directory: Path, **options: str) -> Broker:
    texts = {"broker.id": "7", "log.dirs": str(directory), "listeners": "PLAINTEXT://127.0.0.1:0"}
    return Broker(BrokerConfig(texts | options))


def test_a_broker_counts_connections_by_the_addresses_of_hosts(tmp_path) -> None:
    running = broker(tmp_path, **{"max.connections.per.ip": "0", LIMITS: "localhost:5"})
    try:
        # The controller's connection would be refused without its own limit.
        eventually(lambda: running.network.counts.total == 1)
    finally:
        running.stop()


def test_a_listener_with_an_invalid_host_name_is_refused(tmp_path) -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.raises(BindError, match=r"a\.\.b"):
        broker(tmp_path, listeners="PLAINTEXT://a..b:0")
    # Connections of other tests may be closed meanwhile.
    assert len(os.listdir("/proc/self/fd")) <= len(before)
