"""Produce requests of simulated clients, and what a broker has acknowledged to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from klog.formats.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.protocol.produce_request import ProduceRequest, encode_produce_request
from klog.protocol.produce_response import decode_produce_response
from klog.replication.partition import ALL_IN_SYNC
from tests.simulation.frames import answers_in, frame_of

if TYPE_CHECKING:
    from tests.simulation.broker import SimulatedBroker

PRODUCE_TIMEOUT_MS = 750


class Produced(NamedTuple):
    """How the records of one request were taken."""

    error: ErrorCode
    offset: int


@dataclass(frozen=True, slots=True)
class Producing:
    """Batches of one record each, for one partition, sent together in a request each."""

    key: TopicPartition
    version: int
    acks: int
    record_ids: Sequence[int]
    batches: Sequence[bytes]
    transactional_id: str | None = None

    def send(self, leader: SimulatedBroker, answer: Callable[[list[Produced]], None]) -> None:
        """The requests arrive at a broker."""

        left = list(self.record_ids)

        def acknowledged(frames: bytes) -> None:
            for error, offset in self._results(frames):
                record_id = left.pop(0)
                if error is ErrorCode.NONE and self.acks == ALL_IN_SYNC:
                    leader.world.acknowledged(leader, self.key, offset, record_id)

        def answered(frames: bytes) -> None:
            answer(self._results(frames))

        leader.serving.serve(b"".join(map(self._frame, self.batches)), answered, acknowledged)

    def _frame(self, batch: bytes) -> bytes:
        topics = [(self.key.topic, [(self.key.partition, memoryview(batch))])]
        request = ProduceRequest(self.transactional_id, self.acks, PRODUCE_TIMEOUT_MS, topics)
        return frame_of(ApiKey.PRODUCE, self.version, encode_produce_request(self.version, request))

    def _results(self, frames: bytes) -> list[Produced]:
        return [self._produced(body) for body in answers_in(ApiKey.PRODUCE, self.version, frames)]

    def _produced(self, body: memoryview) -> Produced:
        ((_, (result,)),) = decode_produce_response(self.version, body).topics
        return Produced(ErrorCode(result.error_code), result.base_offset)
