"""How a simulated broker changes ISRs: `IsrDriver` and the ISR timer, with messages as values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.controller.events import AlterPartition
from klog.drivers.isr_changes import IsrDriver
from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition, encode_uuid
from klog.metadata.values import LeaderAndIsr, LeaderRecoveryState, TopicIdPartition
from klog.protocol.error_codes import ErrorCode
from klog.replication.alter_partition import IsrAccepted
from klog.replication.isr_changes import IsrRequest, check_isr
from tests.simulation.driver_loop import DriverLoop, Reply, ask
from tests.simulation.scheduler import US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.broker import SimulatedBroker

MAX_LAG_MS = 3_000
_ALTER_PARTITION_VERSION = 3
_FIND_CONTROLLER_MS = 100


class IsrLoop:
    """Sends the proposals of a broker to the controller."""

    def __init__(self, broker: SimulatedBroker) -> None:
        self._broker = broker
        driver = IsrDriver(broker.replicas)
        self.propose = driver.propose
        DriverLoop(broker, driver, self._send)
        broker.after(MAX_LAG_MS // 2 * US_PER_MS, self._check)

    def _check(self) -> None:
        check_isr(self._broker.replicas, self._broker.clock_ms())
        self._broker.after(MAX_LAG_MS // 2 * US_PER_MS, self._check)

    def _send(self, request: IsrRequest, reply: Reply) -> None:
        broker = self._broker
        controller_id = broker.cache.snapshot.controller_id
        controller = broker.world.brokers.get(-1 if controller_id is None else controller_id)
        if controller is None:
            broker.after(_FIND_CONTROLLER_MS * US_PER_MS, lambda: self._send(request, reply))
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

        def answered(outcome: Any) -> None:
            if isinstance(outcome, ErrorCode):
                reply(KlogError(outcome.name))
            elif isinstance(outcome, Exception):
                reply(outcome)
            else:
                answers = {ids[key]: _answer(each) for key, each in outcome.items()}
                broker.world.counts["ISR changes"] += sum(
                    isinstance(each, IsrAccepted) for each in answers.values()
                )
                reply(answers)

        ask(
            broker,
            controller,
            lambda answer: controller.put(
                AlterPartition(broker.broker_id, epoch, wanted, _ALTER_PARTITION_VERSION, answer)
            ),
            answered,
        )


def _answer(outcome: LeaderAndIsr | ErrorCode) -> IsrAccepted | ErrorCode:
    if isinstance(outcome, ErrorCode):
        return outcome
    return IsrAccepted(outcome.leader_epoch, outcome.partition_epoch, outcome.isr)
