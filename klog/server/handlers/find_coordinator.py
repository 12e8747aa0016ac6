"""FindCoordinator: who coordinates a group or a transactional id. As yet nobody does.

Rules: Kafka's `KafkaApis.handleFindCoordinatorRequest`; KIP-98, KIP-699 (several keys from version 4 on).

It is announced, from version 0 on, before there are coordinators, because librdkafka reads a broker's
abilities from it: without version 0 it takes the broker for one that knows no LZ4 (its feature "lz4" depends
on it), and sends uncompressed what it was told to compress. COORDINATOR_NOT_AVAILABLE is what Kafka says
while no broker coordinates; clients ask again.
"""

from __future__ import annotations

from typing import Final

from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.protocol.messages import encode_response
from klog.server.handlers.answers import answer_of, entity_of, part, send_answer
from klog.server.network.request import Request

_SEVERAL_KEYS_FROM: Final = 4
_NO_NODE: Final = -1
_GROUP: Final = 0
_TRANSACTION: Final = 1


class FindCoordinatorHandler:
    """Answers FindCoordinator requests: it needs nothing."""

    def handle(self, request: Request) -> None:
        """Answer at once."""
        asked = entity_of(request)
        # Version 0 knows groups alone.
        error = _refusal(getattr(asked, "key_type", _GROUP))
        if request.api_version < _SEVERAL_KEYS_FROM:
            send_answer(request, **_nobody(error))
            return
        coordinators = tuple(
            part(request, "Coordinator", key=key, **_nobody(error)) for key in asked.coordinator_keys
        )
        send_answer(request, coordinators=coordinators)

    def failed(self, request: Request, error: ErrorCode) -> list[bytes] | None:
        """What a request is answered that could not be handled; None where no key is known to answer for."""
        if request.api_version < _SEVERAL_KEYS_FROM:
            return [encode_response(answer_of(request, **_nobody(error)))]
        return None


def _nobody(error: ErrorCode) -> dict[str, Entity]:
    return {"error_code": error, "error_message": None, "node_id": _NO_NODE, "host": "", "port": -1}


def _refusal(key_type: int) -> ErrorCode:
    known = key_type in (_GROUP, _TRANSACTION)
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if known else ErrorCode.INVALID_REQUEST
