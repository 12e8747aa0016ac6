"""All metrics of a broker, from before its start until after its end.

While the broker starts and stops there are only its state and the metrics of the process.
"""

from __future__ import annotations

import os
import platform
import resource
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, NamedTuple

from klog.coordinator.groups.services import GroupCounts
from klog.formats.constants import INT64_MAX
from klog.formats.names import TopicPartition
from klog.metadata.store import SessionState
from klog.server.metrics.controller import ControllerSnapshot, controller_metrics
from klog.server.metrics.coordinators import group_metrics, transaction_metrics
from klog.server.metrics.exposition import Metric, Sample, counter, gauge, gauges, render
from klog.server.metrics.fetchers import fetch_counts, fetcher_metrics
from klog.server.metrics.logs import cleaner_metrics, directory_metrics, log_metrics
from klog.server.metrics.quotas import quota_metrics
from klog.server.metrics.recent import Recent
from klog.server.metrics.replicas import replica_metrics
from klog.server.metrics.requests import TimesByName, request_metrics, request_times
from klog.server.metrics.traffic import traffic_metrics
from klog.server.startup.broker_state import BrokerState
from klog.storage.log.scheduler import monotonic_ms

if TYPE_CHECKING:
    from klog.server.startup.broker import Broker


class _Snapshot(NamedTuple):
    """The values from which rates and quantiles are computed."""

    waited_s: tuple[float, float]  # of network threads and I/O threads
    processors_waited_s: Mapping[str, float]  # by network thread
    times: TimesByName
    controller: ControllerSnapshot
    groups: GroupCounts
    fetches: Mapping[str, int]  # by thread that copies from a leader


class BrokerMetrics:
    """Created before the broker, so that its start can be observed; `attach` the broker once it runs.

    `pause` lets other threads run.
    """

    def __init__(
        self,
        clock_s: Callable[[], float] = time.monotonic,
        pause: Callable[[], None] = lambda: time.sleep(0),
    ) -> None:
        self._clock_s = clock_s
        self._pause = pause
        self._started_s = time.time()
        self._build = build_info()
        self._state = BrokerState.NOT_RUNNING
        self._session = SessionCounts()
        self._attached: tuple[Broker, Recent[_Snapshot]] | None = None

    def state_changed(self, state: BrokerState) -> None:
        """The broker is in another state."""
        self._state = state

    def attach(self, broker: Broker) -> None:
        """Use the metrics of `broker` from now on."""
        if broker.uses_zookeeper:
            broker.store.add_session_listener(self._session.changed)
        self._attached = broker, Recent(self._clock_s, _snapshot(broker))

    def text(self) -> Iterator[str]:
        """The exposition text in pieces. Other threads can run between them."""
        return render(self.metrics())

    def metrics(self) -> Iterator[Metric]:
        """All metrics of now."""
        yield gauge("kafka_server_kafkaserver_brokerstate", "3 is running (BrokerState)", self._state)
        yield self._build
        yield from process_metrics(self._started_s)
        if self._attached is not None and self._state is BrokerState.RUNNING:
            yield from self._running(*self._attached)

    def _running(self, broker: Broker, recent: Recent[_Snapshot]) -> Iterator[Metric]:
        now = _snapshot(broker)
        seconds, before = recent.compare(now)
        yield from request_metrics(broker.counters, now.times, before.times)
        yield from quota_metrics(broker.client_quotas, monotonic_ms())
        yield from _network_metrics(broker, now, before, seconds)
        yield from self._partition_metrics(broker)
        yield from fetcher_metrics(broker.fetchers, before.fetches, seconds, self._pause)
        yield from controller_metrics(
            broker.controller, broker.controller_times, now.controller, before.controller
        )
        yield from group_metrics(
            broker.groups, partial(_log_end, broker), now.groups, before.groups, seconds, self._pause
        )
        yield from transaction_metrics(broker.transactions, self._pause)
        if broker.uses_zookeeper:
            yield from self._session.metrics()
        yield from _waiting_metrics(broker)
        online, offline = broker.logs.online, tuple(broker.logs.offline)
        yield from directory_metrics(online, offline)
        yield from cleaner_metrics(broker.cleaner, online)
        yield from log_metrics(broker.logs.logs())

    def _partition_metrics(self, broker: Broker) -> Iterator[Metric]:
        partitions = list(broker.replicas.partitions.values())
        hosted = {partition.topic_partition.topic for partition in partitions}
        yield from traffic_metrics(*broker.topic_stats.read(hosted))
        offline, counts = len(broker.replicas.offline), broker.isr_changes.driver.counts
        yield from replica_metrics(partitions, offline, counts, self._pause)


def _log_end(broker: Broker, key: tuple[str, int]) -> int | None:
    partition = broker.replicas.partitions.get(TopicPartition(*key))
    if partition is None or not partition.state.is_leader:
        return None
    return partition.log.high_watermark


def _snapshot(broker: Broker) -> _Snapshot:
    return _Snapshot(
        broker.network.waited_s,
        {name: each.waited_s for name, each in broker.network.processors.items()},
        request_times(broker.counters),
        ControllerSnapshot.of(broker.controller_times),
        replace(broker.groups.services.counts),
        fetch_counts(broker.fetchers),
    )


def _network_metrics(broker: Broker, now: _Snapshot, before: _Snapshot, seconds: float) -> Iterator[Metric]:
    network = broker.network
    # The usual rules of the JMX exporter use the first name, those of Confluent's dashboards the second.
    for name in ("socket_server_metrics", "socketservermetrics"):
        yield gauges(
            f"kafka_server_{name}_connection_count", "open connections", "listener", network.connection_counts
        )
    accepted, by_listener = network.counts.rates()
    prefix = "kafka_server_socket_server_metrics"
    yield gauges(f"{prefix}_connection_accept_rate", "connections a second", "listener", by_listener)
    yield gauge(f"{prefix}_broker_connection_accept_rate", "of all listeners that are limited", accepted)
    by_rate, by_address = network.counts.throttle_times_ms()
    for name, times_ms in (("connection", by_rate), ("ip_connection", by_address)):
        yield gauges(f"{prefix}_{name}_accept_throttle_time", "ms, of those that wait", "listener", times_ms)
    yield gauge(
        "kafka_network_requestchannel_requestqueuesize",
        "requests that wait for an I/O thread",
        network.queued_requests,
    )
    memory = network.memory
    left, used = INT64_MAX, 0
    if memory is not None:
        left = memory.available_bytes
        used = memory.size_bytes - left
    prefix = "kafka_network_socketserver_memorypool"
    yield gauge(f"{prefix}available", "bytes left for requests", left)
    yield gauge(f"{prefix}used", "bytes that requests have taken", used)
    network_idle, io_idle = (
        idle_share(waited_s - waited_before_s, seconds * threads)
        for waited_s, waited_before_s, threads in zip(
            now.waited_s, before.waited_s, network.waiting_thread_counts, strict=True
        )
    )
    for name, kind, idle, waited_s in (
        ("kafka_network_socketserver_networkprocessor", "network", network_idle, now.waited_s[0]),
        ("kafka_server_kafkarequesthandlerpool_requesthandler", "I/O", io_idle, now.waited_s[1]),
    ):
        yield gauge(
            f"{name}avgidle_percent", f"share of time that {kind} threads wait for work, 0 to 1", idle
        )
        yield counter(f"{name}idle_seconds_total", f"seconds that {kind} threads have waited", waited_s)
    yield gauges(
        "kafka_network_processor_idle_percent",
        "share of time that a network thread waits for work, 0 to 1",
        "networkProcessor",
        {
            name: idle_share(waited_s - before.processors_waited_s.get(name, 0.0), seconds)
            for name, waited_s in now.processors_waited_s.items()
        },
    )
    yield gauges(
        "kafka_network_requestchannel_responsequeuesize",
        "answers of other threads that wait for a network thread",
        "processor",
        {name: each.queued_answers for name, each in network.processors.items()},
    )


def idle_share(waited_s: float, possible_s: float) -> float:
    """The share of the time that threads have waited; 1.0 before any time has passed."""
    return min(max(waited_s / possible_s, 0.0), 1.0) if possible_s > 0 else 1.0


def _waiting_metrics(broker: Broker) -> Iterator[Metric]:
    of = broker.purgatories
    purgatories = (of.produce, of.fetch, of.delete_records, of.topics, of.elections)
    prefix = "kafka_server_delayedoperationpurgatory_"
    watched = {each.name: each.watched for each in purgatories}
    what = "watched operations, completed ones not swept yet included"
    yield gauges(f"{prefix}purgatorysize", what, "delayedOperation", watched)
    waiting = {each.name: each.waiting for each in purgatories}
    yield gauges(f"{prefix}numdelayedoperations", "requests that wait", "delayedOperation", waiting)
    sessions = broker.sessions
    prefix = "kafka_server_fetchsessioncache_"
    yield gauge(f"{prefix}numincrementalfetchsessions", "fetch sessions", len(sessions))
    yield gauge(
        f"{prefix}numincrementalfetchpartitionscached", "partitions in them", sessions.cached_partitions
    )
    yield counter(
        f"{prefix}incrementalfetchsessionevictions_total", "sessions evicted for others", sessions.evictions
    )


# -- Metrics of the process, under the names of Prometheus' own clients, and of the build --------------------

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_STATM: Final = "/proc/self/statm"
_DESCRIPTORS: Final = "/proc/self/fd"


def build_info() -> Metric:
    """The versions of klog and Python."""
    labels = {"version": version("klog"), "python": platform.python_version()}
    return Metric("klog_build_info", "gauge", "what runs here", (Sample(labels, 1),))


def process_metrics(start_time_s: float) -> Iterator[Metric]:
    """CPU, memory, descriptors and threads. Metrics that need /proc are left out if there is none."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    yield counter("process_cpu_seconds_total", "CPU seconds of this process", used.ru_utime + used.ru_stime)
    yield gauge("process_start_time_seconds", "when it started, since the epoch", start_time_s)
    yield gauge("process_max_fds", "how many it may have open", resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    yield gauge("process_threads", "threads of Python", threading.active_count())
    if os.path.exists(_STATM):
        with open(_STATM, encoding="ascii") as statm:
            virtual, resident = (int(pages) * _PAGE_BYTES for pages in statm.read().split()[:2])
        yield gauge("process_virtual_memory_bytes", "virtual memory", virtual)
        yield gauge("process_resident_memory_bytes", "resident memory", resident)
        yield gauge("process_open_fds", "open file descriptors", len(os.listdir(_DESCRIPTORS)))


# -- Metrics of the session with ZooKeeper: Kafka's `kafka.server:type=SessionExpireListener` ----------------

_PREFIX: Final = "kafka_server_sessionexpirelistener_"
_NAMES: Final = {
    SessionState.CONNECTED: ("CONNECTED", "zookeepersyncconnects", "times that it connected"),
    SessionState.SUSPENDED: ("CONNECTING", "zookeeperdisconnects", "times that it was disconnected"),
    SessionState.EXPIRED: ("EXPIRED", "zookeeperexpires", "times that it expired"),
}


class SessionCounts:
    """Counts the states of a session. `changed` is its session listener."""

    def __init__(self) -> None:
        self._state = SessionState.CONNECTED
        self._times = dict.fromkeys(SessionState, 0)

    def changed(self, state: SessionState) -> None:
        """The session is in another state."""
        self._state = state
        self._times[state] += 1

    def metrics(self) -> Iterator[Metric]:
        """The present state, as 1 of the three, and how often each has occurred."""
        states = {name: state is self._state for state, (name, _, _) in _NAMES.items()}
        what = "1 for the present state of the session with ZooKeeper"
        yield gauges(f"{_PREFIX}zookeepersessionstate", what, "state", states)
        for state, (_, name, help_text) in _NAMES.items():
            yield counter(f"{_PREFIX}{name}_total", help_text, self._times[state])
