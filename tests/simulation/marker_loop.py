"""How a simulated coordinator sends markers: the drivers of `MarkerSending`, with requests as bytes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from klog.coordinator.transactions.values import MarkersToWrite, OnWritten
from klog.drivers.fenced_markers import EpochsRequest, FencedMarkers, KnownEpochs
from klog.drivers.marker_queues import UNKNOWN
from klog.drivers.markers import (
    LeaderLookup,
    MarkerRequest,
    MarkerRoutes,
    MarkersHere,
    MarkersToBroker,
    PartitionsRequest,
)
from klog.metadata.topics import existing_partitions
from klog.protocol.apis import ApiKey
from klog.protocol.transaction_messages import TxnMarker, read_written_markers, write_markers
from klog.server.transactions.marker_sending import Write
from klog.server.transactions.opening import leader_lookup
from klog.server.transactions.producer_epochs import newest_epochs
from tests.simulation.driver_loop import DriverLoop, Reply
from tests.simulation.frames import ask_frame

if TYPE_CHECKING:
    from tests.simulation.broker import SimulatedBroker

MARKERS_VERSION = 1


class MarkerLoop:
    """The `MarkerSender` of a simulated broker.

    Markers of a request that has failed do not arrive after they were sent again. In Kafka 3.9 nothing but
    the order of a connection's bytes keeps a repeated marker from ending the producer's next transaction
    (KIP-890, part 2, raises the epoch with each transaction and came later).
    """

    def __init__(self, broker: SimulatedBroker, write: Write) -> None:
        self._broker = broker
        self._write = write
        self._routes = MarkerRoutes(broker.broker_id, leader_lookup(broker.cache), self._wake)
        self._here = DriverLoop(broker, MarkersHere(self._routes), self._write_here, takes_at_once=True)
        self._lookup = DriverLoop(broker, LeaderLookup(self._routes), self._look_up)
        self._fenced = DriverLoop(broker, FencedMarkers(self._routes), self._known_epochs)
        self._others: dict[int, DriverLoop] = {}
        self._requests = 0
        self._latest: dict[int, int] = {}

    def send(self, wanted: MarkersToWrite, on_written: OnWritten) -> None:
        def written(partitions: Any, *, superseded: bool = False) -> None:
            self._broker.world.counts["markers"] += len(partitions)
            on_written(partitions, superseded=superseded)

        self._routes.add(wanted, written)

    def write_own(self) -> None:
        self._here.run()

    def forget(self, coordinator_partition: int) -> None:
        self._routes.queues.forget(coordinator_partition)

    def _wake(self, broker_id: int) -> None:
        if broker_id == UNKNOWN:
            self._lookup.wake()
        elif broker_id == self._broker.broker_id:
            self._here.wake()
        else:
            loop = self._others.get(broker_id)
            if loop is None:
                driver = MarkersToBroker(self._routes, broker_id)
                loop = self._others[broker_id] = DriverLoop(
                    self._broker, driver, partial(self._send_to, broker_id)
                )
            loop.wake()

    def _write_here(self, request: MarkerRequest, reply: Reply) -> None:
        self._write(_in_order(request), reply)

    def _look_up(self, request: PartitionsRequest, reply: Reply) -> None:
        reply(existing_partitions(self._broker.session, request.partitions))

    def _known_epochs(self, request: EpochsRequest, reply: Reply) -> None:
        leader_of = leader_lookup(self._broker.cache)
        known = {}
        for partition, producer_ids in request.producers.items():
            leader = self._broker.world.brokers.get(leader_of(partition))
            led = None if leader is None else leader.replicas.partitions.get(partition)
            producers = {} if led is None else led.log.producers.by_id
            for producer_id in producer_ids & producers.keys():
                known[partition, producer_id] = producers[producer_id].coordinator_epoch
        reply(KnownEpochs(known, newest_epochs(self._broker.session)(request.coordinator_partitions)))

    def _send_to(self, broker_id: int, request: MarkerRequest, reply: Reply) -> None:
        self._requests += 1
        number = self._latest[broker_id] = self._requests
        target = self._broker.world.brokers.get(broker_id)

        def replied(answer: Any) -> None:
            del self._latest[broker_id]
            reply(answer)

        ask_frame(
            self._broker,
            target,
            ApiKey.WRITE_TXN_MARKERS,
            MARKERS_VERSION,
            (write_markers(MARKERS_VERSION, _in_order(request)),),
            read_written_markers,
            replied,
            is_wanted=lambda: self._latest.get(broker_id) == number,
        )


def _in_order(request: MarkerRequest) -> list[TxnMarker]:
    # A schedule must play the same in every process, and the order of a set differs.
    return [marker._replace(partitions=sorted(marker.partitions)) for marker in request.markers]
