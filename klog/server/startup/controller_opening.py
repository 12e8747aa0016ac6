"""Makes the controller inside a broker, with its channels to all brokers."""

from __future__ import annotations

import time
from collections.abc import Callable

from klog.client.connection import ReconnectingConnection
from klog.config.broker import BrokerConfig
from klog.controller.events import ResponseReceived
from klog.controller.runner import Controller
from klog.metadata.store import MetadataStore
from klog.metadata.values import BrokerRegistration
from klog.server.peers.broker_channel import Peers
from klog.server.peers.broker_channels import BrokerChannels
from klog.server.peers.controller_times import ControllerTimes
from klog.server.startup.settings import controller_settings


def open_controller(
    config: Callable[[], BrokerConfig],
    peers: Peers,
    store: MetadataStore,
    reregister: Callable[[], None],
    clock_ms: Callable[[], int],
    times: ControllerTimes,
) -> Controller:
    """The controller of a broker, not started. `config` gives the present configs."""
    timeout_ms = config().number("controller.socket.timeout.ms")

    def connect(broker: BrokerRegistration) -> ReconnectingConnection:
        return peers.connection_to(broker, f"klog-controller-{peers.broker_id}", timeout_ms)

    def answered(event: ResponseReceived) -> None:
        controller.put(event)

    controller = Controller(
        lambda: controller_settings(peers.broker_id, peers.listener, config()),
        store,
        BrokerChannels(connect, answered, on_taken=times.request_taken),
        reregister,
        clock_ms,
        time.monotonic_ns,
        times,
    )
    return controller
