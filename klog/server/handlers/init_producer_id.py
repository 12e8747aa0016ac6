"""InitProducerId: a number that makes a producer's retries recognisable (idempotence).

Rules: Kafka's `KafkaApis.handleInitProducerIdRequest` and `TransactionCoordinator.handleInitProducerId`;
KIP-98, KIP-360. Ids come from blocks that this broker owns; what is left of a block is lost when the broker
stops. There is no transaction coordinator yet: a transactional id is answered COORDINATOR_NOT_AVAILABLE, as a
client of Kafka is while no broker coordinates; it looks for a coordinator again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from klog.metadata.errors import MetadataError
from klog.metadata.values import ProducerIdBlock
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.protocol.messages import encode_response
from klog.server.handlers.answers import answer_of, entity_of, send_answer
from klog.server.network.request import Request

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
_FIRST_EPOCH: Final = 0


class ProducerIds:
    """The next producer id, from the block in hand or a new one. Safe for threads."""

    def __init__(self, allocate: Callable[[], ProducerIdBlock]) -> None:
        """`allocate` writes the next block to the metadata store and may raise `MetadataError`."""
        self._allocate = allocate
        self._lock = threading.Lock()
        self._next = 0
        self._last = -1

    def next_id(self) -> int:
        """An id that nobody was given before. Raises `MetadataError`."""
        with self._lock:
            if self._next > self._last:
                block = self._allocate()
                self._next, self._last = block.first, block.last
            self._next += 1
            return self._next - 1


class InitProducerIdHandler:
    """Answers InitProducerId requests."""

    def __init__(self, producer_ids: ProducerIds) -> None:
        self._producer_ids = producer_ids

    def handle(self, request: Request) -> None:
        """Answer at once; a new block may have to be written first."""
        error = _refusal(entity_of(request))
        producer_id = NO_PRODUCER_ID
        if error is ErrorCode.NONE:
            try:
                producer_id = self._producer_ids.next_id()
            except MetadataError:
                error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # clients try again
        epoch = NO_PRODUCER_EPOCH if error else _FIRST_EPOCH
        send_answer(request, error_code=error, producer_id=producer_id, producer_epoch=epoch)

    def failed(self, request: Request, error: ErrorCode) -> list[bytes]:
        """What a request is answered that could not be handled."""
        answer = answer_of(
            request, error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
        )
        return [encode_response(answer)]


def _refusal(asked: Entity) -> ErrorCode:
    # Older versions do not say an id and an epoch.
    producer_id = getattr(asked, "producer_id", NO_PRODUCER_ID)
    epoch = getattr(asked, "producer_epoch", NO_PRODUCER_EPOCH)
    if (producer_id == NO_PRODUCER_ID) != (epoch == NO_PRODUCER_EPOCH):
        return ErrorCode.INVALID_REQUEST
    if asked.transactional_id is None:
        return ErrorCode.NONE
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if asked.transactional_id else ErrorCode.INVALID_REQUEST
