"""Metrics of the controller: the gauges of the active one, and the times of this broker's.

Kafka's `kafka.controller:type=KafkaController`, `ControllerStats` and `ControllerEventManager`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from klog.controller.observer import ControllerState
from klog.controller.runner import Controller
from klog.server.counters.request_times import Timing
from klog.server.metrics.exposition import Metric, Sample, counter, gauge, gauges
from klog.server.metrics.times import Times, summary
from klog.server.peers.controller_times import ControllerTimes

_CONTROLLER: Final = "kafka_controller_kafkacontroller_"
_STATS: Final = "kafka_controller_controllerstats_"
_CHANNELS: Final = "kafka_controller_controllerchannelmanager_"
_EVENTS: Final = "kafka_controller_controllereventmanager_eventqueue"

# Kafka's ControllerState.rateAndTimeMetricName. Most names are that of the state; two states have none.
_OTHER_NAMES: Final[Mapping[ControllerState, str]] = {
    ControllerState.BROKER_CHANGE: "leaderelection",
    ControllerState.ALTER_PARTITION_REASSIGNMENT: "partitionreassignment",
}
_UNTIMED: Final = (ControllerState.IDLE, ControllerState.UPDATE_METADATA_RESPONSE_RECEIVED)
_NAMES: Final[Mapping[ControllerState, str]] = {
    state: _OTHER_NAMES.get(state, state.name.lower().replace("_", ""))
    for state in ControllerState
    if state not in _UNTIMED
}
_COUNTS: Final = {
    "ActiveBrokerCount": "live brokers",
    "GlobalTopicCount": "topics of the cluster",
    "GlobalPartitionCount": "partitions of the cluster",
    "OfflinePartitionsCount": "partitions without a leader",
    "PreferredReplicaImbalanceCount": "partitions that their preferred replica does not lead",
    "TopicsToDeleteCount": "topics that are being deleted",
    "ReplicasToDeleteCount": "replicas of theirs that are not deleted yet",
    "TopicsIneligibleToDeleteCount": "topics whose deletion waits for a broker",
    "ReplicasIneligibleToDeleteCount": "replicas whose deletion has failed",
}


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
    counts = dict(sorted(queued.items()))
    yield gauges(f"{_CHANNELS}queuesize", "requests that wait for one broker", "broker_id", counts)
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
    active, state = "1 if this broker is the controller", "what it does (ControllerState), 0 is idle"
    yield gauge(f"{_CONTROLLER}activecontrollercount", active, controller.is_active)
    yield gauge(f"{_CONTROLLER}controllerstate", state, controller.state)
    for name, help_text in _COUNTS.items():
        yield gauge(f"{_CONTROLLER}{name.lower()}", help_text, counts.get(name, 0))
