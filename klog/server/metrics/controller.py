"""Metrics of the controller: the gauges of the active one, and the times of this broker's.

Kafka's `kafka.controller:type=KafkaController`, `ControllerStats` and `ControllerEventManager`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from klog.controller.observer import ControllerState
from klog.controller.runner import Controller
from klog.server.counters.request_times import Timing
from klog.server.metrics.exposition import Metric, Sample, counter, gauge
from klog.server.metrics.times import Times, summary
from klog.server.peers.controller_times import ControllerTimes

_STATS: Final = "kafka_controller_controllerstats_"
_CHANNELS: Final = "kafka_controller_controllerchannelmanager_"
_EVENTS: Final = "kafka_controller_controllereventmanager_eventqueue"

# Kafka's ControllerState.rateAndTimeMetricName. Most names are that of the state; two states have none.
_OTHER_NAMES: Final[Mapping[ControllerState, str]] = MappingProxyType(
    {
        ControllerState.BROKER_CHANGE: "leaderelection",
        ControllerState.ALTER_PARTITION_REASSIGNMENT: "partitionreassignment",
    }
)
_UNTIMED: Final = (ControllerState.IDLE, ControllerState.UPDATE_METADATA_RESPONSE_RECEIVED)
_NAMES: Final[Mapping[ControllerState, str]] = MappingProxyType(
    {
        state: _OTHER_NAMES.get(state, state.name.lower().replace("_", ""))
        for state in ControllerState
        if state not in _UNTIMED
    }
)


class ControllerSnapshot(NamedTuple):
    """The times at one moment."""

    waits: Times
    by_state: Mapping[ControllerState, Times]
    requests: Mapping[int, Times]

    @classmethod
    def of(cls, times: ControllerTimes) -> ControllerSnapshot:
        """What has been counted so far."""
        return cls(
            Times.of(times.waits),
            {state: Times.of(times.by_state[state]) for state in _NAMES},
            {broker_id: Times.of(timing) for broker_id, timing in dict(times.requests).items()},
        )


def controller_metrics(
    controller: Controller, times: ControllerTimes, now: ControllerSnapshot, before: ControllerSnapshot
) -> Iterator[Metric]:
    """The metrics. `before` holds the times at the start of the last minute."""
    yield from _gauges(controller)
    yield gauge(f"{_EVENTS}size", "events that wait for the controller's thread", controller.queued_events)
    yield Metric(
        f"{_EVENTS}timems",
        "summary",
        "milliseconds that events have waited",
        summary({}, now.waits, before.waits),
    )
    queued = controller.queued_requests()
    yield gauge(f"{_CHANNELS}totalqueuesize", "requests that wait for brokers", sum(queued.values()))
    yield Metric(
        f"{_CHANNELS}queuesize",
        "gauge",
        "requests that wait for one broker",
        [Sample({"broker_id": broker_id}, count) for broker_id, count in sorted(queued.items())],
    )
    yield Metric(
        f"{_CHANNELS}requestrateandqueuetimems",
        "summary",
        "milliseconds that requests to one broker have waited",
        [sample for broker_id in sorted(queued) for sample in _request_waits(broker_id, now, before)],
    )
    yield counter(
        f"{_STATS}uncleanleaderelections_total",
        "partitions given to a leader that was not in sync",
        times.unclean_elections,
    )
    for state, name in _NAMES.items():
        yield Metric(
            f"{_STATS}{name}rateandtimems",
            "summary",
            f"milliseconds of what the controller did in state {state.value}",
            summary({}, now.by_state[state], before.by_state[state]),
        )


def _request_waits(broker_id: int, now: ControllerSnapshot, before: ControllerSnapshot) -> Iterator[Sample]:
    none = Times.of(Timing())
    labels = {"broker_id": broker_id}
    return summary(labels, now.requests.get(broker_id, none), before.requests.get(broker_id, none))


def _gauges(controller: Controller) -> Iterator[Metric]:
    counts = controller.gauges()
    prefix = "kafka_controller_kafkacontroller_"
    for name, help_text, value in (
        ("activecontrollercount", "1 if this broker is the controller", controller.is_active),
        ("controllerstate", "what it does (ControllerState), 0 is idle", controller.state),
        ("activebrokercount", "live brokers", counts.active_brokers),
        ("globaltopiccount", "topics of the cluster", counts.topics),
        ("globalpartitioncount", "partitions of the cluster", counts.partitions),
        ("offlinepartitionscount", "partitions without a leader", counts.offline_partitions),
        (
            "preferredreplicaimbalancecount",
            "partitions that their preferred replica does not lead",
            counts.preferred_replica_imbalance,
        ),
        ("topicstodeletecount", "topics that are being deleted", counts.topics_to_delete),
        ("replicastodeletecount", "replicas of theirs that are not deleted yet", counts.replicas_to_delete),
        (
            "topicsineligibletodeletecount",
            "topics whose deletion waits for a broker",
            counts.topics_ineligible_to_delete,
        ),
        (
            "replicasineligibletodeletecount",
            "replicas whose deletion has failed",
            counts.replicas_ineligible_to_delete,
        ),
    ):
        yield gauge(f"{prefix}{name}", help_text, value)
