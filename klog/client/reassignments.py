"""Asks the controller to move partitions between brokers, and which moves are running.

Rules: KIP-455. A request states where replicas are to be; the same request again changes nothing. So both
requests are sent again after a lost connection, and to the next controller if the controller changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from klog.client.cluster import Cluster
from klog.client.consumer_protocol import partitions_by_topic
from klog.client.controller import Request, ask_controller
from klog.client.errors import RefusedError
from klog.formats.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode, error_code
from klog.protocol.errors import ChannelError
from klog.protocol.messages import build, request_class, request_struct


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


def list_reassignments(
    cluster: Cluster, partitions: Collection[TopicPartition] | None = None
) -> list[RunningReassignment]:
    """The reassignments that run, of these partitions or of all, sorted. Raises ClientError, ChannelError."""

    def request(version: int) -> Entity:
        topic = request_struct(
            ApiKey.LIST_PARTITION_REASSIGNMENTS, version, "ListPartitionReassignmentsTopics"
        )
        topics = None
        if partitions is not None:
            topics = tuple(
                build(topic, name=name, partition_indexes=tuple(numbers))
                for name, numbers in partitions_by_topic(sorted(set(partitions))).items()
            )
        return build(
            request_class(ApiKey.LIST_PARTITION_REASSIGNMENTS, version),
            timeout=timedelta(milliseconds=cluster.timeout_ms),
            topics=topics,
        )

    answer = _asked(cluster, ApiKey.LIST_PARTITION_REASSIGNMENTS, request, lambda answer: [answer.error_code])
    return sorted(
        RunningReassignment(
            TopicPartition(topic.name, int(part.partition_index)),
            tuple(map(int, part.replicas)),
            tuple(map(int, part.adding_replicas)),
            tuple(map(int, part.removing_replicas)),
        )
        for topic in answer.topics
        for part in topic.partitions
    )


def alter_reassignments(
    cluster: Cluster, targets: Mapping[TopicPartition, Sequence[int] | None]
) -> dict[TopicPartition, RefusedError | None]:
    """Begin to move partitions to these brokers; None cancels a running move.

    Returns None for each partition that was accepted, else the error: the controller decides for each on its
    own. Raises ClientError if it refuses all, ChannelError; then it may have accepted them.
    """

    def request(version: int) -> Entity:
        topic, part = (
            request_struct(ApiKey.ALTER_PARTITION_REASSIGNMENTS, version, name)
            for name in ("ReassignableTopic", "ReassignablePartition")
        )

        def replicas(name: str, number: int) -> tuple[int, ...] | None:
            target = targets[TopicPartition(name, number)]
            return None if target is None else tuple(target)

        return build(
            request_class(ApiKey.ALTER_PARTITION_REASSIGNMENTS, version),
            timeout=timedelta(milliseconds=cluster.timeout_ms),
            topics=tuple(
                build(
                    topic,
                    name=name,
                    partitions=tuple(
                        build(part, partition_index=number, replicas=replicas(name, number))
                        for number in numbers
                    ),
                )
                for name, numbers in partitions_by_topic(sorted(targets)).items()
            ),
        )

    def codes(answer: Entity) -> list[int]:
        return [
            answer.error_code,
            *(part.error_code for topic in answer.responses for part in topic.partitions),
        ]

    answer = _asked(cluster, ApiKey.ALTER_PARTITION_REASSIGNMENTS, request, codes)
    outcomes: dict[TopicPartition, RefusedError | None] = {
        partition: RefusedError(str(partition), ErrorCode.UNKNOWN_SERVER_ERROR) for partition in targets
    }
    for topic in answer.responses:
        for part in topic.partitions:
            partition, code = (
                TopicPartition(topic.name, int(part.partition_index)),
                error_code(part.error_code),
            )
            outcomes[partition] = (
                None
                if code is ErrorCode.NONE
                else RefusedError(str(partition), code, message=part.error_message)
            )
    return outcomes


def _asked(
    cluster: Cluster, api_key: ApiKey, request: Request, codes: Callable[[Entity], list[int]]
) -> Entity:
    """The controller's answer, asked for again after a lost connection.

    Raises ClientError if all is refused, ChannelError.
    """
    retry = cluster.new_retry()
    while True:
        try:
            answer = ask_controller(cluster, api_key, request, codes)
        except ChannelError as error:
            retry.failed(error)
            continue
        if answer.error_code != ErrorCode.NONE:
            raise RefusedError("reassignments", answer.error_code, message=answer.error_message)
        return answer
