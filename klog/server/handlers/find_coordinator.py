"""Answers FindCoordinator requests: the leader of the internal topic's partition that an id belongs to.

Rules: Kafka's `KafkaApis.handleFindCoordinatorRequest`; KIP-98, KIP-699 (several keys from version 4 on). If
the internal topic does not exist it is created, and the client asks again until the partition has a leader.

There is no transaction coordinator yet. A client that asks for one is told at once that transactions are not
served.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from klog.formats.names import TopicPartition
from klog.metadata.cache import MetadataCache
from klog.protocol.error_codes import ErrorCode
from klog.protocol.messages import encode_response
from klog.server.handlers.answers import InBackground, answer_of, entity_of, part, send_answer
from klog.server.handlers.auto_creation import AutoTopicCreation
from klog.server.handlers.topic_metadata import CONSUMER_OFFSETS
from klog.server.network.request import Request

logger = logging.getLogger(__name__)

_SEVERAL_KEYS_FROM: Final = 4
_SHARE_FROM: Final = 6
_GROUP: Final = 0
_TRANSACTION: Final = 1
_SHARE: Final = 2
_LOGGED_MAX: Final = 1_000  # clients choose the ids, so their number needs a limit


# Creation has begun, here or elsewhere.
_CREATED: Final = (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class _Coordinator(NamedTuple):
    """The fields of an answer, under their names."""

    error_code: ErrorCode
    node_id: int = -1
    host: str = ""
    port: int = -1
    error_message: str | None = ""


_UNKNOWN_KEY_TYPE: Final = "a coordinator has key type 0 (group) or 1 (transaction)"
# For one key, each error has a message. For several keys Kafka leaves it empty, but for an unknown type.
_MESSAGES: Final = {
    ErrorCode.NONE: "NONE",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the coordinator is not available yet",
    ErrorCode.INVALID_REQUEST: _UNKNOWN_KEY_TYPE,
}
_NOT_AVAILABLE: Final = _Coordinator(ErrorCode.COORDINATOR_NOT_AVAILABLE)


@dataclass(frozen=True, slots=True)
class FindCoordinatorHandler:
    """Answers FindCoordinator requests. `partition_for` gives the partition of a group."""

    cache: MetadataCache
    partition_for: Callable[[str], int]
    creation: AutoTopicCreation
    create_in_background: InBackground
    _logged: set[str] = field(default_factory=set, compare=False, repr=False)

    def handle(self, request: Request) -> None:
        """Answer at once. A missing topic is created after the answer."""
        asked = entity_of(request)
        # Version 0 knows groups alone.
        key_type = getattr(asked, "key_type", _GROUP)
        if request.api_version < _SEVERAL_KEYS_FROM:
            found = self._find(request, asked.key, key_type)
            message = found.error_message or _MESSAGES.get(found.error_code)
            send_answer(request, **found._replace(error_message=message)._asdict())
        else:
            coordinators = tuple(
                part(request, "Coordinator", key=key, **self._find(request, key, key_type)._asdict())
                for key in asked.coordinator_keys
            )
            send_answer(request, coordinators=coordinators)
        if key_type == _GROUP and CONSUMER_OFFSETS not in self.cache.snapshot.topics:
            self.create_in_background(request, self._create)

    def _create(self, request: Request) -> None:  # noqa: ARG002 (has been answered)
        (error,) = self.creation.create((CONSUMER_OFFSETS,)).values()
        if error not in _CREATED and error.name not in self._logged:
            # Clients are only told that there is no coordinator, and ask again and again.
            self._logged.add(error.name)
            logger.warning(
                "%s cannot be created: %s (offsets.topic.replication.factor must not exceed the brokers)",
                CONSUMER_OFFSETS,
                error.name,
            )

    def _find(self, request: Request, key: str, key_type: int) -> _Coordinator:
        if key_type == _TRANSACTION:
            self._log(request, key)
            return _Coordinator(ErrorCode.UNSUPPORTED_VERSION, error_message="no transactions are served yet")
        if key_type == _SHARE and request.api_version >= _SHARE_FROM:
            return _NOT_AVAILABLE
        if key_type == _SHARE:
            return _Coordinator(ErrorCode.INVALID_REQUEST)
        if key_type != _GROUP:
            return _Coordinator(ErrorCode.INVALID_REQUEST, error_message=_UNKNOWN_KEY_TYPE)
        snapshot = self.cache.snapshot
        state = snapshot.partition(TopicPartition(CONSUMER_OFFSETS, self.partition_for(key)))
        broker = None if state is None else snapshot.brokers.get(state.leader)
        endpoint = None if broker is None else broker.endpoint(request.listener)
        if broker is None or endpoint is None:
            return _NOT_AVAILABLE
        return _Coordinator(ErrorCode.NONE, broker.broker_id, endpoint.host, endpoint.port)

    def _log(self, request: Request, transactional_id: str) -> None:
        """Log once for each transactional id that nobody coordinates it: some clients wait silently."""
        if transactional_id in self._logged or len(self._logged) >= _LOGGED_MAX:
            return
        self._logged.add(transactional_id)
        client = f"{request.client_id or 'a client'} at {request.peer_address}"
        logger.info(
            "%s asks for the coordinator of transactional id %s: transactions are not served yet, and a "
            "producer with a transactional.id cannot start",
            client,
            transactional_id,
        )

    def failed(self, request: Request, error: ErrorCode) -> list[bytes] | None:
        """The answer to a request whose handling failed; None if its keys are not known."""
        if request.api_version < _SEVERAL_KEYS_FROM:
            return [encode_response(answer_of(request, **_Coordinator(error)._asdict()))]
        return None
