"""Runs the changes of ISRs that this broker proposes: a thread sends them, and another one finds laggards.

`IsrDriver` decides what is sent and what answers mean; `via_controller` sends AlterPartition.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias
from uuid import UUID

from klog.drivers.isr_changes import IsrDriver
from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition
from klog.jobs.worker import Worker
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity, Value
from klog.protocol.error_codes import ErrorCode, error_code
from klog.protocol.messages import build, request_class
from klog.replication.alter_partition import IsrAccepted, IsrProposal
from klog.replication.isr_changes import IsrAnswers, IsrRequest, check_isr
from klog.replication.replica_manager import ReplicaManager
from klog.server.peers.controller_channel import ToController
from klog.server.threads.driver_thread import DriverThread, Reply, SendRequest

_log = logging.getLogger(__name__)

_STOP_S: Final = 1.0

Send: TypeAlias = SendRequest[IsrRequest, IsrAnswers]


class IsrSending:
    """The ISR changes of a broker. `check` and `propose` of the `driver` are safe for threads.

    `clock_ms` is that of the replicas, which is never set back.
    """

    def __init__(self, replicas: ReplicaManager, send: Send, clock_ms: Callable[[], int]) -> None:
        self._replicas = replicas
        self._clock_ms = clock_ms
        self.driver = IsrDriver(replicas)
        self._thread = DriverThread("klog-isr-changes", self.driver, send, clock_ms)
        self._thread.start()
        self._checker: Worker | None = None

    def check(self) -> None:
        """Propose to remove the followers that lag, in all partitions that this broker leads."""
        check_isr(self._replicas, self._clock_ms())

    def check_every(self, period_ms: int) -> None:
        """`check` now and then, on a thread of its own: flushes to a slow disk must not hold it up."""
        period_s = period_ms / 1000

        def check() -> float:
            self.check()
            return period_s

        self._checker = Worker("klog-isr-check", check, retry_s=period_s)
        self._checker.start()
        self._checker.wake()

    def stop(self) -> None:
        """End the threads. What is not answered stays as the controller has it."""
        if self._checker is not None:
            self._checker.stop()
        self._thread.stop()
        if self._checker is not None:
            self._checker.join(_STOP_S)
        self._thread.worker.join(_STOP_S)


def via_controller(
    to_controller: ToController,
    broker_id: int,
    broker_epoch: Callable[[], int],
    topic_id: Callable[[TopicPartition], UUID | None],
) -> Send:
    """Sends AlterPartition to the controller. `topic_id` gives the id of a partition's topic."""
    failing = _Failing()

    def send(request: IsrRequest, reply: Reply[IsrAnswers]) -> None:
        found = {key.topic: topic_id(key) for key in request.proposals}
        ids = {topic: each for topic, each in found.items() if each is not None}

        def build(version: int) -> Entity:
            return alter_partition_request(version, broker_id, broker_epoch(), request.proposals, ids)

        def answered(answer: Entity | KlogError) -> None:
            error = failing.note(answer if isinstance(answer, KlogError) else error_code(answer.error_code))
            if error is None:
                reply(_unnamed(request.proposals, ids) | alter_partition_answers(answer, ids))
            else:
                reply(error)

        to_controller.send(ApiKey.ALTER_PARTITION, build, answered)

    return send


def _unnamed(
    proposals: Mapping[TopicPartition, object], ids: Mapping[str, UUID]
) -> dict[TopicPartition, ErrorCode]:
    """The answers for topics without an id, which cannot be sent: they wait for a LeaderAndIsr with one."""
    return {key: ErrorCode.UNKNOWN_TOPIC_ID for key in proposals if key.topic not in ids}


class _Failing:
    """Logs the first of several equal errors in a row."""

    def __init__(self) -> None:
        self._last = ""

    def note(self, error: KlogError | ErrorCode) -> KlogError | None:
        """The error, if there is one."""
        text = "" if error == ErrorCode.NONE else error.name if isinstance(error, ErrorCode) else str(error)
        if text and text != self._last:
            _log.info("the controller has refused AlterPartition, which is sent again: %s", text)
        self._last = text
        return error if isinstance(error, KlogError) else KlogError(text) if text else None


# AlterPartition as a broker sends it: proposals as a request, and what the response says of each partition.
# Rules: KIP-497; KIP-704 (leaders report that they have recovered), KIP-841, KIP-903 (the epochs of the ISR's
# members, which a controller on ZooKeeper's tree does not compare: they are unknown).

_RECOVERED: Final = 0


def alter_partition_request(
    version: int,
    broker_id: int,
    broker_epoch: int,
    proposals: Mapping[TopicPartition, IsrProposal],
    topic_ids: Mapping[str, UUID],
) -> Entity:
    """The request for these proposals. Topics without an id are left out, because no version names them."""
    by_topic: dict[UUID, list[Mapping[str, Value]]] = {}
    for (topic, number), proposal in proposals.items():
        topic_id = topic_ids.get(topic)
        if topic_id is not None:
            by_topic.setdefault(topic_id, []).append(_partition(number, proposal))
    return build(
        request_class(ApiKey.ALTER_PARTITION, version),
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        topics=[
            {"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in by_topic.items()
        ],
    )


def _partition(number: int, proposal: IsrProposal) -> Mapping[str, Value]:
    return {
        "partition_index": number,
        "leader_epoch": proposal.leader_epoch,
        "new_isr": proposal.isr,
        "new_isr_with_epochs": [{"broker_id": each} for each in proposal.isr],
        "leader_recovery_state": _RECOVERED,
        "partition_epoch": proposal.partition_epoch,
    }


def alter_partition_answers(
    response: Entity, topic_ids: Mapping[str, UUID]
) -> dict[TopicPartition, IsrAccepted | ErrorCode]:
    """What a response without an error for the whole says of each partition."""
    names = {topic_id: topic for topic, topic_id in topic_ids.items()}
    return {
        TopicPartition(names[topic.topic_id], each.partition_index): _answer(each)
        for topic in response.topics
        if topic.topic_id in names
        for each in topic.partitions
    }


def _answer(partition: Entity) -> IsrAccepted | ErrorCode:
    error = error_code(partition.error_code)
    if error:
        return error
    return IsrAccepted(partition.leader_epoch, partition.partition_epoch, tuple(partition.isr))
