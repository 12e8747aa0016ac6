"""Asks the controller to move partitions between brokers, and which moves are running.

Rules: KIP-455. A request states where replicas are to be; the same request again changes nothing. So both
requests are sent again after a lost connection, and to the next controller if the controller changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from klog.client.cluster import Cluster
from klog.client.controller import ask_controller
from klog.client.errors import RefusedError
from klog.client.requests import accepted, by_partition, by_topic, refusal
from klog.formats.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity, Value
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import ChannelError


class RunningReassignment(NamedTuple):
    """A partition whose replicas are being moved. `replicas` has old and new ones, the target's first."""

    partition: TopicPartition
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas when all is done."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)


def list_reassignments(cluster: Cluster) -> list[RunningReassignment]:
    """The reassignments that run, sorted. Raises ClientError, ChannelError."""
    answer = _asked(cluster, ApiKey.LIST_PARTITION_REASSIGNMENTS, None)
    return sorted(
        RunningReassignment(
            partition,
            tuple(map(int, part.replicas)),
            tuple(map(int, part.adding_replicas)),
            tuple(map(int, part.removing_replicas)),
        )
        for partition, part in by_partition(answer.topics)
    )


def alter_reassignments(
    cluster: Cluster, targets: Mapping[TopicPartition, Sequence[int] | None]
) -> dict[TopicPartition, RefusedError | None]:
    """Begin to move partitions to these brokers; None cancels a running move.

    Returns None for each partition that was accepted, else the error: the controller decides for each on its
    own. Raises ClientError if it refuses all, ChannelError; then it may have accepted them.
    """
    topics = by_topic(
        sorted(targets),
        lambda partition: {"partition_index": partition.partition, "replicas": targets[partition]},
    )
    answer = _asked(cluster, ApiKey.ALTER_PARTITION_REASSIGNMENTS, topics)
    outcomes: dict[TopicPartition, RefusedError | None] = {
        partition: RefusedError(str(partition), ErrorCode.UNKNOWN_SERVER_ERROR) for partition in targets
    }
    answered = by_partition(answer.responses)
    return outcomes | {partition: refusal(part, str(partition)) for partition, part in answered}


def _asked(cluster: Cluster, api_key: ApiKey, topics: Value) -> Entity:
    """The controller's answer, asked for again after a lost connection.

    Raises ClientError if all is refused, ChannelError.
    """
    values = {"timeout": cluster.timeout_ms, "topics": topics}
    retry = cluster.new_retry()
    while True:
        try:
            return accepted(ask_controller(cluster, api_key, values), "reassignments")
        except ChannelError as error:
            retry.failed(error)
