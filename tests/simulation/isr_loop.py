"""How a simulated broker changes ISRs: `IsrChanges` and the ISR timer, driven as their threads do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.controller.events import AlterPartition
from klog.formats.names import TopicPartition, encode_uuid
from klog.metadata.values import LeaderAndIsr, LeaderRecoveryState, TopicIdPartition
from klog.protocol.error_codes import ErrorCode
from klog.replication.alter_partition import IsrAccepted
from klog.replication.isr_changes import IsrChanges, IsrRequest, check_isr
from tests.simulation.scheduler import US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.broker import SimulatedBroker

MAX_LAG_MS = 3_000
_ALTER_PARTITION_VERSION = 3
_FIND_CONTROLLER_MS = 100

Outcome = LeaderAndIsr | ErrorCode


class IsrLoop:
    """Sends the proposals of a broker to the controller, one request at a time."""

    def __init__(self, broker: SimulatedBroker) -> None:
        self._broker = broker
        self._changes = IsrChanges(broker.replicas)
        self._is_armed = False
        broker.after(MAX_LAG_MS // 2 * US_PER_MS, self._check)

    def _check(self) -> None:
        check_isr(self._broker.replicas, self._broker.clock_ms())
        self._broker.after(MAX_LAG_MS // 2 * US_PER_MS, self._check)

    def propose(self, key: TopicPartition) -> None:
        """A partition proposes another ISR."""
        self._changes.propose(key)
        self._arm(0)

    def _arm(self, delay_ms: int) -> None:
        if not self._is_armed:
            self._is_armed = True
            self._broker.after(delay_ms * US_PER_MS, self._go_on)

    def _go_on(self) -> None:
        self._is_armed = False
        now_ms = self._broker.clock_ms()
        request = self._changes.next_request(now_ms)
        if request is not None:
            self._send(request)
            return
        wait_ms = self._changes.idle_ms(now_ms)
        if wait_ms is not None:
            self._arm(max(wait_ms, 1))

    def _send(self, request: IsrRequest) -> None:
        broker = self._broker
        controller_id = broker.cache.snapshot.controller_id
        controller = broker.world.brokers.get(-1 if controller_id is None else controller_id)
        if controller is None:
            broker.after(_FIND_CONTROLLER_MS * US_PER_MS, lambda: self._send(request))
            return
        ids: dict[TopicIdPartition, TopicPartition] = {}
        wanted: dict[TopicIdPartition, LeaderAndIsr] = {}
        for key, each in request.proposals.items():
            partition = broker.replicas.partitions.get(key)
            if partition is None or partition.topic_id is None:
                continue
            asked = TopicIdPartition(encode_uuid(partition.topic_id.bytes), key.partition)
            ids[asked] = key
            wanted[asked] = LeaderAndIsr(
                broker.broker_id,
                each.leader_epoch,
                each.isr,
                LeaderRecoveryState.RECOVERED,
                each.partition_epoch,
            )
        epoch = broker.epoch
        broker.world.network.request(
            broker.process,
            controller.process,
            lambda answer: controller.put(
                AlterPartition(broker.broker_id, epoch, wanted, _ALTER_PARTITION_VERSION, answer)
            ),
            lambda outcome: self._answered(request, ids, outcome),
            lambda: self._failed(request),
        )

    def _answered(
        self,
        request: IsrRequest,
        ids: dict[TopicIdPartition, TopicPartition],
        outcome: dict[TopicIdPartition, Outcome] | ErrorCode,
    ) -> None:
        if not isinstance(outcome, dict):
            self._failed(request)
            return
        answers = {
            ids[asked]: each
            if isinstance(each, ErrorCode)
            else IsrAccepted(each.leader_epoch, each.partition_epoch, each.isr)
            for asked, each in outcome.items()
        }
        done = self._changes.answered(request, answers)
        self._broker.world.counts["ISR changes"] += len(done.changes)
        for change in done.changes:
            self._broker.replicas.appended(change.partition, True)
        self._arm(0)

    def _failed(self, request: IsrRequest) -> None:
        self._changes.failed(request, self._broker.clock_ms())
        self._arm(1)
