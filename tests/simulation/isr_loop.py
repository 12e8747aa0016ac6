"""How a simulated broker changes ISRs: `IsrDriver` and the ISR timer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from klog.drivers.isr_changes import IsrDriver
from klog.formats.names import TopicPartition
from klog.replication.alter_partition import IsrAccepted
from klog.replication.isr_changes import IsrRequest, check_isr
from klog.server.peers.isr_sending import via_controller
from tests.simulation.driver_loop import DriverLoop, Reply
from tests.simulation.scheduler import US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.broker import SimulatedBroker

MAX_LAG_MS = 1_500


class IsrLoop:
    """Sends the proposals of a broker to the controller."""

    def __init__(self, broker: SimulatedBroker) -> None:
        self._broker = broker
        driver = IsrDriver(broker.replicas)
        self.propose = driver.propose
        self._send = via_controller(
            broker.to_controller, broker.broker_id, lambda: broker.epoch, self._topic_id
        )
        DriverLoop(broker, driver, self._send_counted)
        broker.after(MAX_LAG_MS // 2 * US_PER_MS, self._check)

    def _topic_id(self, key: TopicPartition) -> UUID | None:
        partition = self._broker.replicas.partitions.get(key)
        return None if partition is None else partition.topic_id

    def _check(self) -> None:
        check_isr(self._broker.replicas, self._broker.clock_ms())
        self._broker.after(MAX_LAG_MS // 2 * US_PER_MS, self._check)

    def _send_counted(self, request: IsrRequest, reply: Reply) -> None:
        def answered(answer: Any) -> None:
            if isinstance(answer, dict):
                accepted = sum(isinstance(each, IsrAccepted) for each in answer.values())
                self._broker.world.counts["ISR changes"] += accepted
            reply(answer)

        self._send(request, answered)
