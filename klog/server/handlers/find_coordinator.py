"""Answers FindCoordinator requests. There are no coordinators of groups and transactions yet.

Rules: Kafka's `KafkaApis.handleFindCoordinatorRequest`; KIP-98, KIP-699 (several keys from version 4 on).

It is announced, from version 0 on, before there are coordinators, because librdkafka reads a broker's
abilities from it: without version 0 it takes the broker for one that knows no LZ4 (its feature "lz4" depends
on it), and sends uncompressed what it was told to compress.

A client should learn at once that it asks for what there is not yet. For a transactional id an error does
that. One of a group names this broker: the client then sees that the group's requests are not announced, says
so, and goes on where it can (a consumer of assigned partitions that would have committed), where an error
would have it ask again, or wait when it closes. But librdkafka, which asks in versions up to 2, crashes
when a coordinator does not announce OffsetFetch: up to there it is told COORDINATOR_NOT_AVAILABLE, and waits.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from klog.metadata.cache import MetadataCache
from klog.protocol.error_codes import ErrorCode
from klog.protocol.messages import encode_response
from klog.server.handlers.answers import answer_of, entity_of, part, send_answer
from klog.server.handlers.topic_metadata import live_nodes
from klog.server.network.request import Request

logger = logging.getLogger(__name__)

_NAMED_FROM: Final = 3
_SEVERAL_KEYS_FROM: Final = 4
_GROUP: Final = 0
_TRANSACTION: Final = 1
_LOGGED_MAX: Final = 1_000  # clients choose the names, so their number needs a limit
_NOT_SERVED: Final = {
    _GROUP: (
        "%s asks for the coordinator of group %s: consumer groups are not served yet, so a consumer that "
        "subscribes gets nothing, and one that assigns its partitions works"
    ),
    _TRANSACTION: (
        "%s asks for the coordinator of transactional id %s: transactions are not served yet, and a producer "
        "with a transactional.id cannot start"
    ),
}


class _Coordinator(NamedTuple):
    """The fields of an answer, under their names."""

    error_code: ErrorCode
    node_id: int = -1
    host: str = ""
    port: int = -1
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class FindCoordinatorHandler:
    """Answers FindCoordinator requests."""

    broker_id: int
    cache: MetadataCache
    _logged: set[tuple[int, str]] = field(default_factory=set, compare=False, repr=False)

    def handle(self, request: Request) -> None:
        """Answer at once."""
        asked = entity_of(request)
        # Version 0 knows groups alone.
        key_type = getattr(asked, "key_type", _GROUP)
        found = self._coordinator(request, key_type)._asdict()
        if request.api_version < _SEVERAL_KEYS_FROM:
            self._log(request, key_type, asked.key)
            send_answer(request, **found)
            return
        for key in asked.coordinator_keys:
            self._log(request, key_type, key)
        coordinators = tuple(part(request, "Coordinator", key=key, **found) for key in asked.coordinator_keys)
        send_answer(request, coordinators=coordinators)

    def _log(self, request: Request, key_type: int, key: str) -> None:
        """Log once for each group and transactional id that nobody coordinates it: clients wait silently."""
        if key_type not in _NOT_SERVED or (key_type, key) in self._logged or len(self._logged) >= _LOGGED_MAX:
            return
        self._logged.add((key_type, key))
        client = f"{request.client_id or 'a client'} at {request.peer_address}"
        logger.info(_NOT_SERVED[key_type], client, key)

    def _coordinator(self, request: Request, key_type: int) -> _Coordinator:
        if key_type == _TRANSACTION:
            return _Coordinator(ErrorCode.UNSUPPORTED_VERSION, error_message="no transactions are served yet")
        if key_type != _GROUP:
            return _Coordinator(ErrorCode.INVALID_REQUEST)
        if request.api_version >= _NAMED_FROM:
            for node in live_nodes(self.cache.snapshot, request.listener):
                if node.broker_id == self.broker_id:
                    return _Coordinator(ErrorCode.NONE, node.broker_id, node.host, node.port)
        return _Coordinator(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def failed(self, request: Request, error: ErrorCode) -> list[bytes] | None:
        """The answer to a request whose handling failed; None if its keys are not known."""
        if request.api_version < _SEVERAL_KEYS_FROM:
            return [encode_response(answer_of(request, **_Coordinator(error)._asdict()))]
        return None
