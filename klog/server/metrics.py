"""Metrics for Prometheus, under the names that dashboards for Kafka know (those of the JMX exporter's rules).

Everything is read from what the rooms count anyway, when somebody asks; nothing is kept here. The text is
made in pieces, so that a broker with thousands of partitions is not held up by it.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from klog.protocol.apis import ApiKey
from klog.server.request_times import RequestCounters

if TYPE_CHECKING:
    from klog.server.broker import Broker

_RUNNING: Final = 3  # Kafka's BrokerState
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")

Labels = Mapping[str, str | int]


class Sample(NamedTuple):
    """One value of a metric."""

    labels: Labels
    value: float


class Metric(NamedTuple):
    """One metric with all its values; `kind` is Prometheus' (`counter`, `gauge`)."""

    name: str
    kind: str
    help: str
    samples: Iterable[Sample]


def render(metrics: Iterable[Metric]) -> Iterator[str]:
    """The exposition text, a piece a metric."""
    for metric in metrics:
        lines = [f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}\n"]
        lines += [f"{metric.name}{_labels(labels)} {_number(value)}\n" for labels, value in metric.samples]
        yield "".join(lines)


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(str(value))}"' for name, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _gauge(name: str, help_text: str, value: float) -> Metric:
    return Metric(name, "gauge", help_text, (Sample({}, value),))


def broker_metrics(broker: Broker) -> Iterator[Metric]:
    """All metrics of a running broker."""
    yield _gauge("kafka_server_kafkaserver_brokerstate", "3 is running", _RUNNING)
    yield from _replica_metrics(broker)
    yield from _controller_metrics(broker)
    yield from _request_metrics(broker.counters)
    yield from _network_metrics(broker)
    yield from _purgatory_metrics(broker)
    yield from _log_metrics(broker)
    yield from _process_metrics()


def _replica_metrics(broker: Broker) -> Iterator[Metric]:
    partitions = list(broker.replicas.partitions.values())
    leaders = [partition for partition in partitions if partition.is_leader]
    under = [partition for partition in leaders if len(partition.isr) < len(partition.replicas)]
    below = [partition for partition in leaders if len(partition.isr) < partition.min_in_sync_replicas]
    prefix = "kafka_server_replicamanager_"
    yield _gauge(f"{prefix}partitioncount", "replicas on this broker", len(partitions))
    yield _gauge(f"{prefix}leadercount", "partitions that this broker leads", len(leaders))
    yield _gauge(f"{prefix}underreplicatedpartitions", "led partitions that miss replicas", len(under))
    yield _gauge(f"{prefix}underminisrpartitioncount", "led partitions below min.insync.replicas", len(below))
    yield _gauge(f"{prefix}offlinereplicacount", "replicas on failed disks", len(broker.replicas.offline))


def _controller_metrics(broker: Broker) -> Iterator[Metric]:
    snapshot = broker.cache.snapshot
    active = broker.controller.is_active
    states = [state for partitions in snapshot.topics.values() for state in partitions.values()]
    offline = sum(state.leader < 0 for state in states) if active else 0
    prefix = "kafka_controller_kafkacontroller_"
    yield _gauge(f"{prefix}activecontrollercount", "whether this broker is the controller", active)
    yield _gauge(f"{prefix}offlinepartitionscount", "partitions without a leader", offline)
    yield _gauge(f"{prefix}globaltopiccount", "topics of the cluster", len(snapshot.topics) if active else 0)
    yield _gauge(f"{prefix}globalpartitioncount", "partitions of the cluster", len(states) if active else 0)


def _request_metrics(counters: RequestCounters) -> Iterator[Metric]:
    by_name = [(ApiKey(key).title, counter) for key, counter in counters.by_api.items()]
    prefix = "kafka_network_requestmetrics_"
    yield Metric(
        f"{prefix}requests_total",
        "counter",
        "requests handled",
        [Sample({"request": name}, counter.requests) for name, counter in by_name],
    )
    yield Metric(
        f"{prefix}errors_total",
        "counter",
        "requests whose handler failed",
        [Sample({"request": name}, counter.failures) for name, counter in by_name],
    )
    yield Metric(
        f"{prefix}localtimems_total",
        "counter",
        "milliseconds spent in handlers",
        [
            Sample({"request": name}, (counter.direct.sum_ns + counter.handlers.sum_ns) / 1e6)
            for name, counter in by_name
        ],
    )


def _network_metrics(broker: Broker) -> Iterator[Metric]:
    network_waited_s, io_waited_s = broker.network.waited_s
    yield _gauge(
        "kafka_server_socketservermetrics_connection_count",
        "open connections",
        broker.network.connection_count,
    )
    yield _gauge(
        "kafka_network_requestchannel_requestqueuesize", "requests that wait", broker.network.queued_requests
    )
    yield Metric(
        "kafka_network_socketserver_networkprocessoridle_seconds_total",
        "counter",
        "seconds that network threads have waited for work",
        (Sample({}, network_waited_s),),
    )
    yield Metric(
        "kafka_server_kafkarequesthandlerpool_requesthandleridle_seconds_total",
        "counter",
        "seconds that I/O threads have waited for work",
        (Sample({}, io_waited_s),),
    )


def _purgatory_metrics(broker: Broker) -> Iterator[Metric]:
    rooms = broker.waiting
    found = [
        (each.name, each.watched, each.waiting)
        for each in (rooms.produce, rooms.fetch, rooms.delete_records, rooms.topics, rooms.elections)
    ]
    prefix = "kafka_server_delayedoperationpurgatory_"
    yield Metric(
        f"{prefix}purgatorysize",
        "gauge",
        "watched operations, completed ones not swept yet included",
        [Sample({"delayedoperation": name}, watched) for name, watched, _ in found],
    )
    yield Metric(
        f"{prefix}numdelayedoperations",
        "gauge",
        "requests that wait",
        [Sample({"delayedoperation": name}, waiting) for name, _, waiting in found],
    )


def _log_metrics(broker: Broker) -> Iterator[Metric]:
    yield _gauge(
        "kafka_log_logmanager_offlinelogdirectorycount", "failed log directories", len(broker.logs.offline)
    )
    logs = broker.logs.logs()
    labels: list[Labels] = [
        {"topic": log.partition.topic, "partition": log.partition.partition} for log in logs
    ]
    for name, help_text, values in (
        ("logstartoffset", "first offset", [log.log_start_offset for log in logs]),
        ("logendoffset", "next offset", [log.log_end_offset for log in logs]),
        ("size", "bytes of all segments", [log.size_bytes for log in logs]),
    ):
        samples = [Sample(label, value) for label, value in zip(labels, values, strict=True)]
        yield Metric(f"kafka_log_log_{name}", "gauge", help_text, samples)


def _process_metrics() -> Iterator[Metric]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    yield Metric(
        "process_cpu_seconds_total",
        "counter",
        "CPU seconds of this process",
        (Sample({}, used.ru_utime + used.ru_stime),),
    )
    if os.path.exists("/proc/self/statm"):
        with open("/proc/self/statm", encoding="ascii") as statm:
            resident = int(statm.read().split()[1]) * _PAGE_BYTES
        yield _gauge("process_resident_memory_bytes", "resident memory", resident)
        yield _gauge("process_open_fds", "open file descriptors", len(os.listdir("/proc/self/fd")))
