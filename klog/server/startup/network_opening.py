"""Makes the network of a broker: the listeners, and the handlers of what they receive."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack

from klog.config.broker import BrokerConfig
from klog.server.handlers.answers import InBackground
from klog.server.handlers.dispatch import Dispatcher
from klog.server.handlers.refusing import read_only
from klog.server.handlers.request_charge import Charging
from klog.server.network import NetworkSettings, SocketServer, work_on
from klog.server.network.listeners import Listeners
from klog.server.startup.first_metadata import SERVED_BEFORE
from klog.server.startup.routes import HandlerServices, routes
from klog.server.startup.settings import network_settings, resolved
from klog.storage.log.scheduler import monotonic_ms


def open_network(
    parts: Callable[[InBackground, InBackground], HandlerServices],
    topic_creation: ThreadPoolExecutor,
    config: BrokerConfig,
    listeners: Listeners,
    closing: ExitStack,
    is_read_only: bool,
) -> tuple[SocketServer, NetworkSettings]:
    """The bound listeners, not started, and their settings.

    `parts` gives what the handlers work with, from what runs work in the background: answers, and the
    creation of topics. If it `is_read_only`, requests that write are refused.
    """
    answers = ThreadPoolExecutor(1, "klog-metadata-answers")
    closing.callback(answers.shutdown)
    closing.callback(topic_creation.shutdown, wait=False, cancel_futures=True)

    def background(worker: Executor) -> InBackground:
        return lambda request, work: worker.submit(work_on, request, work, dispatcher.failed)

    services = parts(background(answers), background(topic_creation))
    served = routes(services)
    if is_read_only:
        served = read_only(served)
    charging = Charging(services.client_quotas, time.perf_counter_ns, monotonic_ms)
    dispatcher = Dispatcher(served, services.counters, time.perf_counter_ns, charging=charging)
    settings = resolved(network_settings(config, listeners))
    network = SocketServer(
        listeners.bound,
        settings,
        dispatcher,
        clock_ms=monotonic_ms,
        served_before_open=SERVED_BEFORE,
        ip_limits=services.ip_limits,
    )
    closing.callback(network.stop)
    network.bind()
    return network, settings
