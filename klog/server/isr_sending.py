"""Runs the changes of ISRs that this broker proposes: a thread, and the timer that looks for laggards.

`IsrChanges` decides what is sent and what answers mean. A `Send` carries one request: `via_controller` sends
AlterPartition, `isr_store` writes the metadata tree itself.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.replication.isr_changes import IsrAnswers, IsrChanges, IsrOutcome, IsrRequest, check_isr
from klog.replication.purgatory import Timer
from klog.replication.replica_manager import ReplicaManager
from klog.replication.timing_wheel import TimedCall
from klog.server.controller_channel import ToController
from klog.server.isr_messages import alter_partition_answers, alter_partition_request
from klog.server.transactions.broker_messages import known_error
from klog.storage.worker import Worker

logger = logging.getLogger(__name__)

Reply = Callable[[IsrAnswers | None], object]
"""Is given the answers to a request; None if it has failed as a whole, and is to be sent again."""

Send = Callable[[IsrRequest, Reply], object]
"""Sends a request, and calls the reply once, from any thread."""


@dataclass(slots=True)
class IsrCounts:
    """What has become of proposals since the start."""

    expands: int = 0
    shrinks: int = 0
    failures: int = 0

    def add(self, outcome: IsrOutcome) -> None:
        """Count what the answers to one request have done."""
        self.expands += sum(bool(change.joined) for change in outcome.changes)
        self.shrinks += sum(bool(change.left) for change in outcome.changes)
        self.failures += outcome.failures


class IsrSending:
    """The ISR changes of a broker. `propose` and `check` are safe for threads.

    `timer_ms` is the clock of `timer`.
    """

    def __init__(
        self, replicas: ReplicaManager, send: Send, timer: Timer, timer_ms: Callable[[], int]
    ) -> None:
        self._replicas = replicas
        self._send = send
        self._timer = timer
        self._timer_ms = timer_ms
        self._changes = IsrChanges(replicas)
        self._replies: deque[tuple[IsrRequest, IsrAnswers | None]] = deque()
        self.counts = IsrCounts()
        self._stopped = False
        self._worker = Worker("klog-isr-changes", self._work)
        self._worker.start()
        self._checker: Worker | None = None

    def propose(self, key: TopicPartition) -> None:
        """A partition proposes another ISR; it may be locked."""
        self._changes.propose(key)
        self._worker.wake()

    def check(self) -> None:
        """Propose to remove the followers that lag, in all partitions that this broker leads."""
        check_isr(self._replicas, self._timer_ms())

    def check_every(self, period_ms: int) -> None:
        """`check` now and then, on a thread of its own: flushes to a slow disk must not hold it up."""
        self._checker = Worker("klog-isr-check", self.check)
        self._checker.start()
        self._check_now(period_ms)

    def _check_now(self, period_ms: int) -> None:
        checker = self._checker
        if checker is not None and not self._stopped:
            checker.wake()
            due_ms = self._timer_ms() + period_ms
            self._timer.add(TimedCall(due_ms, lambda: self._check_now(period_ms)))

    def stop(self) -> None:
        """End the threads. What is not answered stays as the controller has it."""
        self._stopped = True
        workers = [self._worker] if self._checker is None else [self._checker, self._worker]
        for worker in workers:
            worker.stop()
        for worker in workers:
            worker.join(1)

    def _work(self) -> None:
        while self._replies:
            self._take(*self._replies.popleft())
        now_ms = self._timer_ms()
        request = self._changes.next_request(now_ms)
        if request is not None:
            self._send(request, lambda answers: self._answered(request, answers))
            return
        idle_ms = self._changes.idle_ms(now_ms)
        if idle_ms is not None:
            self._timer.add(TimedCall(now_ms + idle_ms, self._worker.wake))

    def _answered(self, request: IsrRequest, answers: IsrAnswers | None) -> None:
        self._replies.append((request, answers))
        self._worker.wake()

    def _take(self, request: IsrRequest, answers: IsrAnswers | None) -> None:
        if answers is None:
            self._changes.failed(request, self._timer_ms())
            return
        outcome = self._changes.answered(request, answers)
        self.counts.add(outcome)
        for key, joined, left in outcome.changes:
            partition = self._replicas.partitions.get(key)
            if partition is not None:
                state = partition.state
                logger.info(
                    "%s: the in-sync replicas are %s (joined: %s, left: %s), partition epoch %d",
                    key,
                    list(state.isr.committed),
                    sorted(joined) or "none",
                    sorted(left) or "none",
                    state.partition_epoch,
                )
            self._replicas.isr_changed(key)


def via_controller(
    to_controller: ToController,
    broker_id: int,
    broker_epoch: Callable[[], int],
    topic_id: Callable[[TopicPartition], UUID | None],
) -> Send:
    """Sends AlterPartition to the controller. `topic_id` gives the id of a partition's topic."""
    failing = _Failing()

    def send(request: IsrRequest, reply: Reply) -> None:
        found = {key.topic: topic_id(key) for key in request.proposals}
        ids = {topic: each for topic, each in found.items() if each is not None}

        def build(version: int) -> Entity:
            return alter_partition_request(version, broker_id, broker_epoch(), request.proposals, ids)

        def answered(answer: Entity | KlogError) -> None:
            error = answer if isinstance(answer, KlogError) else known_error(answer.error_code)
            if failing.note(error):
                reply(None)
            else:
                reply(_unnamed(request.proposals, ids) | alter_partition_answers(answer, ids))

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

    def note(self, error: KlogError | ErrorCode) -> bool:
        """Whether there is an error."""
        text = "" if error == ErrorCode.NONE else error.name if isinstance(error, ErrorCode) else str(error)
        if text and text != self._last:
            logger.info("the controller has refused AlterPartition, which is sent again: %s", text)
        self._last = text
        return bool(text)
