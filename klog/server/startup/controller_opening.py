"""Makes the controller inside a broker, with its channels to all brokers."""

from __future__ import annotations

import time
from collections.abc import Callable

from klog.config.broker import BrokerConfig
from klog.controller.events import ResponseReceived
from klog.controller.runner import Controller
from klog.metadata.store import MetadataStore
from klog.metadata.values import BrokerRegistration
from klog.server.peers.broker_channel import BrokerAccess, ControlChannel
from klog.server.peers.broker_channels import BrokerChannels
from klog.server.peers.controller_times import ControllerTimes
from klog.server.startup.settings import controller_settings


def open_controller(
    config: Callable[[], BrokerConfig],
    broker_id: int,
    inter_broker: str,
    store: MetadataStore,
    reregister: Callable[[], None],
    clock_ms: Callable[[], int],
    times: ControllerTimes,
    access: BrokerAccess,
) -> Controller:
    """The controller of a broker, not started.

    `config` gives the present configs. `inter_broker` is the listener between brokers, and `access` how to
    TLS context in force there.
    """
    timeout_ms = config().number("controller.socket.timeout.ms")

    def connect(broker: BrokerRegistration) -> ControlChannel:
        name = f"klog-controller-{broker_id}"
        return ControlChannel(broker, inter_broker, client_id=name, timeout_ms=timeout_ms, access=access)

    def answered(event: ResponseReceived) -> None:
        controller.put(event)

    controller = Controller(
        lambda: controller_settings(broker_id, inter_broker, config()),
        store,
        BrokerChannels(connect, answered, on_taken=times.request_taken),
        reregister,
        clock_ms,
        time.monotonic_ns,
        times,
    )
    return controller
